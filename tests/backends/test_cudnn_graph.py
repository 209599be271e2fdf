"""cuDNN's graph API, planned for GPUs that need not be here: an H200, and where it matters an A100 and a T4 as well."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from convwright.backends.cudnn.backend import Cudnn
from convwright.backends.cudnn.classic.operands import objection
from convwright.backends.cudnn.faults import fault_of_compiled
from convwright.backends.cudnn.graph import engine
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.attributes import Attribute, Kind, NumericalNote
from convwright.backends.cudnn.graph.descriptor import Descriptor
from convwright.backends.cudnn.graph.device import target
from convwright.backends.cudnn.graph.engine import workspace_bytes
from convwright.backends.cudnn.graph.tensor import GraphTensor, common_layout
from convwright.backends.cudnn.library import Missing, load
from convwright.backends.cudnn.status import explain
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import may_pass
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout
from convwright.errors import BackendError, Refused
from convwright.tuning.session import named

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

H200 = profile("h200")
on_each_target = pytest.mark.parametrize("device", [H200, profile("a100"), profile("t4")], ids=["h200", "a100", "t4"])
RESNET = "mb32ic256ih14oc256kh3ph1"
SMALL = "mb2ic16ih10oc16kh3ph1"


def planned(text: str, device: DeviceFacts = H200) -> list[Candidate]:
    offers = list(graph.candidates(ConvProblem.parse(text), device, Policy()))
    return [offer for offer in offers if isinstance(offer, Candidate)]


def refusals(text: str, device: DeviceFacts = H200) -> list[Refusal]:
    offers = list(graph.candidates(ConvProblem.parse(text), device, Policy()))
    return [offer for offer in offers if isinstance(offer, Refusal)]


@on_each_target
@pytest.mark.parametrize("text", [f"{RESNET} dt:fp16 tag:nhwc", RESNET])
def test_many_engines_are_listed_each_once(text: str, device: DeviceFacts) -> None:
    candidates = planned(text, device)
    ids = [candidate.id for candidate in candidates]
    assert len(ids) >= 20
    assert len(set(ids)) == len(ids)
    assert all(candidate.backend == "cudnn" and candidate.source is Source.PLANNER for candidate in candidates)
    assert all(isinstance(candidate.workspace_bytes, int) for candidate in candidates)
    assert all(name.startswith("k") for candidate in candidates for name, _ in candidate.config)


@on_each_target
@pytest.mark.parametrize(
    "text",
    [
        f"{RESNET} dt:bf16 tag:nhwc",
        f"{RESNET} dt:fp64",
        *(f"{RESNET} dt:fp16 tag:nhwc dir:{direction}" for direction in ("backward_data", "backward_weight")),
        *(f"{RESNET} dir:{direction}" for direction in ("backward_data", "backward_weight")),
        *(f"{RESNET} dt:fp16 tag:nhwc ep:{ep}" for ep in ("bias", "relu", "bias+relu", "residual+bias+relu")),
        f"{RESNET} ep:bias+relu",
        f"{RESNET} ep:residual",
        "mb4ic64iw100oc64kw3pw1",
        "mb4ic64iw100oc64kw3pw1 dt:fp16 tag:nhwc ep:bias+relu",
        "mb2ic32id8ih14iw14oc32kd3kh3kw3pd1ph1pw1 dt:fp16 tag:nhwc",
        "mb2ic32id8ih14iw14oc32kd3kh3kw3pd1ph1pw1 dir:backward_weight",
        "g32mb2ic128ih14oc128kh3ph1 dt:fp16 tag:nhwc",
        "g128mb2ic128ih14oc128kh3ph1",
        "mb1ic8ih9oc8oh9kh3ph0",
        f"{RESNET} flip:1",
        f"{RESNET} tag:x=100352/196/14/1,w=nchw,y=nchw",
    ],
)
def test_every_form_of_convolution_is_planned(text: str, device: DeviceFacts) -> None:
    if "bf16" in text and not device.peak(Arithmetic.BF16_ACC32):
        assert planned(text, device) == []
    else:
        assert len(planned(text, device)) >= 3


def test_padding_may_differ_before_and_after() -> None:
    candidate = planned("mb1ic8ih9oc8oh9kh3ph0")[0]
    node = json.loads(graph.finalized(candidate, H200).text(Attribute.PLAN_JSON))["operationGraph"]["nodes"][0]
    assert (node["pad_lower"], node["pad_upper"]) == ([0, 0], [2, 2])


def test_tensor_cores_on_fp32_are_called_tf32() -> None:
    named = {candidate.algorithm: candidate.arithmetic for candidate in planned(RESNET)}
    assert set(named.values()) == {Arithmetic.TF32, Arithmetic.FP32, Arithmetic.FP16_ACC32}
    # The oldest engine of all multiplies in fp32; 67 is the planner's first choice, three times too fast for that.
    assert named["engine-0"] is Arithmetic.FP32
    assert named["engine-67"] is Arithmetic.TF32


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(DType.FP16, Arithmetic.FP16_ACC32), (DType.BF16, Arithmetic.BF16_ACC32), (DType.FP64, Arithmetic.FP64)],
)
def test_other_dtypes_have_one_arithmetic(dtype: DType, expected: Arithmetic) -> None:
    assert {candidate.arithmetic for candidate in planned(f"{RESNET} dt:{dtype} tag:nhwc")} == {expected}


def test_inputs_that_are_converted_are_called_fp16() -> None:
    notes = frozenset({NumericalNote.TENSOR_CORE, NumericalNote.DOWN_CONVERT_INPUTS})
    assert graph.arithmetic(DType.FP32, notes) is Arithmetic.FP16_ACC32
    assert graph.arithmetic(DType.BF16, notes) is Arithmetic.BF16_ACC32


def test_engines_that_round_partial_sums_say_so() -> None:
    rounding = {
        each.algorithm for each in planned(f"{RESNET} dt:fp16 dir:backward_weight tag:nhwc") if each.rounds_sums
    }
    assert {"engine-24", "engine-47"} <= rounding  # of which the latter was seen to err 8 times as much as PyTorch
    assert "engine-65" not in rounding
    assert not any(each.rounds_sums for each in planned(f"{RESNET} dt:fp16 tag:nhwc"))


@on_each_target
def test_determinism_is_known(device: DeviceFacts) -> None:
    assert all(candidate.deterministic for candidate in planned(RESNET, device))
    for direction in ("backward_data", "backward_weight"):
        assert {candidate.deterministic for candidate in planned(f"{RESNET} dir:{direction}", device)} == {True, False}


@on_each_target
def test_lower_alignment_leaves_fewer_engines(device: DeviceFacts) -> None:
    all_of_them = len(planned(f"{RESNET} dt:fp16 tag:nhwc", device))
    assert 0 < len(planned(f"{RESNET} dt:fp16 tag:x=nhwc@2,w=nhwc,y=nhwc", device)) < all_of_them


def test_every_engine_is_listed_or_refused_in_cudnns_words() -> None:
    offers = list(graph.candidates(ConvProblem.parse(RESNET), H200, Policy()))
    numbers = {int(re.sub(r"cudnn/engine-(\d+).*", r"\1", offer.id)) for offer in offers}
    assert numbers == set(range(81))  # of cuDNN 9.19, for a convolution alone
    reasons = {offer.reason for offer in offers if isinstance(offer, Refusal)}
    assert "cuDNN does not support this architecture (status 3007)" in reasons
    assert all(reason.startswith("cuDNN ") for reason in reasons)


def test_an_engine_is_found_by_its_number_and_any_knobs() -> None:
    problem = ConvProblem.parse(RESNET)
    listed = {candidate.id for candidate in planned(RESNET)}
    unlisted = "cudnn/engine-28[k2=1,k3=0]"
    assert unlisted not in listed
    for name in (unlisted, "cudnn/engine-28[k3=0,k2=1]", "cudnn/engine-28[k2=1]"):
        candidate = named(name, problem, H200, Policy())
        assert candidate.algorithm == "engine-28"
        assert candidate.arithmetic is Arithmetic.FP32
    assert named("cudnn/engine-70", problem, H200, Policy()).id in listed
    with pytest.raises(Refused, match=r"cudnn/engine-28\[k2=99\] cannot compute .*: cuDNN does not support"):
        named("cudnn/engine-28[k2=99]", problem, H200, Policy())
    with pytest.raises(Refused, match=r"cudnn/engine-3 cannot compute .*: cuDNN does not support this"):
        named("cudnn/engine-3", problem, H200, Policy())
    with pytest.raises(
        Refused, match=r"cudnn/engine-9999 cannot compute .*: cuDNN's engines for this are numbered 0 to 80"
    ):
        named("cudnn/engine-9999", problem, H200, Policy())


def test_knobs_are_turned_one_by_one_and_two_by_two() -> None:
    start = next(c for c in planned(RESNET) if c.id == "cudnn/engine-70[k2=2,k18=0]")
    near = list(graph.variants(start, H200, lambda: True))
    assert {candidate.id for candidate in near} >= {"cudnn/engine-70[k2=4,k18=0]", "cudnn/engine-70[k2=12,k18=1]"}
    turned = [len(set(candidate.config) - set(start.config)) for candidate in near]
    assert turned == sorted(turned)
    assert set(turned) <= {1, 2}
    assert all(isinstance(graph.finalized(candidate, H200), Descriptor) for candidate in near)


def test_a_pointwise_filter_is_seen_in_the_layout_of_its_input() -> None:
    problem = ConvProblem.parse("mb2ic16ih8oc32kh1 dt:fp16 tag:nhwc")
    assert problem.w.layout is Layout.NCHW
    assert GraphTensor.of(problem.w, common_layout(problem)).strides == (16, 1, 16, 16)
    assert common_layout(ConvProblem.parse("mb2ic16ih8oc32kh1")) is Layout.NCHW


@pytest.mark.slow
def test_listing_is_the_same_in_every_process() -> None:
    program = (
        "from convwright.backends.cudnn.graph import listing as graph; from convwright.core.policy import Policy;"
        "from convwright.core.problem import ConvProblem; from convwright.core.profiles import profile;"
        f"offers = graph.candidates(ConvProblem.parse('{RESNET}'), profile('h200'), Policy());"
        "print(*((offer.id, offer.workspace_bytes) for offer in offers if hasattr(offer, 'config')), sep='\\n')"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True) for _ in range(2)]
    assert runs[0].returncode == 0, runs[0].stderr
    here = [str((candidate.id, candidate.workspace_bytes)) for candidate in planned(RESNET)]
    assert len(here) > 40
    assert runs[0].stdout.split("\n")[:-1] == runs[1].stdout.split("\n")[:-1] == here


def test_a_device_without_tf32_that_is_planned_for_first_takes_it_from_no_other() -> None:
    program = (
        "from convwright.backends.cudnn.graph import listing as graph; from convwright.core.policy import Policy;"
        "from convwright.core.problem import ConvProblem; from convwright.core.profiles import profile;"
        "plan = lambda text, name: [*graph.candidates(ConvProblem.parse(text), profile(name), Policy())];"
        f"plan('{RESNET} dt:fp16 tag:nhwc ep:bias+relu', 't4');"
        f"print(sum(offer.arithmetic == 'tf32' for offer in plan('{RESNET}', 'a100') if hasattr(offer, 'config')))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert int(run.stdout) > 5, run.stderr


def test_planning_again_gives_the_same() -> None:
    first = planned(SMALL)
    graph.lasting_offers.cache_clear()
    assert planned(SMALL) == first


@pytest.mark.parametrize("asked", ["target_of", "proposed_engines", "execution_plan"])
@pytest.mark.parametrize("status", [1001, 4003, 4004])
def test_what_has_no_memory_is_refused_for_this_once(asked: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise BackendError(explain(status))

    graph.lasting_offers.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(graph, asked, none)
        for _ in range(2):
            short = refusals(SMALL)
            assert {refusal.reason for refusal in short if may_pass(refusal)} == {explain(status)}
            assert short[0].id == graph.REFUSAL_ID or asked == "execution_plan"
    assert len(planned(SMALL)) > 5
    assert not any(map(may_pass, refusals(SMALL)))
    monkeypatch.setattr(graph, asked, none)
    assert len(planned(SMALL)) > 5  # which are kept


def test_a_heuristic_without_memory_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(graph: Descriptor, device: Any, mode: int) -> list[Any]:
        if mode == engine._MODE_A:
            raise BackendError(explain(4004))
        return []

    monkeypatch.setattr(engine, "_ask", ask)
    graph.lasting_offers.cache_clear()
    short = refusals(SMALL)
    assert short[0] == Refusal(graph.REFUSAL_ID, explain(4004))
    assert planned(SMALL)  # what needs no heuristic


@pytest.mark.parametrize("status", [1002, 1008, 2006, 3001, 3010, 4000, 4001, 4002])
def test_what_cudnn_does_not_support_is_no_want_of_memory(status: int) -> None:
    assert not may_pass(Refusal("an engine", explain(status)))


@on_each_target
@pytest.mark.parametrize("text", [RESNET, f"{RESNET} dt:fp16 tag:nhwc ep:bias+relu", f"{SMALL} dir:backward_weight"])
def test_a_remembered_candidate_is_finalized_without_planning(text: str, device: DeviceFacts) -> None:
    for candidate in planned(text, device):
        plan = graph.finalized(candidate, device)
        engine = json.loads(plan.text(Attribute.PLAN_JSON))["engine"]
        assert f"engine-{engine['engineId']}" == candidate.algorithm
        # A knob left to the engine is written as -1.
        chosen = sorted(value for value in engine.get("knobChoices", {}).values() if value != -1)
        assert chosen == sorted(value for _, value in candidate.config if value != -1)
        assert workspace_bytes(plan) == candidate.workspace_bytes


@on_each_target
def test_a_plan_survives_its_json(device: DeviceFacts) -> None:
    plan = graph.finalized(planned(SMALL, device)[0], device)
    written = plan.text(Attribute.PLAN_JSON)
    read = target(device).of_plan(Descriptor(Kind.EXECUTION_PLAN))
    assert read.set_text(Attribute.PLAN_JSON, written).finalize().text(Attribute.PLAN_JSON) == written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mb0ic8ih9oc8kh3", "cuDNN has no descriptors for empty tensors"),
        ("mb2ic16ih14oc16kh3ph1 dt:fp32 tag:x=nchw@2,w=nchw,y=nchw", "ptrAlignment"),
    ],
)
def test_a_graph_that_cudnn_refuses_is_one_refusal_in_words(text: str, words: str) -> None:
    (refusal,) = refusals(text)
    assert refusal.id == "cudnn/graph"
    assert words in refusal.reason
    assert not planned(text)


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_an_empty_batch_is_refused_in_the_words_of_the_classic_api(direction: str) -> None:
    problem = ConvProblem.parse(f"mb0ic64ih56oc64kh3ph1 dir:{direction}")
    assert refusals(problem.key) == [Refusal("cudnn/graph", str(objection(problem)))]
    with pytest.raises(Refused, match="cuDNN has no descriptors for empty tensors"):
        named("cudnn/engine-0", problem, H200, Policy())


def test_devices_that_cannot_be_planned_for_are_refused_in_words() -> None:
    unknown = replace(H200, name="Some GPU", properties_json=None)
    assert "properties are unknown" in refusals(SMALL, unknown)[0].reason
    assert "NVIDIA" in refusals(SMALL, DeviceFacts("A CPU", "cpu", "x86_64"))[0].reason


def test_an_engine_that_does_not_exist_is_refused_by_cudnn() -> None:
    with pytest.raises(BackendError, match="status"):
        graph.finalized(replace(planned(SMALL)[0], algorithm="engine-9999"), H200)


def test_a_device_elsewhere_cannot_run() -> None:
    with pytest.raises(Refused, match="not in this machine"):
        graph.build(planned(SMALL)[0], H200)


@on_each_target
@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_the_list_is_that_of_nvidias_front_end(dtype: str, tag: str, device: DeviceFacts) -> None:
    frontend = pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    problem = ConvProblem.parse(f"{RESNET} dt:{dtype} tag:{tag}")
    kind = {"fp32": frontend.data_type.FLOAT, "fp16": frontend.data_type.HALF}[dtype]
    theirs = frontend.pygraph(
        io_data_type=kind,
        intermediate_data_type=frontend.data_type.FLOAT,
        compute_data_type=frontend.data_type.FLOAT,
        device_property=frontend.create_device_properties(device.properties_json),
    )
    x, w = (theirs.tensor(dim=list(spec.shape), stride=list(spec.strides)) for spec in (problem.x, problem.w))
    y = theirs.conv_fprop(x, w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y.set_output(True).set_data_type(kind).set_dim(list(problem.y.shape)).set_stride(list(problem.y.strides))
    theirs.validate()
    theirs.build_operation_graph()
    theirs.create_execution_plans([frontend.heur_mode.A, frontend.heur_mode.B, frontend.heur_mode.FALLBACK])
    names = dict.fromkeys(theirs.get_plan_name_at_index(i) for i in range(theirs.get_execution_plan_count()))
    ours = ["_".join([candidate.algorithm, *(f"{k}={v}" for k, v in candidate.config)]) for candidate in planned(
        problem.key, device
    )]  # fmt: skip
    assert ours[: len(names)] == [name.replace("eng", "engine-", 1) for name in names]
    # What cuDNN has beyond what it proposes comes behind, without knobs.
    assert all("_" not in name for name in ours[len(names) :])


# On an H200 wrong, or a crash of cuDNN's heuristics: an output, or a tap of a weight gradient, reads only padding.
PADDING_ALONE = [
    "ic16ih4iw1oc33kh4kw2ph2pw1dh1 dir:backward_weight",
    "g3mb1ic12oc12iw2ow2kw3sw1pw0dw16 dir:backward_weight",
    "g1mb3ic1oc2ih1iw5oh1ow3kh1kw3sh2sw3ph0pw1dh0dw4 dt:fp32 dir:backward_weight tag:x=nchw,w=nchw,y=nhwc",
    "ic1oc1id3ih4iw2kd1kh1kw11pd1ph0pw5",
    "ic2oc33ih3iw17kh3kw2sh2sw1pw20dw16 dir:backward_data",
]


@pytest.mark.parametrize("text", PADDING_ALONE)
def test_cudnn_is_asked_for_nothing_that_meets_padding_alone(text: str) -> None:
    problem = ConvProblem.parse(text)
    (refusal,) = Cudnn().candidates(problem, H200, Policy())
    assert isinstance(refusal, Refusal)
    assert "reads only padding" in refusal.reason
    asked = Cudnn().configured("cudnn/engine-1", problem, H200, Policy())
    assert isinstance(asked, Refusal)
    assert not planned(text)


def test_steps_beyond_32_bits_are_refused() -> None:
    (refusal,) = Cudnn().candidates(ConvProblem.parse("ic17iw5oc17kw1sw2147483649 dir:backward_data"), H200, Policy())
    assert isinstance(refusal, Refusal)
    assert "of 32 bits, got 2,147,483,649" in refusal.reason


def test_what_is_compiled_at_run_time_is_not_asked_for_taps_that_meet_padding_alone() -> None:
    idle, usual = ConvProblem.parse("ic17iw7oc33kw11sw2pw82dw16"), ConvProblem.parse("ic17iw70oc33kw3pw1")
    assert fault_of_compiled(idle) == "computes wrong results where a tap reads only padding"
    assert fault_of_compiled(usual) is None


@pytest.mark.parametrize(("outputs", "fault"), [(9, True), (24, False)])
def test_groups_of_few_outputs_are_nothing_for_engines_that_are_compiled(outputs: int, fault: bool) -> None:
    problem = ConvProblem.parse(f"g3mb3ic51oc{outputs}ih33iw4kh2kw1 dt:fp16 tag:nhwc ep:bias+gelu")
    assert (fault_of_compiled(problem) is not None) is fault


@pytest.mark.parametrize("text", ["ic5oc16ih1iw33kh1kw7sw5 rw:6 dt:fp16", "ic4oc2ih4iw3kh5kw3ph1pw2 rh:4 tag:nhwc"])
def test_cudnn_is_asked_for_no_weight_gradient_with_uneven_padding(text: str) -> None:
    (refusal,) = Cudnn().candidates(ConvProblem.parse(f"{text} dir:backward_weight"), H200, Policy())
    assert isinstance(refusal, Refusal)
    assert "uneven padding" in refusal.reason
    assert planned(text)


def test_an_image_of_one_pixel_is_no_reason_to_do_without_cudnn() -> None:
    assert planned("mb2ic8ih1oc8kh3ph1")
    assert planned("mb2ic8ih1oc8kh3ph1 dir:backward_data")


def test_where_every_tap_meets_the_input_all_engines_are_offered() -> None:
    offered = {candidate.id.partition("[")[0] for candidate in planned("ic16ih8oc32kh3ph1 dir:backward_weight")}
    assert {"cudnn/engine-1", "cudnn/engine-20"} & offered
