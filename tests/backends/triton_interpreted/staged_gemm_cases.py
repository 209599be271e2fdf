"""Problems and configurations that the tests of products on a staged input share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from backends.triton_interpreted.cases import CASES, VOLUMES, WIDE_GROUPS, Case, Operands
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.staged_gemm.offers import SPLIT, candidate_of, tiles
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem

ALGORITHM = SPLIT.name
SAME = ((1, 1), (1, 1))
_ALL = "residual+bias+relu"
_SHARED = CASES | VOLUMES | WIDE_GROUPS
# Of those that all kernels share, what has channels enough.
_ENOUGH_CHANNELS = (
    "pointwise", "pointwise, strided", "asymmetric padding", "padded on one side only",
    "slice of a wider buffer", "3x3x3", "1x3x3", "3x1x1, strided",
    "groups that fill no tile",
)  # fmt: skip
SERVED = {name: _SHARED[name] for name in _ENOUGH_CHANNELS} | {
    "3x3": Case((2, 70, 5, 4), (20, 70, 3, 3), padding=SAME, epilogue="bias+relu"),
    "pointwise of two blocks": Case((2, 70, 3, 5), (8, 70, 1, 1), epilogue="bias"),
    "odd channels, dilated": Case((1, 19, 9, 10), (9, 19, 3, 3), padding=((4, 4), (3, 3)), dilation=(4, 3)),
    "flipped": Case((1, 18, 5, 6), (11, 18, 3, 2), padding=SAME, epilogue=_ALL, flip=True),
    "padding beyond the filter": Case((1, 16, 3, 2), (8, 16, 3, 3), padding=((4, 3), (3, 5)), epilogue="bias"),
    "1-D": Case((2, 20, 30), (9, 20, 5), (2,), ((1, 3),), (2,), "bias"),
    "groups in 1-D, flipped": Case((2, 54, 19), (24, 18, 3), (2,), ((2, 1),), (2,), "bias", flip=True, groups=3),
    "any window of a volume": Case(
        (2, 17, 5, 4, 6), (9, 17, 2, 3, 2), (2, 1, 3), ((1, 2), (0, 1), (3, 0)), (3, 1, 2), "residual", flip=True
    ),
    "groups of a volume": Case(
        (1, 36, 3, 4, 5), (16, 18, 2, 2, 3), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), (1, 1, 1), _ALL, slack=2, groups=2
    ),
}  # fmt: skip


def every_tile(problem: ConvProblem) -> list[Candidate]:
    """Every tile that there is, not only those that an estimate would keep for the problem."""
    return [candidate_of(problem, SPLIT, tile) for tile in tiles(SPLIT)]


def smallest(problem: ConvProblem) -> list[Candidate]:
    """The smallest tile of each length of a step, the shortest first."""
    by_step = {Tile.of(each).bk: each for each in every_tile(problem)}
    return [by_step[bk] for bk in sorted(by_step)]


def uneven_integers(problem: ConvProblem, device: str) -> Operands:
    """Small integers times powers of two, others for each output channel and for 16 channels of a pixel: so a scale
    that belongs elsewhere shows. Sums are exact."""
    given = Operands.of(problem, device, integers=True)
    images, channels, *sizes = problem.x.shape
    x = 2.0 ** torch.randint(-2, 3, (images, -(-channels // 16), *sizes))
    w = 2.0 ** torch.randint(-2, 3, (problem.k, *[1] * (problem.rank + 1)))
    given.x.mul_(x.repeat_interleave(16, 1)[:, :channels].to(device))
    given.w.mul_(w.to(device))
    return given


def in_parts(candidate: Candidate, parts: int) -> Candidate:
    return candidate_of(candidate.problem, SPLIT, replace(Tile.of(candidate), parts=parts))


def _rows(large: float, small: float, weight: Tensor) -> Tensor:
    """Two output channels of other magnitudes than the rest."""
    weight[0] *= large
    weight[1] *= small
    return weight


def _infinity_in(x: Tensor) -> Tensor:
    x[0, 3, 0, 0] = torch.inf
    return x


def _met_by_nothing(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    x[0, 0], weight[:, 1] = 1e30, 1e18
    return x, weight


# An input and a weight, where a power of two for both sides may be beyond the range of fp32.
_X, _W = (
    torch.randn(1, 32, 2, 2, generator=torch.Generator().manual_seed(1)),
    torch.randn(16, 32, 2, 2, generator=torch.Generator().manual_seed(2)),
)
BETWEEN_SCALES = {
    "an infinity beside zeros, small weights": (_infinity_in(torch.zeros_like(_X)), (_W.abs() * 3e-4).clamp(1e-4)),
    "channels of 1e30 and 1e-20": (_X, _rows(1e30, 1e-20, _W.clone())),
    "the same beside 1e30": (_X * 1e30, _rows(1e10, 1e-20, _W.clone())),
    "results near the least number": (_X.abs() * 1e-34, _W.abs() * 3e-4),
    "large numbers that meet zeros": _met_by_nothing(torch.zeros_like(_X), torch.zeros_like(_W)),
    "an infinity among them": (_infinity_in(_X.clone()), _rows(1e30, 1e-20, _W.abs())),
}
