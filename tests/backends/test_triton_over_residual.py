"""Kernels whose output may lie where their residual lies."""

from __future__ import annotations

import pytest

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem


@pytest.mark.parametrize(("epilogue", "roles"), [("residual+bias+relu", {"residual"}), ("bias+relu", set())])
def test_only_a_residual_may_be_overwritten(epilogue: str, roles: set[str]) -> None:
    problem = ConvProblem.parse(f"ic16ih6oc16kh3ph1 ep:{epilogue}")
    candidate = Candidate(problem, "triton", "implicit-gemm", (), Arithmetic.FP32, 0, True, Source.RULE)
    assert TritonKernels().overwrites(candidate) == roles


def test_it_is_right_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    passes_in_the_interpreter("run_over_residual.py")
