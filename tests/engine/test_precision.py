"""Networks in other types than their model's: what they store, how much they lose, and what is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convwright import flags, torch_api
from convwright.core.dtype import Arithmetic, DType
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.loaded import load
from convwright.engine.network import Network
from convwright.engine.optimize import optimize
from convwright.engine.passes.listed import passed
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planes import Planes
from convwright.engine.planning.planned import Planner
from convwright.engine.planning.searched_times import SearchedTimes
from convwright.engine.precision.asked import Asked
from convwright.engine.precision.lowering import Lowering, Precision, layers, lowered
from convwright.engine.precision.mixed import Mixed
from convwright.engine.precision.roundings import rounded_outputs
from convwright.engine.predict import predict
from convwright.engine.reference import reference
from convwright.errors import BadInput, Refused
from convwright.graph.operations import Foreign
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tensors import torch_dtype
from convwright.tuning.session import using
from engine.net import Net
from engine.random_network import RandomNetwork

CPU = device_facts("cpu")
X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))
SIXTEEN = [(Precision.FP16, DType.FP16), (Precision.BF16, DType.BF16)]


def network(model: nn.Module, *inputs: Tensor) -> Network:
    return passed(exported(model.eval(), inputs, inputs).network).network


def flat(outputs: Any) -> list[Tensor]:
    return torch_api.flatten(outputs)[0]


def engine(model: nn.Module, precision: str, **asked: Any) -> Engine:
    return optimize(model.eval(), X, mode=Mode.HEURISTIC, precision=precision, **asked)


def errors(got: Any, model: nn.Module, x: Tensor = X) -> list[float]:
    with torch.no_grad():
        exact = flat(copy.deepcopy(model).double()(x.double()))
    pairs = zip(flat(got), exact, strict=True)
    return [float((mine - right).norm() / (right.norm() or 1.0)) for mine, right in pairs]


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)
    return nn.Sequential(*layers).eval()


# The graph in other types.


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("seed", range(3))
def test_a_graph_in_another_type_loses_what_rounding_explains(seed: int) -> None:
    own = network(RandomNetwork(seed), X)
    exact = reference(own, [X])
    for precision, dtype in SIXTEEN:
        made = lowered(own, Lowering.uniform(own.graph, precision).dtypes).network
        ends = [[each.graph.values[name] for name in each.graph.outputs] for each in (own, made)]
        assert ends[0] == ends[1]
        weights, all_results = reference(made, [X]), rounded_outputs(made, [X])
        for got in (weights, all_results):
            for each, right in zip(got, exact, strict=True):
                assert (each - right).norm() <= 8 * dtype.roundoff * right.norm()
        assert any((each - right).norm() > 0.1 * dtype.roundoff * right.norm()
                   for each, right in zip(all_results, exact, strict=True))  # fmt: skip


def test_expressions_and_pads_need_no_casts() -> None:
    conv = nn.Conv2d(4, 4, 3, padding=1)
    model = Net(lambda self, x: (nn.functional.pad(self.conv(x * 2), (0, 1)) + 1).tanh(), conv=conv)
    own = network(model, X)
    changed = lowered(own, Lowering.uniform(own.graph, Precision.FP16).dtypes)
    assert [node.operation.kind for node in changed.network.graph.nodes] == [
        node.operation.kind for node in own.graph.nodes
    ]
    assert not any("is cast" in sentence for sentence in changed.sentences if "conv." not in sentence)


def test_what_a_model_casts_itself_is_not_cast_twice() -> None:
    model = Net(lambda self, x: self.conv(x.half().relu().float()), conv=nn.Conv2d(4, 4, 1))
    own = network(model, X)
    assert [node.operation.kind for node in own.graph.nodes] == ["copy", "pointwise", "copy", "conv"]
    made = lowered(own, Lowering.uniform(own.graph, Precision.FP16).dtypes).network
    assert [node.operation.kind for node in made.graph.nodes] == ["copy", "pointwise", "conv", "copy"]


def test_a_value_is_cast_once_for_all_who_read_it() -> None:
    model = Net(lambda self, x: (self.a(x), self.b(x)), a=nn.Conv2d(4, 4, 1), b=nn.Conv2d(4, 8, 3))
    own = network(model, X)
    made = lowered(own, {"a": DType.FP16, "b": DType.FP16}).network
    assert [node.name for node in made.graph.nodes if own.graph.inputs[0] in node.sources] == [
        f"{own.graph.inputs[0]} as fp16"
    ]
    nothing = lowered(own, {})
    assert nothing.network.graph == own.graph
    assert nothing.sentences == ()


def test_an_operator_of_pytorchs_that_takes_no_other_type_keeps_its_own() -> None:
    model = Net(lambda self, x: torch.cumsum(x, 1, dtype=torch.float32) + torch.cumsum(x, 2))
    own = network(model, X)
    made = lowered(own, Lowering.uniform(own.graph, Precision.FP16).dtypes).network
    stored = [made.graph.values[node.writes[0]].dtype for node in made.graph.nodes
              if isinstance(node.operation, Foreign)]  # fmt: skip
    assert stored == [DType.FP32, DType.FP16]


# Engines.


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(("precision", "dtype"), SIXTEEN)
def test_an_engine_in_16_bits_takes_new_weights_and_is_saved(
    seed: int, precision: Precision, dtype: DType, tmp_path: Path
) -> None:
    model, other = RandomNetwork(seed), RandomNetwork(seed)
    made = engine(model, precision)
    got = flat(made(X))
    assert all(each.dtype is torch.float32 for each in got)
    assert max(errors(got, model)) <= 16 * dtype.roundoff
    assert max(errors(got, model)) > 1e-5  # it is not fp32
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    made.update(other)
    assert max(errors(made(X), other)) <= 16 * dtype.roundoff
    made.save(tmp_path)
    assert all(map(torch.equal, flat(load(tmp_path, "cpu")(X)), flat(made(X))))
    compared = made.compare(other, X)
    assert compared.first_over is None
    assert max(compared.outputs) == pytest.approx(max(errors(made(X), other)), rel=1e-3)


def test_explain_names_the_type_of_each_step() -> None:
    lines = engine(two_layers(), "bf16").explain().splitlines()
    assert lines[0].split()[:3] == ["step", "runs", "type"]
    types = ("  bf16  ", "  fp32→bf16  ", "  bf16→fp32  ")
    assert [sum(each in line for line in lines) for each in types] == [2, 1, 1]


def test_tf32_changes_nothing_on_a_cpu_but_what_is_allowed() -> None:
    model = two_layers()
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    assert torch.equal(engine(model, "tf32")(X), optimize(model, X, mode=Mode.HEURISTIC)(X))
    assert before == (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)


def test_only_some_layers_may_use_tf32() -> None:
    model = nn.Sequential(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3))
    own = network(model, torch.randn(4, 32, 8, 8))
    with using(None) as store:
        planner = Planner(own, profile("h200"), Policy(), mode=Mode.HEURISTIC, store=store, tf32=("0",))
    steps = planner.assignment(Costs()).steps
    in_tf32 = {Arithmetic.TF32, Arithmetic.SCALED_FP16}
    used = {step.name: step.candidate.arithmetic in in_tf32 for step in steps if step.candidate is not None}
    assert {name: coarse for name, coarse in used.items() if name[0] in "02"} == {"0+1": True, "2": False}


@pytest.mark.parametrize("tf32", [False, True])
def test_where_all_else_errs_too_much_numbers_are_not_split(tf32: bool) -> None:
    own, plan = network(nn.Conv2d(4, 4, 3), X), lambda lowering: None  # which is not called
    with flags.tf32(tf32), flags.matmul_tf32(tf32):
        attempts = [each.policy for each in Asked().attempts(own, (X,), Policy(), profile("h200"), plan)]
    assert [allowed.max_error for allowed in attempts] == [4.0, 2.0, 1.0, 1.0][: len(attempts)]
    splits = [allowed.arithmetic is None or Arithmetic.FP16X3 in allowed.arithmetic for allowed in attempts]
    assert splits == ([True] * 3 if tf32 else [True, True, True, False])
    assert all(allowed.arithmetic is None or Arithmetic.TF32 not in allowed.arithmetic for allowed in attempts)


def test_on_a_cpu_sums_over_an_image_are_kept_in_planes_if_outputs_err_too_much() -> None:
    own, plan = network(nn.Conv2d(4, 4, 3), X), lambda lowering: None  # which is not called
    for device, wanted in ((CPU, [Planes.FREE, *[Planes.SUMS] * 3, Planes.ALL]), (profile("h200"), [Planes.FREE] * 4)):
        with flags.tf32(False):
            assert [each.planes for each in Asked().attempts(own, (X,), Policy(), device, plan)] == wanted


@pytest.mark.parametrize(
    ("planes", "kept"), [(Planes.FREE, "11111"), (Planes.SUMS, "10111"), (Planes.ALL, "10010")], ids=str
)
def test_what_is_computed_in_planes(planes: Planes, kept: str) -> None:
    row = 'pointwise "a - mean(a)" mb2ic8ih8 row:'
    problems = [
        *map(PointwiseProblem.parse, (f"{row}chw groups:2", f"{row}chw groups:2 tag:nhwc", f"{row}c tag:nhwc")),
        ConvProblem.parse("mb2ic4ih8oc4kh3"), ConvProblem.parse("mb2ic4ih8oc4kh3 tag:nhwc"),
    ]  # fmt: skip
    with using(None) as store:
        times = SearchedTimes(CPU, Policy(), Mode.HEURISTIC, store, planes=planes)
        found = "".join(str(int(bool(some))) for _, some in times.of_problems(problems, lambda *_: None))
    assert found == kept


def test_parts_of_a_model_are_in_16_bits() -> None:
    model = Net(lambda self, x: self.net(x if x.sum() > 1e9 else -x), net=two_layers()).eval()
    made = optimize(model, X, mode=Mode.HEURISTIC, partial=True, precision="fp16")
    assert max(errors(made(X), model)) <= 16 * DType.FP16.roundoff


# A budget for the error.


def stored(made: Engine) -> dict[str, DType]:
    """What each layer reads."""
    return {name: step.operation.x.dtype for step in made.assignment.steps  # type: ignore[union-attr]
            if step.operation.kind in ("conv", "linear") for name in step.name.split("+")}  # fmt: skip


def test_more_layers_are_lowered_the_more_error_is_allowed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(6))).eval()
    counts = []
    for allowed in (1e-5, 2.5e-4, 1e-2):
        made = engine(model, "mixed", max_output_error=allowed)
        assert max(errors(made(X), model)) <= allowed
        counts.append(sum(dtype is not DType.FP32 for dtype in stored(made).values()))
    assert counts[0] == 0 < counts[1] < counts[2] == 6


@pytest.mark.parametrize(("cast_us", "types"), [(1.0, {DType.FP16}), (9.0, {DType.FP32})])
def test_casts_count_against_what_layers_save(cast_us: float, types: set[DType]) -> None:
    own, cpu, taken_us = network(two_layers(), X), device_facts("cpu"), {DType.FP32: 6.0, DType.FP16: 2.0}

    def plan(lowering: Lowering) -> Assignment:
        with using(None) as store:
            planner = Planner(lowered(own, lowering.dtypes).network, cpu, Policy(), mode=Mode.HEURISTIC, store=store)
        made = planner.assignment(Costs())
        times = [taken_us[step.operation.x.dtype] if step.operation.kind == "conv" else cast_us  # type: ignore[union-attr]
                 for step in made.steps]  # fmt: skip
        return replace(made.taking(times), modelled_us=sum(times))

    chosen = Mixed(own, [[X]], cpu, plan).within(0.01)
    assert {chosen.dtypes.get(node.name, DType.FP32) for node in layers(own.graph)} == types


def test_what_pytorchs_operators_round_on_their_way_counts() -> None:
    own = network(nn.Sequential(nn.Conv2d(4, 8, 1), nn.Softmax(1)), X)
    for _, dtype in SIXTEEN:
        made = lowered(own, {own.graph.nodes[0].name: dtype}).network
        assert [made.graph.values[name].dtype for name in made.graph.outputs] == [DType.FP32]
        (got,) = rounded_outputs(made, [X])
        assert torch.equal(got, got.to(torch_dtype(dtype)).double())


def test_an_error_that_fp32_has_already_is_refused() -> None:
    with pytest.raises(Refused, match=r"allowed is 1e-09; a larger `max_output_error` allows more"):
        engine(two_layers(), "mixed", max_output_error=1e-9)


def test_every_sample_counts_and_a_layer_without_numbers_in_fp16_is_bf16() -> None:
    model = two_layers()
    assert set(stored(engine(model, "mixed", max_output_error=0.05)).values()) == {DType.FP16}
    made = engine(model, "mixed", max_output_error=0.05, samples=[X, 1e5 * X])
    assert stored(made)["0"] is DType.BF16
    assert max(errors(made(1e5 * X), model, 1e5 * X)) <= 0.05


def test_what_has_no_numbers_in_fp16_is_refused() -> None:
    model = two_layers()
    with torch.no_grad():
        model[0].weight *= 1e6
    with pytest.raises(Refused, match="output 0 is infinite or NaN in fp16, and not in the model"):
        engine(model, "fp16")
    assert max(errors(engine(model, "bf16")(X), model)) < 0.02


@pytest.mark.parametrize(
    ("alias", "precision"),
    [("half", "fp16"), ("float16", "fp16"), (torch.float16, "fp16"), ("bfloat16", "bf16"), (torch.bfloat16, "bf16")],
)
def test_a_precision_has_the_aliases_of_a_dtype(alias: Any, precision: str) -> None:
    assert Precision.parse(alias) is Precision(precision)


def test_an_alias_is_planned_as_the_precision() -> None:
    model = two_layers()
    assert torch.equal(engine(model, torch.bfloat16)(X), engine(model, "bf16")(X))
    predicted = [predict(model, X, device="h200", precision=each) for each in ("half", "fp16")]
    assert predicted[0].to_json() == predicted[1].to_json()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"precision": "fp8"}, "precision must be one of fp16, bf16, tf32, mixed, got 'fp8'"),
        ({"precision": "float32"}, "precision must be one of fp16, bf16, tf32, mixed, got 'float32'"),
        ({"precision": "fp16", "samples": [X]}, "`samples` belongs to precision=\"mixed\", got precision='fp16'"),
        ({"max_output_error": 0.1}, "`max_output_error` belongs to"),
        ({"precision": "mixed", "max_output_error": -1}, "must be a positive number, a relative L2 error, got -1"),
        ({"precision": "mixed", "samples": []}, "`samples` must hold at least one sample"),
        ({"precision": "mixed", "samples": [X, X[:1]]}, r"sample 1 must be torch.float32 \(2, 4, 8, 8\) cpu, like the"),
        ({"precision": "mixed", "partial": True}, "needs the whole model"),
        ({"precision": "tf32", "policy": Policy(arithmetic={"fp32"})}, "both limit the arithmetic: leave out either"),
    ],
)
def test_a_mistake_is_one_sentence(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        optimize(two_layers(), X, mode=Mode.HEURISTIC, **asked)
