"""cuDNN's engines for int8 and fp8, planned for devices that need not be here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from convwright.backends.cudnn.backend import Cudnn
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.attributes import Attribute
from convwright.backends.cudnn.graph.problem import UID
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic
from convwright.core.limits import limits
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import names, profile
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.find import find

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

SIZES = "mb2ic64ih28oc64kh3ph1"


def offers(text: str, device: str = "h200") -> list[Offer]:
    return list(graph.candidates(ConvProblem.parse(text), profile(device), Policy()))


def planned(text: str, device: str = "h200") -> list[Candidate]:
    return [offer for offer in offers(text, device) if isinstance(offer, Candidate)]


def reasons(text: str, device: str = "h200") -> list[str]:
    return [o.reason for o in offers(text, device) if isinstance(o, Refusal) and o.id == graph.REFUSAL_ID]


@pytest.mark.parametrize("device", names())
@pytest.mark.parametrize("stored", ["fp32", "int8"])
@pytest.mark.parametrize("epilogue", ["none", "bias", "relu", "bias+relu", "residual+bias+relu"])
def test_every_device_has_engines_for_int8(device: str, stored: str, epilogue: str) -> None:
    candidates = planned(f"{SIZES} dt:int8:int8:{stored} tag:nhwc ep:{epilogue}", device)
    assert candidates
    assert {candidate.arithmetic for candidate in candidates} == {Arithmetic.INT8}
    assert all(isinstance(candidate.workspace_bytes, int) for candidate in candidates)


def test_more_engines_store_int8_where_channels_are_multiples_of_16() -> None:
    counts = {
        channels: len(planned(f"mb2ic{channels}ih28oc{channels}kh3ph1 dt:int8:int8:int8 tag:nhwc"))
        for channels in (20, 64)
    }
    assert counts[64] > counts[20] > 0


@pytest.mark.parametrize(
    "text",
    [
        f"{SIZES} dt:int8",
        "mb2ic3ih28oc10kh3ph1 dt:int8 tag:nhwc",
        "mb4ic64iw100oc64kw3pw1 dt:int8 tag:nhwc",
        "mb1ic16id6ih7iw8oc16kd3kh3kw3pd1ph1pw1 dt:int8 tag:nhwc",
        "mb2ic64ih28oc64kh3ph2dh1sh2 dt:int8:int8:int8 tag:nhwc",
    ],
)
def test_other_forms_of_int8(text: str) -> None:
    candidates = planned(text)
    assert [candidate.algorithm for candidate in candidates if candidate.algorithm == "engine-0"] or reasons(text)


def graph_of(text: str) -> dict[str, Any]:
    """What cuDNN was told, as it writes that down."""
    plan = graph.finalized(planned(text)[0], profile("h200"))
    found: dict[str, Any] = json.loads(plan.text(Attribute.PLAN_JSON))["operationGraph"]
    return found


def test_sums_of_int8_are_kept_in_int32_and_what_is_added_is_added_in_fp32() -> None:
    (convolution,) = graph_of(f"{SIZES} dt:int8 tag:nhwc")["nodes"]
    assert convolution["mathPrec"] == "CUDNN_DATA_INT32"
    fused = graph_of(f"{SIZES} dt:int8:int8:int8 tag:nhwc ep:residual+bias+relu")
    kinds = {tensor["name"]: tensor["dataType"].removeprefix("CUDNN_DATA_") for tensor in fused["tensors"]}
    names = {role: str(UID[role]) for role in (Role.X, Role.W, Role.Y, Role.RESIDUAL, Role.BIAS)}
    assert {role: kinds[name] for role, name in names.items()} == {
        Role.X: "INT8", Role.W: "INT8", Role.Y: "INT8", Role.RESIDUAL: "INT8", Role.BIAS: "FLOAT"
    }  # fmt: skip
    between = [kinds[name] for name in sorted(kinds.keys() - names.values())]
    assert between == ["INT32", "FLOAT", "FLOAT"]
    assert [node["mathPrec"].removeprefix("CUDNN_DATA_") for node in fused["nodes"]] == ["INT32", *["FLOAT"] * 3]


@pytest.mark.parametrize(
    "text", ["dt:int8:int8:fp16", "dt:int8:int8:bf16 ep:bias", "dt:fp8_e4m3", "dt:fp8_e5m2:fp8_e5m2:bf16"]
)
@pytest.mark.parametrize("device", ["h200", "b200", "l4"])
def test_what_is_compiled_at_run_time_is_refused_elsewhere_with_that_reason(text: str, device: str) -> None:
    (reason,) = reasons(f"{SIZES} {text} tag:nhwc", device)
    assert "at run time, so NVIDIA" in reason
    assert profile(device).name in reason


@pytest.mark.parametrize("device", ["a100", "t4", "v100"])
def test_a_device_without_fp8_says_so(device: str) -> None:
    assert reasons(f"{SIZES} dt:fp8_e4m3 tag:nhwc", device) == [
        f"{profile(device).name} has no arithmetic for fp8_e4m3"
    ]


def test_the_classic_api_refuses_with_the_reason() -> None:
    problem, device = ConvProblem.parse(f"{SIZES} dt:int8 tag:nhwc"), profile("h200")
    classic = [o for o in Cudnn().candidates(problem, device, Policy()) if "engine" not in o.id]
    assert classic
    assert {o.reason for o in classic if isinstance(o, Refusal)} == {
        "int8 is computed only by engines of cuDNN's graph API"
    }


@pytest.mark.parametrize("device", ["h200", "a100", "t4"])
def test_find_lists_engines_with_their_limits(device: str) -> None:
    problem = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dt:int8:int8:int8 tag:nhwc ep:bias+relu")
    with Store.open(None) as store:
        found = find(problem, profile(device), Policy(), mode=Mode.HEURISTIC, store=store)
    engines = [v.finding.candidate for v in found.verdicts if v.finding.candidate.algorithm.startswith("engine-")]
    assert engines
    bound = limits(engines[0], profile(device))
    peak = profile(device).peak(Arithmetic.INT8)
    assert peak is not None
    assert bound.arithmetic_us == pytest.approx(problem.flops / peak)
    assert bound.bytes_us == pytest.approx(problem.bytes / (profile(device).bandwidth_bytes_per_us or 0))
    # One byte an element but for the bias, which is fp32.
    assert problem.bytes == sum(problem.operands[role].numel for role in (Role.X, Role.W, Role.Y)) + 4 * 256
    assert [r.id for r in found.refusals if r.id == "torch/default"]


def test_too_few_channels_are_padded_to_16() -> None:
    problem = ConvProblem.parse("mb2ic20ih28oc20kh3ph1 dt:int8:int8:int8 tag:nhwc")
    with Store.open(None) as store:
        found = find(problem, profile("h200"), Policy(), mode=Mode.HEURISTIC, store=store)
    ids = [verdict.finding.candidate.id for verdict in found.verdicts]
    assert any(name.startswith("pad-c(16, cudnn/engine-60") for name in ids), ids
