"""What is suggested for single layers, from findings made by hand and from problems as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convwright.advising import whatif
from convwright.advising.advice import LayerAdvice
from convwright.advising.suggestion import Kind
from convwright.core.direction import Direction
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.finding import Finding
from convwright.core.policy import Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.eager.calls.posed import Wanted
from convwright.engine.capture.distinct import Posed, distinct
from convwright.engine.capture.layers import LayerCall
from convwright.engine.capture.trails import Follower
from convwright.settings import Mode
from convwright.tuning.choose import choose
from convwright.tuning.findings import Findings
from tuning.made import CPU, finding

PROBLEM = ConvProblem.parse("mb2ic4ih8oc6kh3ph1")
TORCH = finding("torch/default", 100.0)


def call(*behind: str, bias: bool = False, name: str = "conv", calls: int = 1) -> LayerCall:
    follows = tuple(Follower(op, name) for op in behind)
    return LayerCall(name, PROBLEM, bias, calls, follows=follows)


def found(*rows: Finding, policy: Policy = Policy()) -> Findings:
    return Findings(PROBLEM, CPU, policy, Mode.QUICK, choose(rows, TORCH, policy), (), TORCH)


def layer(*rows: Finding, calls: int = 3, policy: Policy = Policy()) -> LayerAdvice:
    return LayerAdvice(Posed(PROBLEM, (call(calls=calls),)), found(TORCH, *rows, policy=policy))


def test_a_weight_that_may_stay_packed() -> None:
    packed = finding("triton/packed", 50.0, prepare_us=80.0)
    (suggestion,) = whatif.with_constant_weights([layer(packed)])
    assert (suggestion.kind, suggestion.layers) == (Kind.INFERENCE, ("conv",))
    assert (suggestion.before_us, suggestion.after_us) == (300.0, 150.0)
    assert suggestion.gain_us == 150.0
    # For any layer, and not for calls of one function.
    assert suggestion.how == 'with cw.enabled(policy=cw.Policy(weights="constant")): y = model(x)'
    assert whatif.with_constant_weights([layer(packed, policy=Policy(weights=Weights.CONSTANT))]) == []
    assert whatif.with_constant_weights([layer(finding("triton/plain", 50.0))]) == []


def test_a_weight_that_is_made_in_each_run_is_packed_in_each() -> None:
    found_ = found(TORCH, finding("triton/packed", 50.0, prepare_us=80.0))
    made = replace(call(name="made", calls=5), own_weight=False)
    assert whatif.with_constant_weights([LayerAdvice(Posed(PROBLEM, (made,)), found_)]) == []
    (suggestion,) = whatif.with_constant_weights([LayerAdvice(Posed(PROBLEM, (made, call(calls=2))), found_)])
    assert (suggestion.layers, suggestion.before_us, suggestion.after_us) == (("conv",), 200.0, 100.0)


EPILOGUES = [
    (call("relu"), Epilogue(activation=Activation.RELU), False),
    (call("silu", bias=True), Epilogue(bias=True, activation=Activation.SILU), False),
    (call("add", "relu", bias=True), Epilogue(True, True, Activation.RELU), False),
    (call("batch_norm", "relu"), Epilogue(bias=True, activation=Activation.RELU), True),
    (call("batch_norm", "add"), Epilogue(True, True), True),
]
NOT_FUSIBLE = [call(), call("batch_norm"), call("max_pool2d"), call("none"), call("add with a later one", "relu")]


@pytest.mark.parametrize(("layer_call", "epilogue", "folded"), EPILOGUES, ids=str)
def test_what_could_be_fused(layer_call: LayerCall, epilogue: Epilogue, folded: bool) -> None:
    posed = Posed(PROBLEM, (layer_call,))
    found = {replace(PROBLEM, epilogue=epilogue): whatif.Fusible(posed, folded)}
    assert whatif.fusible([posed], training=False) == found
    assert whatif.fusible([posed], training=True) == ({} if folded else found)


@pytest.mark.parametrize("layer_call", NOT_FUSIBLE, ids=str)
def test_what_could_not(layer_call: LayerCall) -> None:
    assert whatif.fusible([Posed(PROBLEM, (layer_call,))], training=False) == {}


def test_layers_with_different_followers_are_not_fused_as_one_problem() -> None:
    assert whatif.fusible([Posed(PROBLEM, (call("relu"), call("silu")))], training=False) == {}


def test_fusing_gains_only_what_the_layer_alone_does_not() -> None:
    alone = layer(finding("triton/plain", 80.0))
    source = whatif.Fusible(alone.posed, False)
    fused = found(finding("torch/default", 130.0), finding("triton/fused", 90.0))
    fused = replace(fused, baseline=next(v.finding for v in fused.verdicts if v.finding.candidate == TORCH.candidate))
    (suggestion,) = whatif.fused([(alone, source, fused)])
    # PyTorch's two calls take 130; the better convolution leaves 110 of them, the fused kernel 90.
    assert suggestion.kind is Kind.EXACT
    assert (suggestion.before_us, suggestion.after_us) == (3 * 110.0, 3 * 90.0)
    assert whatif.fused([(layer(finding("triton/plain", 60.0)), source, fused)]) == []
    (folded,) = whatif.fused([(alone, whatif.Fusible(alone.posed, True), fused)])
    assert folded.kind is Kind.INFERENCE


@pytest.mark.parametrize(("text", "function"), [("ic4iw8oc6kw3", "conv1d"), ("ic4id8oc6kd3", "conv3d")])
def test_fusing_is_done_by_the_function_for_so_many_dimensions(text: str, function: str) -> None:
    problem = ConvProblem.parse(text)
    posed = Posed(problem, (replace(call(), problem=problem),))
    rows = found(finding("torch/default", 130.0), finding("triton/fused", 90.0))
    both = replace(rows, baseline=next(v.finding for v in rows.verdicts if v.finding.candidate == TORCH.candidate))
    alone = LayerAdvice(posed, found(TORCH))
    (suggestion,) = whatif.fused([(alone, whatif.Fusible(posed, False), both)])
    assert suggestion.how.startswith(f"cw.{function}(x, w, b, ")


WIDENED = [
    ("mb2ic30ih8oc30kh3", 8, "mb2ic32ih8oc32kh3"),
    ("ic3ih8oc30kh3", 8, "ic3ih8oc32kh3"),
    ("ic12ih8oc4kh3 dt:fp16 tag:nhwc", 8, "ic16ih8oc4kh3 dt:fp16 tag:nhwc"),
    ("ic32ih8oc64kh3", 8, None),
    ("g5ic10ih8oc10kh3", 8, None),
    ("ic3ih8oc4kh3", 8, None),
]


@pytest.mark.parametrize(("before", "lanes", "after"), WIDENED, ids=[before for before, _, _ in WIDENED])
def test_channels_are_filled_up(before: str, lanes: int, after: str | None) -> None:
    expected = None if after is None else ConvProblem.parse(after)
    assert whatif.widened(ConvProblem.parse(before), lanes) == expected


def test_a_wider_layer_is_measured_beside_the_layer() -> None:
    problem = ConvProblem.parse("ic6ih6oc6kh3")
    posed = Posed(problem, (replace(call(), problem=problem),))
    own = replace(TORCH, candidate=replace(TORCH.candidate, problem=problem))
    advice = LayerAdvice(posed, replace(found(TORCH), problem=problem, baseline=own))
    suggestions = whatif.fitting_channels(advice, CPU, 50_000.0)
    # Whether it is no slower is the machine's to say; what is suggested was measured.
    for suggestion in suggestions:
        assert suggestion.kind is Kind.RETRAINING
        assert suggestion.what.startswith("6 → ")
        assert suggestion.before_us > 0
        assert suggestion.after_us > 0


def test_the_other_layout_is_named_as_pytorch_names_it() -> None:
    gains = []
    for text in ("ic3ih8oc4kh3", "ic3id8oc4kd3", "ic3id8oc4kd3 tag:nhwc"):
        advice = LayerAdvice(Posed(ConvProblem.parse(text), (call(),)), found(TORCH))
        gains.append(whatif.Gain(advice, 2.0, 1.0))
    words = [suggestion.how.partition(",")[0] for suggestion in whatif.in_other_layout(gains)]
    assert words == [
        f"weight.to(memory_format=torch.{word})" for word in ("contiguous_format", "channels_last", "channels_last_3d")
    ]


def test_distinct_problems_come_with_the_most_arithmetic_first() -> None:
    large, small = ConvProblem.parse("ic8ih16oc8kh3"), ConvProblem.parse("ic8ih8oc8kh3")
    layers = [replace(call(name="a"), problem=small), replace(call(name="b"), problem=large, wanted=Wanted(w=True))]
    layers.append(replace(call(name="c"), problem=small))
    found_ = distinct(layers)
    assert [each.names for each in found_] == [("b",), ("b",), ("a", "c")]
    assert [each.is_gradient for each in found_] == [False, True, False]
    assert found_[1].problem.direction is Direction.BACKWARD_WEIGHT
