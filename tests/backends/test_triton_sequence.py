"""Kernels one behind the other are given the same operands, as tensors in the interpreter and as addresses on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from convwright.backends.triton.launching.launch import Launch
from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from tuning.made import CPU
from tuning.made_backend import offer

PROBLEM = ConvProblem.parse("mb2ic4ih6oc4kh3ph1 ep:bias")
STREAM, WORKSPACE_BYTES, BEHIND_FROM = 7, 128, 64


class Two(SequencePlan):
    @staticmethod
    def operands(candidate: Candidate) -> Sequence[Sequence[Operand]]:
        staged = Operand.FIRST, Operand.WORKSPACE, Operand.SECOND_PART
        return staged, (Operand.WORKSPACE, Operand.SECOND, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)

    @staticmethod
    def second_part_from(candidate: Candidate) -> int:
        return BEHIND_FROM


class Told:
    """Keeps what it is launched with; ``on_addresses`` as on a GPU."""

    def __init__(self, *, on_addresses: bool) -> None:
        self.stream: Callable[[], int] | None = (lambda: STREAM) if on_addresses else None
        self.told: list[tuple[int, ...]] = []

    def __call__(self, *operands: Tensor | None) -> None:
        assert self.stream is None
        self.told.append(tuple(0 if operand is None else operand.data_ptr() for operand in operands))

    def at(self, addresses: Sequence[int], stream: int) -> None:
        assert stream == STREAM
        self.told.append(tuple(addresses))


def made(launches: Sequence[Launch]) -> Two:
    return Two(replace(offer(PROBLEM, "triton/two"), workspace_bytes=WORKSPACE_BYTES), CPU, launches)


@pytest.mark.parametrize("on_addresses", [False, True])
def test_each_is_given_its_own(on_addresses: bool) -> None:
    launches = [Told(on_addresses=on_addresses) for _ in range(2)]
    x, w, b = torch.ones(2, 4, 6, 6), torch.ones(4, 4, 3, 3), torch.ones(4)
    workspace, out = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8), torch.empty(2, 4, 6, 6)
    assert made(launches)(x, w, b, None, out, workspace) is out
    at = workspace.data_ptr()
    assert launches[0].told == [(x.data_ptr(), at, at + BEHIND_FROM)]
    assert launches[1].told == [(at, w.data_ptr(), b.data_ptr(), 0, out.data_ptr())]


@pytest.mark.parametrize("on_addresses", [False, True])
def test_what_is_not_given_is_made(on_addresses: bool) -> None:
    launches = [Told(on_addresses=on_addresses) for _ in range(2)]
    y = made(launches)(torch.ones(2, 4, 6, 6), torch.ones(4, 4, 3, 3), torch.ones(4))
    assert y.shape == (2, 4, 6, 6)
    assert launches[1].told[0][-1] == y.data_ptr()
    assert launches[0].told[0][2] - launches[0].told[0][1] == BEHIND_FROM


def test_bare_addresses_go_to_the_same_places() -> None:
    launches = [Told(on_addresses=True) for _ in range(2)]
    ready = made(launches)
    ready.launch(1000, 2000, 3000, 0, 4000, 5000, STREAM)
    assert launches[0].told == [(1000, 5000, 5000 + BEHIND_FROM)]
    assert launches[1].told == [(5000, 2000, 3000, 0, 4000)]
    with pytest.raises(BadInput, match="needs a workspace of 128 bytes"):
        ready.launch(1000, 2000, 3000, 0, 4000, 0, STREAM)
