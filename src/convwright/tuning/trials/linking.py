"""Whether there is time for what a library links or loads at a candidate's first run, which nobody can interrupt."""

from __future__ import annotations

from convwright.core.candidate import Candidate
from convwright.tuning.budget import Budget


def reason_not_to_link(candidate: Candidate, budget: Budget, most: float) -> str | None:
    """Why it is not looked at, or None where it may take at most this share of the whole budget."""
    links_us = candidate.leaf.links_us
    if links_us <= most * budget.total_us:
        return None
    return f"was not tried: its first run may take a library {links_us / 1e3:,.0f} ms"
