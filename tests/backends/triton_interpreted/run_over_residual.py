"""Outputs in the memory of the residual, in Triton's interpreter, in a process of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from backends.triton_interpreted.cases import Operands
from backends.triton_interpreted.over_residual_cases import PROBLEMS, candidates, computes_the_same_over_the_residual
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.kernels import OFFERED, called
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts

CPU = device_facts("cpu")


@pytest.mark.first_cases(3)
@pytest.mark.parametrize("text", PROBLEMS)
def test_an_output_may_lie_where_the_residual_lies(text: str) -> None:
    problem = ConvProblem.parse(text)
    given = Operands.of(problem, "cpu", integers=False)
    for candidate in candidates(problem, CPU, 1):
        assert TritonKernels().overwrites(candidate) == {"residual"}
        computes_the_same_over_the_residual(candidate, given, CPU)


def test_all_kernels_are_among_them() -> None:
    seen = {
        called(each.algorithm, Direction.FORWARD)
        for text in PROBLEMS
        for each in candidates(ConvProblem.parse(text), CPU, 1)
    }
    assert seen == {*OFFERED[Direction.FORWARD]}
