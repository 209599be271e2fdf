"""Ways to turn a problem into one that some backend computes better. The list of them, written out."""

from __future__ import annotations

from convwright.rewrites.relayout import Relayout
from convwright.rewrites.rewrite import Rewrite, wrap_plan
from convwright.rewrites.split_batch import SplitBatch

__all__ = ["REWRITES", "Rewrite", "rewrite", "wrap_plan"]

REWRITES: tuple[Rewrite, ...] = (Relayout(), SplitBatch())


def rewrite(name: str) -> Rewrite:
    """The rewrite called ``name``."""
    return next(each for each in REWRITES if each.name == name)
