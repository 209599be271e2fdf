"""A candidate of our kernels by its id: the same as in the list of all, made without the others."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from convwright.backends.triton import kernels
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Refusal
from convwright.core.plan import Selective
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.tuning import listing

pytest.importorskip("triton")
H200, POLICY = profile("h200"), Policy()
PROBLEMS = (
    "mb8ic3ih224oc64kh7sh2ph3", "mb8ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc ep:bias+relu", "mb1ic2ih64oc1kh3ph1",
    "mb8ic64ih56oc64kh3sh2ph1 dir:backward_data", "mb8ic64ih56oc64kh3ph1 dir:backward_weight",
    "g32mb2ic32ih28oc32kh3ph1 dir:backward_weight",
)  # fmt: skip


@pytest.mark.parametrize("text", PROBLEMS)
def test_each_candidate_that_is_listed_is_found_by_its_id(text: str) -> None:
    problem = ConvProblem.parse(text)
    listed = listing.candidates(TritonKernels().candidates(problem, H200, POLICY))
    assert len(listed) > 1
    for candidate in listed:
        assert listing.with_id(candidate.id, problem, H200, POLICY) == candidate


def test_no_kernel_is_compiled_for_steps_beyond_32_bits() -> None:
    problem = ConvProblem.parse("ic3ih7iw4oc3kh1kw1ph1dh2147483648")
    refusals = [*TritonKernels().candidates(problem, H200, POLICY)]
    assert refusals
    assert all(isinstance(offer, Refusal) and "of 32 bits" in offer.reason for offer in refusals)


def test_what_is_called_otherwise_is_not_listed() -> None:
    problem, backend = ConvProblem.parse(PROBLEMS[0]), TritonKernels()
    assert isinstance(backend, Selective)
    called = listing.candidates(backend.called("triton/folded-gemm-3xfp16[bm=1]", problem, H200, POLICY))
    assert {candidate.algorithm for candidate in called} == {"folded-gemm-3xfp16", "folded-gemm-scaled-fp16"}
    assert not [*backend.called("triton/magic[rows=1]", problem, H200, POLICY)]
    assert listing.with_id("triton/magic[rows=1]", problem, H200, POLICY) is None


def test_a_process_that_takes_one_by_its_id_loads_no_other_kernel_and_no_compiler() -> None:
    script = f"""
import sys
from convwright.backends.triton.backend import TritonKernels, plan_class
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

problem = ConvProblem.parse({PROBLEMS[1]!r})
called = TritonKernels().called("triton/implicit-gemm[bm=128]", problem, profile("h200"), Policy())
candidate = next(called)
plan_class(candidate)
assert candidate.algorithm == "implicit-gemm"
loaded = {{name.split(".")[3] for name in sys.modules if name.startswith("convwright.backends.triton.")}}
assert not loaded & {{"boxed_gemm", "folded_gemm", "direct", "wide_direct", "winograd"}}, loaded
assert "triton" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_plans_load_no_kernel_and_no_compiler() -> None:
    """They are read in a process that has no use for either."""
    script = """
import sys
from convwright.backends.triton import kernels

for names in kernels.OFFERED.values():
    for name in names:
        kernels.plans(name)
loaded = {name for name in sys.modules if name.startswith("convwright.backends.triton.")}
assert not {name for name in loaded if name.endswith(".kernel")}, loaded
assert "triton" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_kernels_serve_loads_neither_pytorch_nor_a_compiler() -> None:
    script = """
import sys
from convwright.backends.triton import kernels

for names in kernels.OFFERED.values():
    for name in names:
        assert kernels.kernel(name).NAME.startswith(f"triton/{name}")
assert not {"torch", "triton"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_source_of_every_kernel_is_loaded_ahead_of_the_first_one_that_is_compiled() -> None:
    offered = {name.replace("-", "_") for names in kernels.OFFERED.values() for name in names}
    assert {module.__name__.split(".")[-2] for module in kernels.sources()} == offered
    assert {name.replace("-", "_") for name in get_args(kernels.KernelName)} == offered
