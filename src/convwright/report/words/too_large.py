"""Sentences about problems that are too large for their device."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.limits import only_in_parts
from convwright.core.problem import ConvProblem
from convwright.report.words.groups import grouped


def too_large_sentence(problem: Problem, device: DeviceFacts) -> str | None:
    """The sentence about a problem that is too large; None if it is not."""
    reason = only_in_parts(problem, device)
    return None if reason is None else f"{reason[0].upper()}{reason[1:]}."


def print_too_large(named: Iterable[tuple[str, ConvProblem]], device: DeviceFacts, console: Console) -> None:
    """Print a line for each reason, with the names of its problems."""
    reasons = [(name, reason) for name, problem in named if (reason := only_in_parts(problem, device)) is not None]
    for line in grouped(reasons):
        console.print(Text(f"{line}.", style="yellow"))
