"""Our kernels are launched before the one ahead of them has ended, where the GPU can do so, and wait for it by
themselves: before they have, they touch no memory."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from functools import cache

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.launching import launch
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.launching.launch import Binary, launch_of
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")
KERNELS = (
    "banded_gemm", "bands", "boxed_gemm", "boxed_weight_gradient", "direct", "few_weights", "folded_operands",
    "held_gemm", "implicit_gemm", "input_gradient", "largest_of_channels", "output_of_parts", "outputs_of_taps",
    "packed_gradient", "packed_rows", "packed_weight", "staged_by_channels", "staged_gemm", "staged_input",
    "staged_weight_gradient", "sum_of_parts", "sums_of_taps", "transformed_input", "transformed_weight",
    "turned_sum_of_parts", "weight_gradient", "wide_direct", "winograd",
)  # fmt: skip
LAYERS = (
    "mb32ic256ih14oc256kh3ph1", "mb32ic3ih224oc64kh7sh2ph3", "mb32ic256ih14oc256kh3ph1 tag:nhwc dt:fp16 ep:bias+relu",
    "mb1ic512ih7oc512kh3ph1 dt:fp16 tag:nhwc", "g192mb32ic192ih28oc192kh7ph3 dt:fp16",
    "mb32ic256ih28oc256kh3ph1sh2 tag:nhwc dir:backward_data", "mb32ic256ih14oc256kh3ph1 dir:backward_weight",
    "mb32ic256ih14oc256kh3ph1 tag:nhwc dir:backward_weight",
    "mb32ic256ih14oc256kh3ph1 tag:nhwc dt:fp16 dir:backward_weight",
    "g96mb32ic96oc96ih56kh3ph1 dt:fp16 dir:backward_weight", "ic50ih512oc1kh3ph5dh4",
)  # fmt: skip
WAIT = "griddepcontrol.wait"
_TOUCHES = re.compile(r"\b(?:ld|st|atom|red|prefetch\w*|cp)\.(?!param)[\w.:]+")
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


@cache
def launched() -> dict[str, KernelCall]:
    """A launch of each kernel that a plan for one of these layers may ask for."""
    calls: dict[str, KernelCall] = {}
    for text in LAYERS:
        for offer in TritonKernels().candidates(ConvProblem.parse(text), H200, Policy()):
            if isinstance(offer, Candidate):
                calls |= {call.kernel.__name__: call for call in kernel_calls(offer)}
    return calls


def test_these_are_all_kernels() -> None:
    assert sorted(launched()) == sorted(KERNELS)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_touches_no_memory_before_it_has_waited(kernel: str) -> None:
    ptx = launched()[kernel].compile("sm_90").asm["ptx"]
    ahead, _, behind = ptx[ptx.index(".entry") :].partition(WAIT)
    assert behind, "it does not wait"
    assert WAIT not in behind
    assert _TOUCHES.findall(ahead) == []
    assert _TOUCHES.search(behind)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_120"])
def test_on_other_gpus_none_waits(architecture: str) -> None:
    assert WAIT not in launched()["bands"].compile(architecture).asm["ptx"]


class Attribute(ctypes.Structure):
    """``CUlaunchAttribute``, whose value begins behind eight bytes."""

    _fields_ = (("name", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_uint))


@pytest.mark.parametrize(
    ("architecture", "version", "overlaps"),
    [("sm_90", 13000, True), ("sm_90", 12030, True), ("sm_90", 12020, False), ("sm_80", 13000, False)],
)
def test_the_driver_is_told_of_what_waits(
    architecture: str, version: int, overlaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that can capture it: that of CUDA 12.3 is the first."""
    driver = FakeCudaDriver(monkeypatch)
    driver.version = version
    ready = launch_of(launched()["bands"], replace(H200, torch_name="cuda:0", architecture=architecture))
    ready(torch.empty(8), torch.empty(8))
    *_, attributes, count = driver.launches[0].config
    assert count == overlaps
    if overlaps:
        told = Attribute.from_address(attributes)
        assert (told.name, told.value) == (_PROGRAMMATIC_STREAM_SERIALIZATION, 1)


def test_a_kernel_that_cannot_wait_is_not_launched_ahead() -> None:
    from triton import jit

    @jit
    def without(x):  # type: ignore[no-untyped-def]
        """Nothing."""

    call = KernelCall(without, {"x": ("fp32", 16)}, {}, 1, 4, 1)
    assert not Binary.of(call.compile("sm_90"), call).overlaps


def test_whether_it_waits_is_kept_with_a_kernel() -> None:
    call = launched()["bands"]
    binary = Binary.of(call.compile("sm_90"), call)
    assert binary.overlaps
    assert Binary.read(binary.text) == binary
