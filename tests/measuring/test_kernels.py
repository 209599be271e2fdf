"""Kernels out of a trace in Kineto's format; what a GPU launches is looked at in tests/gpu."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from convwright.errors import BadInput
from convwright.measuring.kernels import Kernel, kernels_in, kernels_of

TRACE = json.loads((Path(__file__).parent / "kineto_trace.json").read_text())


def test_launches_in_their_order_whatever_stream_began_first() -> None:
    first, second, third = kernels_in(TRACE)
    assert first.name == "void cudnn::ops::nchwToNhwcKernel<float>(cudnn::ops::nchw2nhwc_params_t<float>)"
    assert second == Kernel(
        "sm90_xmma_fprop_implicit_gemm_f16f16", (4, 28, 1), (384, 1, 1), 168, shared_bytes=213376, duration_us=11.375
    )
    assert third == Kernel("told_less", None, None, None, None, 1.0)


def test_kernels_of_one_graph_come_in_the_order_in_which_they_ran() -> None:
    args = {"correlation": 5}
    events = [{"cat": "kernel", "name": name, "ts": ts, "args": args} for name, ts in (("b", 9.5), ("a", 9.25))]
    assert [kernel.name for kernel in kernels_in({"traceEvents": events})] == ["a", "b"]


def test_a_trace_without_kernels() -> None:
    assert kernels_in({"traceEvents": []}) == ()


@pytest.mark.parametrize("kernel", kernels_in(TRACE))
def test_to_data_and_back(kernel: Kernel) -> None:
    assert Kernel.from_json(json.loads(json.dumps(kernel.to_json()))) == kernel


def test_what_the_profiler_of_this_pytorch_writes_can_be_read(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        torch.ones(2).add_(1)
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    assert kernels_in(json.loads((tmp_path / "trace.json").read_text())) == ()


def test_a_cpu_launches_none() -> None:
    with pytest.raises(BadInput, match="kernels can be listed only on a GPU, got cpu"):
        kernels_of(lambda: None, "cpu")
