"""Problems and configurations that the tests of our Winograd convolution share, in the interpreter and on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.triton_interpreted.cases import Case, Operands
from convwright.backends.triton.winograd.offers import ALGORITHMS, TILES, candidate_of
from convwright.core.candidate import Candidate
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem

SAME = ((1, 1), (1, 1))
_ALL = "residual+bias+relu"
SERVED = {
    "even image": Case((2, 32, 6, 4), (24, 32, 3, 3), padding=SAME, epilogue="bias+relu"),
    "odd image": Case((2, 16, 5, 7), (20, 16, 3, 3), padding=SAME, epilogue=_ALL),
    "without padding": Case((1, 20, 7, 6), (17, 20, 3, 3), epilogue="residual"),
    "one pixel": Case((2, 16, 3, 3), (16, 16, 3, 3), epilogue="bias"),
    "one row": Case((1, 16, 1, 9), (18, 16, 3, 3), padding=SAME),
    "odd channels": Case((1, 37, 4, 5), (19, 37, 3, 3), padding=SAME, epilogue=_ALL),
    "asymmetric padding": Case((1, 18, 6, 5), (16, 18, 3, 3), padding=((0, 2), (3, 1))),
    "padding beyond the filter": Case((1, 16, 3, 2), (16, 16, 3, 3), padding=((4, 3), (3, 5)), epilogue="bias"),
    "flipped": Case((1, 16, 5, 6), (21, 16, 3, 3), padding=SAME, flip=True),
    "slice of a wider buffer": Case((2, 20, 5, 6), (23, 20, 3, 3), padding=SAME, epilogue=_ALL, slack=5),
    "many output channels": Case((1, 16, 3, 3), (150, 16, 3, 3), padding=SAME, epilogue="residual+relu"),
}  # fmt: skip


def every_tile(problem: ConvProblem) -> list[Candidate]:
    """Every tile that there is, not only those that an estimate would keep for the problem."""
    return [candidate_of(problem, algorithm, tile) for algorithm in ALGORITHMS for tile in TILES]


def computed(plan: Plan, given: Operands) -> Tensor:
    """Into an output and with a workspace full of NaN."""
    return _computed(plan, given, plan.prepare(given.w))


def computed_once(plan: Plan, given: Operands) -> Tensor:
    """The same with NaN for the weight that only what has to be computed again reads: finite data must not need it."""
    prepared = plan.prepare(given.w)
    prepared[-given.w.numel() :] = torch.nan
    return _computed(plan, given, prepared)


def _computed(plan: Plan, given: Operands, prepared: Tensor) -> Tensor:
    given.out.fill_(torch.nan)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8, device=given.x.device)
    return plan(given.x, prepared, given.bias, given.residual, given.out, workspace)
