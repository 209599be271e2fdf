"""Turn a problem into one that a backend computes better. This module lists the rewrites.

Input: a problem and a device. Output: an inner problem, and a plan that runs its plan and the work before and after it.
Read first: ``rewrite``, ``copying``, ``relayout``.
"""

from __future__ import annotations

from convwright.rewrites.as_2d import As2D
from convwright.rewrites.as_conv import AsConv
from convwright.rewrites.as_forward import AsForward
from convwright.rewrites.pad_channels import PadChannels
from convwright.rewrites.relayout import Relayout
from convwright.rewrites.rewrite import Rewrite, wrap_plan
from convwright.rewrites.space_to_depth import SpaceToDepth
from convwright.rewrites.split_batch import SplitBatch
from convwright.rewrites.subsample import Subsample
from convwright.rewrites.unfuse import Unfuse

__all__ = ["REWRITES", "Rewrite", "rewrite", "wrap_plan"]

REWRITES: tuple[Rewrite, ...] = (
    Relayout(), SplitBatch(), PadChannels(), SpaceToDepth(), Subsample(), As2D(), AsForward(), Unfuse(), AsConv(),
)  # fmt: skip


def rewrite(name: str) -> Rewrite:
    """The rewrite ``name``."""
    return next(each for each in REWRITES if each.name == name)
