"""Weights packed by kernels in Triton's interpreter, bit for bit what PyTorch's operators make of them. Its own process
runs this."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from backends.triton_interpreted.packing_cases import (
    LAID,
    TURNED,
    WINOGRAD,
    rows_of,
    same,
    transformed,
    turned_rows_of,
    weight_of,
)
from backends.triton_interpreted.winograd_cases import every_tile
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts

BACKEND, CPU = TritonKernels(), device_facts("cpu")


def candidates(problem: ConvProblem, algorithm: str) -> list[Candidate]:
    """One of each algorithm."""
    offers = [each for each in BACKEND.candidates(problem, CPU, Policy()) if isinstance(each, Candidate)]
    found = {each.algorithm: each for each in offers if each.algorithm.startswith(algorithm)}
    assert found, problem.key
    return list(found.values())


def prepared(candidate: Candidate, weight: Tensor) -> Tensor:
    """What a plan reads, which is not the weight itself."""
    plan: Any = BACKEND.build(candidate, CPU)
    packed: Tensor = plan.prepare(weight)
    assert packed.is_contiguous()
    return packed


@pytest.mark.parametrize("text", LAID)
@pytest.mark.parametrize("special", [False, True], ids=["finite", "with infinities"])
def test_rows_of_output_channels(text: str, special: bool) -> None:
    problem = ConvProblem.parse(text)
    weight = weight_of(problem, special=special)
    seen = set()
    for candidate in candidates(problem, "implicit-gemm"):
        if candidate.algorithm.endswith("packed"):
            assert same(prepared(candidate, weight), rows_of(candidate, weight))
            seen.add(candidate.algorithm)
    assert len(seen) == 2


@pytest.mark.parametrize("text", TURNED)
def test_rows_of_input_channels(text: str) -> None:
    problem = ConvProblem.parse(text)
    weight = weight_of(problem, special=True)
    seen = set()
    for candidate in candidates(problem, "input-gradient"):
        if candidate.algorithm.endswith("packed"):
            assert same(prepared(candidate, weight), turned_rows_of(candidate, weight))
            seen.add(candidate.algorithm)
    assert len(seen) == 2


@pytest.mark.parametrize("text", WINOGRAD)
@pytest.mark.parametrize("special", [False, True], ids=["finite", "with infinities"])
def test_transformed_weights(text: str, special: bool) -> None:
    problem = ConvProblem.parse(text)
    weight = weight_of(problem, special=special)
    seen = set()
    for candidate in {each.algorithm: each for each in every_tile(problem)}.values():
        assert same(prepared(candidate, weight), transformed(candidate, weight))
        seen.add(candidate.algorithm)
    assert len(seen) == 2


def test_a_weight_that_lies_otherwise_is_laid_first() -> None:
    problem = ConvProblem.parse(LAID[0])
    weight = weight_of(problem, special=False)
    elsewhere = torch.empty(weight.shape[::-1]).permute(3, 2, 1, 0).copy_(weight)
    assert elsewhere.stride() != weight.stride()
    for candidate in candidates(problem, "implicit-gemm-3xtf32-packed"):
        assert same(prepared(candidate, elsewhere), prepared(candidate, weight))
