"""Weights that kernels pack, in the interpreter and on a GPU, and what PyTorch's operators make of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem
from convwright.tensors import empty

LAID = [
    "mb1ic24ih9oc40kh3ph1",
    "mb1ic24ih9oc40kh3ph1 tag:nhwc",
    "mb1ic17ih5oc19kh1 tag:x=nhwc,w=nchw,y=nhwc",
    "mb1ic64ih5oc8kh5kw2 tag:nhwc",
    "g2mb1ic32ih7oc48kh3 tag:nhwc",
    "mb1ic16iw12oc24kw5",
    "mb1ic16id5ih5iw6oc8kd3kh2kw3 tag:nhwc",
]
TURNED = [
    "mb1ic24ih9oc40kh3ph1sh2 dir:backward_data",
    "mb1ic24ih9oc40kh3ph1sh2 dir:backward_data tag:nhwc",
    "g2mb1ic32ih8oc48kh2kw3sh2 dir:backward_data tag:nhwc",
    "mb1ic16iw12oc24kw5sw2 dir:backward_data",
    "mb1ic16id5ih5iw6oc8kd3kh2kw3sd2 dir:backward_data tag:nhwc",
]
WINOGRAD = [
    "mb1ic32ih8oc32kh3ph1",
    "mb1ic32ih8oc40kh3ph1 tag:nhwc",
    "mb1ic37ih8oc24kh3ph1 tag:x=nhwc,w=nchw,y=nhwc",
    "mb1ic33ih8oc24kh3ph1 flip:1",
]


def weight_of(problem: ConvProblem, *, special: bool, device: str = "cpu") -> Tensor:
    """Random numbers of many sizes, among them perhaps what is not finite, the largest numbers, and zeros."""
    random = torch.Generator().manual_seed(1)
    values = torch.randn(problem.w.shape, generator=random)
    values *= torch.exp2(torch.randint(-30, 30, values.shape, generator=random).float())
    if special:
        largest = torch.finfo(torch.float32).max
        some = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, largest, -largest, 1e-42])
        values.view(-1)[: 8 * 5 : 5] = some
    return empty(problem.w, torch.device(device)).copy_(values)


def rows_of(candidate: Candidate, weight: Tensor) -> Tensor:
    """K T R S C in TF32."""
    return _rounded(candidate, weight.movedim(1, -1).contiguous())


def turned_rows_of(candidate: Candidate, weight: Tensor) -> Tensor:
    """Each group as C T R S K in TF32."""
    groups = weight.reshape(candidate.problem.groups, -1, *weight.shape[1:])
    return _rounded(candidate, groups.movedim(1, -1).contiguous())


def transformed(candidate: Candidate, weight: Tensor) -> Tensor:
    """Winograd's 16 K C, and behind it the weight as 9 C K."""
    taps = weight.flip(2, 3) if candidate.problem.flip else weight
    points = _spread(_spread(taps.permute(2, 3, 0, 1).double(), 0), 1).float().flatten(0, 1)
    points = pad(points, (0, -candidate.problem.c % 4))
    parts = _split(points) if candidate.algorithm.endswith("packed") else points
    return torch.cat((parts.flatten(), taps.permute(2, 3, 1, 0).flatten()))


def _rounded(candidate: Candidate, laid: Tensor) -> Tensor:
    both = _split(laid)
    return both if "3xtf32" in candidate.algorithm else both[0]


def _split(weight: Tensor) -> Tensor:
    """The TF32 numbers nearest to ``weight`` that are finite if it is, and behind them the rest."""
    rounded, cut = (((weight.view(torch.int32) + half) & -0x2000).view(torch.float32) for half in (0x1000, 0))
    high = torch.where(weight.isfinite(), torch.where(rounded.isfinite(), rounded, cut), weight)
    return torch.stack((high, weight - high))


def _spread(taps: Tensor, dim: int) -> Tensor:
    """G times the three taps along ``dim``."""
    first, second, third = taps.unbind(dim)
    outer = first + third
    return torch.stack((first, (outer + second) / 2, (outer - second) / 2, third), dim)


def same(packed: Tensor, expected: Tensor) -> bool:
    """With NaNs where NaNs are, and zeros by their sign."""
    assert packed.shape == expected.shape
    nan = expected.isnan()
    bits = packed.view(torch.int32) == expected.contiguous().view(torch.int32)
    return bool((torch.where(nan, packed.isnan(), bits)).all())
