"""Kernels that pack weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.packing_cases import LAID, TURNED, WINOGRAD
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.launching.kernel_call import interpreting
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.tensors import empty

pytest.importorskip("triton")


not_interpreted = pytest.mark.skipif(interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND, H200 = TritonKernels(), profile("h200")
PRESENT = replace(H200, torch_name="cuda:1")


def packing(text: str) -> list[Candidate]:
    """One of each algorithm that packs."""
    offers = BACKEND.candidates(ConvProblem.parse(text), H200, Policy())
    there = (each for each in offers if isinstance(each, Candidate))
    return list({each.algorithm: each for each in there if each.algorithm.endswith("packed")}.values())


@not_interpreted
@pytest.mark.parametrize("text", [LAID[0], TURNED[2], WINOGRAD[2]])
def test_they_compile_for_every_architecture(text: str) -> None:
    for candidate in packing(text):
        for architecture in ("sm_80", "sm_90"):
            metadata = kernel_calls(candidate)[-1].compile(architecture).metadata
            assert metadata.name in ("packed_rows", "transformed_weight")
            assert metadata.shared == 0


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("text", [LAID[1], f"{LAID[0]} ep:bias", TURNED[0], WINOGRAD[0]])
def test_a_weight_is_packed_by_one_launch(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    candidate = packing(text)[-1]
    plan: Any = BACKEND.build(candidate, PRESENT)
    weight = empty(candidate.problem.w, torch.device("cpu"))
    packed = plan.prepare(weight)
    assert packed.dtype is torch.float32
    (launched,) = driver.launches
    assert launched.arguments[:2] == [weight.data_ptr(), packed.data_ptr()]
    assert launched.config[0] == kernel_calls(candidate)[-1].blocks
    again: Any = BACKEND.read(candidate, PRESENT, str(BACKEND.written(plan)))
    assert again.prepare(weight).shape == packed.shape
    assert driver.launches[1].function == launched.function, "each kernel is loaded once"


def test_what_they_make_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_packing.py")
