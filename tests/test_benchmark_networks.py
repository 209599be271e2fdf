"""The benchmark of whole networks: what is measured once, and what a device needs at least."""

from __future__ import annotations

from dataclasses import replace

import pytest
import whole_networks
from common.roofline import bound_us

from convwright.backends.torch_native.own import torch_candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.planning.assignment import Assignment, Step
from convwright.graph.operations import Foreign, View

ROW = {"network": "small", "batch": 2, "dtype": "fp32", "size": None}
PROBLEM, SPEC = ConvProblem.parse("ic3ih10oc8kh3"), TensorSpec((4, 250), DType.FP32)
OPERATIONS = (PROBLEM, Foreign("aten.sin.default", "{}", (SPEC,), (SPEC,)), View(SPEC, TensorSpec((1000,), DType.FP32)))
FLOPS, BYTES, FOREIGN_BYTES = 2 * 27 * 512, 4 * (3 * 100 + 3 * 72 + 8 * 64), 2 * 4 * 1000


@pytest.mark.parametrize(("row", "asked"), [({}, "on"), ({"tf32": "on"}, "on"), ({"tf32": "off"}, "off")])
def test_what_a_file_has_is_not_measured_again(
    row: dict[str, str], asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_networks, "measured", lambda *_: {})
    asked_for = ["--networks", "small", "--batches", "2", "--tf32"]
    done = {whole_networks.key(ROW | row)}
    assert not list(whole_networks.rows(whole_networks.parsed([*asked_for, asked]), done))
    other = "off" if asked == "on" else "on"
    assert len(list(whole_networks.rows(whole_networks.parsed([*asked_for, other]), done))) == 1


@pytest.mark.parametrize("bandwidth", [1e3, 1e-3])
def test_the_bound_is_the_larger_limit_of_each_step(bandwidth: float) -> None:
    device = DeviceFacts("one", "cuda", "sm_90", bandwidth_bytes_per_us=bandwidth,
                         peak_flops_per_us=((Arithmetic.FP32, 1.0),))  # fmt: skip
    steps = tuple(
        Step(str(number), each, (), (), torch_candidate(each) if each is PROBLEM else None, Interval(1.0, 1.0, 1.0))
        for number, each in enumerate(OPERATIONS)
    )
    plan = Assignment({}, steps, (), (), {}, {}, {}, 1.0)
    assert bound_us(plan, device) == pytest.approx(max(FLOPS, BYTES / bandwidth) + FOREIGN_BYTES / bandwidth)
    assert bound_us(plan, replace(device, bandwidth_bytes_per_us=None)) is None
