"""Plans for devices on which nothing runs."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw
from convwright.core.finding import Interval, KindError, Measurement
from convwright.core.kinds.copy import CopyProblem
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout
from convwright.engine.export.exported import exported
from convwright.engine.network import Network
from convwright.engine.passes.listed import passed
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.forecast_times import Basis, ForecastTimes
from convwright.engine.planning.planned import Planner
from convwright.engine.running.program import plans_of
from convwright.engine.running.shared import Shared
from convwright.engine.running.weights import Weights, nbytes_of
from convwright.graph.operations import NOTHING_RUNS
from convwright.prediction.data_sheet import DATA_SHEET
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.search import resolved
from engine.net import Net
from engine.recorded_times import RecordedTimes, Recorder

H200 = profile("h200")


class Residual(nn.Module):
    """Two convolutions with an input that is added, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.first, self.second = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        x = F.max_pool2d(F.relu(x + self.second(F.relu(self.first(x)))), 2)
        return self.head(x.mean((2, 3)))


def residual(device: str = "cpu", dtype: torch.dtype = torch.float16, batch: int = 64) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    with torch.device(device):
        return Residual().eval().to(dtype), torch.ones(batch, 3, 64, 64, dtype=dtype)


@pytest.fixture(scope="module")
def planned() -> cw.PlannedEngine:
    """A plan of a model whose weights have no numbers, so that nothing can have run."""
    model, x = residual("meta")
    return cw.optimize(model, x, plan_only=True, device="h200", store="none")


def test_a_model_without_numbers_is_planned_as_on_the_device(planned: cw.PlannedEngine) -> None:
    convolutions = [step for step in planned.assignment.steps if isinstance(step.operation, ConvProblem)]
    assert [step.operation.x.layout for step in convolutions] == [Layout.NHWC] * 3
    assert {step.operation.epilogue.residual for step in convolutions} == {True, False}
    assert all(step.candidate is not None for step in convolutions)
    (given, *_) = planned.assignment.steps
    assert isinstance(given.operation, CopyProblem), "the input lies in planes, and convolutions read channels last"
    assert planned.facts == H200


def test_numbers_change_nothing(planned: cw.PlannedEngine) -> None:
    again = cw.optimize(*residual("cpu"), plan_only=True, device="h200", store="none")
    assert again.assignment == planned.assignment
    assert again.time_us == planned.time_us


def test_every_step_says_what_its_time_rests_on(planned: cw.PlannedEngine) -> None:
    for step, basis in zip(planned.assignment.steps, planned.bases, strict=True):
        assert (basis is Basis.NOTHING) == isinstance(step.operation, NOTHING_RUNS)
        if basis in (Basis.PREDICTED, Basis.ROUGH):
            assert 0 < step.time_us.low < step.time_us.value < step.time_us.high < inf
    assert {Basis.PREDICTED, Basis.ROUGH} & set(planned.bases)
    said = planned.explain()
    assert "planned for NVIDIA H200, without running anything" in said
    assert all(step.name in said for step in planned.assignment.steps)


def test_the_total_is_at_least_as_sure_as_all_steps_at_their_worst(planned: cw.PlannedEngine) -> None:
    total, steps = planned.time_us, [step.time_us for step in planned.assignment.steps]
    assert total.value == pytest.approx(sum(each.value for each in steps))
    assert sum(each.low for each in steps) <= total.low < total.value < total.high <= sum(each.high for each in steps)


def test_as_data(planned: cw.PlannedEngine) -> None:
    found = planned.to_json()
    assert found["time_us"]["value"] == planned.time_us.value
    watts, mj = found["power_w"], found["energy_mj"]
    assert 100 < watts["low"] < watts["value"] < watts["high"] < 1500
    assert mj["value"] == pytest.approx(watts["value"] * planned.time_us.value / 1000)
    assert mj["low"] < mj["value"] < mj["high"]
    assert (
        found["memory_bytes"] == sum(found["memory"][name] for name in ("arena_bytes", "weights_bytes")) + 64 * 3 * 8192
    )
    assert [step["name"] for step in found["steps"]] == [step.name for step in planned.assignment.steps]
    assert {step["known"] for step in found["steps"]} <= set(Basis)


def test_a_prediction_has_a_row_for_each_layer(planned: cw.PlannedEngine) -> None:
    found, steps = planned.prediction, planned.assignment.steps
    assert [layer.name for layer in found.layers] == [step.name for step in steps]
    assert found.time_us.value == pytest.approx(sum(each.time_us.value for each in found.layers if each.time_us))
    nothing = [layer for layer in found.layers if layer.known == "nothing runs"]
    assert [(each.runs, each.time_us, each.result_bytes) for each in nothing] == [("view", None, 0)]
    (head,) = (layer for layer in found.layers if layer.name == "head")
    assert head.result_bytes == 64 * 10 * 2
    workspaces = {step.name: step.candidate.workspace_bytes for step in steps if step.candidate}
    assert {each.name: each.workspace_bytes for each in found.layers if each.name in workspaces} == workspaces
    assert [each["name"] for each in found.to_json()["layers"]] == [step.name for step in steps]


def test_a_prediction_prints_its_layers(planned: cw.PlannedEngine) -> None:
    said = str(planned.prediction)
    assert all(step.name in said for step in planned.assignment.steps)
    assert said.splitlines()[0].split()[:3] == ["step", "runs", "type"]
    assert "planned for NVIDIA H200, without running anything: 8 steps" in said
    assert "predicted: " in said
    assert all(step.name in planned.explain() for step in planned.assignment.steps)
    assert repr(planned.prediction).startswith("<NetworkPrediction: 8 layers on NVIDIA H200, ")


def test_a_prediction_without_a_model_says_how_rough_it_is() -> None:
    model, x = residual("cpu", torch.float32)
    found = cw.predict(model, x, store="none")
    assert found.rough_share == pytest.approx(1.0)
    said = str(found)
    assert "all of it is a rough estimate" in said
    factor = max(found.time_us.high / found.time_us.value, found.time_us.value / found.time_us.low)
    assert f"the time of the whole may be wrong by a factor of {factor:.2g}" in said
    assert f"`convwright sample --for 2h` and `convwright learn` on {found.device}" in said


@pytest.mark.parametrize(
    ("what", "example", "option", "instead"),
    [
        (*residual("meta"), "dtype", r"of a network has no option 'dtype': give model\.half\(\) and x\.half\(\)"),
        (*residual("meta"), "padding", "of a network has no option 'padding': its options are device, batch, "),
        ("ic8ih9oc8kh3", None, "dtype", "of a problem has no option 'dtype': write it in the text of the problem"),
    ],
)
def test_an_unknown_option_is_refused_with_what_to_do(what: Any, example: Any, option: str, instead: str) -> None:
    with pytest.raises(TypeError, match=rf"^predict\(\) {instead}"):
        cw.predict(what, example, device="h200", **{option: "fp16"})


def network(dtype: torch.dtype = torch.float16, batch: int = 64) -> Network:
    model, x = residual("cpu", dtype, batch)
    return passed(exported(model, (x,), (x,)).network).network


def test_times_alone_decide_wherever_the_device_is() -> None:
    """A table that was written down gives one plan on a laptop and on the machine with the GPU."""
    source = Recorder(ForecastTimes(H200, Policy(), Store.open(None), DATA_SHEET))
    options: dict[str, Any] = {"mode": Mode.HEURISTIC, "store": Store.open(None)}
    there = replace(H200, torch_name="cuda:0")
    first = Planner(network(), H200, Policy(), times=source, **options).assignment(Costs())
    again = Planner(network(), there, Policy(), times=RecordedTimes(there, source.table), **options).assignment(Costs())
    assert again == first


def test_what_the_store_has_measured_here_gives_the_engine_that_would_run(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1)).eval(), torch.randn(1, 3, 12, 12)
    with Store.open(tmp_path / "findings.sqlite") as store:
        cw.optimize(model, x, mode="quick", store=store)
        engine = cw.optimize(model, x, mode="heuristic", store=store)
        plan = cw.optimize(model, x, plan_only=True, store=store)
    assert plan.assignment.steps == engine.assignment.steps
    assert Basis.MEASURED in plan.bases
    assert plan.memory_report().arena == engine.arena_bytes
    assert plan.time_us.value == pytest.approx(engine.assignment.modelled_us)


def measured(us: float) -> Measurement:
    kinds = ("normal", "positive", "channel-scaled", "large", "small", "infinity")
    errors = tuple(KindError(kind, 1e-5, 0.1) for kind in kinds)
    return Measurement(Interval(us, 0.99 * us, 1.01 * us), None, errors, 0, 10, ())


def test_findings_of_a_device_that_is_not_here_count_before_predictions() -> None:
    model, x = nn.Conv2d(64, 64, 3, padding=1).eval().half(), torch.ones(8, 64, 28, 28).half()
    x = x.contiguous(memory_format=torch.channels_last)
    with Store.open(None) as store:
        (predicted,) = cw.optimize(model, x, plan_only=True, device="h200", store=store).assignment.steps
        problem, policy = predicted.operation, resolved(Policy(), predicted.operation, H200)
        listed = listing.candidates(listing.direct(problem, H200, policy))
        other = next(each for each in reversed(listed) if each.algorithm.startswith("engine-"))
        assert predicted.candidate != other
        print_ = listing.fingerprint(other, H200)
        store.record(problem.key, H200.key, other.id, print_, measured(2.5), None)
        found = cw.optimize(model, x, plan_only=True, device="h200", store=store)
    assert [step.candidate for step in found.assignment.steps] == [other]
    assert found.bases == (Basis.MEASURED,)
    assert found.time_us.low > 2.0


def test_weights_are_counted_as_kernels_pack_them() -> None:
    """On a CPU, where an engine can be held against it."""
    model, x = residual("cpu", torch.float32, batch=2)
    plan = cw.optimize(model, x, plan_only=True, store="none")
    packed = Weights(plan.assignment, plans_of(plan.assignment, plan.facts), network(torch.float32, batch=2).constants,
                     torch.device("cpu"), Shared())  # fmt: skip
    assert plan.memory_report().weights == nbytes_of(packed)


def test_kernels_of_fp32_split_their_weights() -> None:
    problem = ConvProblem.parse("mb8ic64ih28oc64kh3ph1 dt:fp32 tag:nhwc")
    listed = listing.candidates(listing.direct(problem, H200, resolved(Policy(), problem, H200)))
    (split, *_) = (each for each in listed if each.algorithm == "implicit-gemm-3xtf32-packed")
    assert listing.packed_bytes(split) == 2 * problem.w.nbytes
    (plain, *_) = (each for each in listed if each.backend == "cudnn")
    assert listing.packed_bytes(plain) == problem.w.nbytes


def test_pytorchs_operators_count_by_their_size() -> None:
    model = Net(lambda self, x: torch.full_like(self.conv(x).cumsum(1), 0.5) + 1, conv=nn.Conv2d(8, 8, 3)).eval()
    found = cw.optimize(model.half(), torch.ones(2, 8, 16, 16).half(), plan_only=True, device="h200", store="none")
    steps = dict(zip((step.operation.key for step in found.assignment.steps), found.bases, strict=True))
    foreign = {key: basis for key, basis in steps.items() if key.startswith("aten.")}
    assert foreign
    assert set(foreign.values()) == {Basis.SIZE}
    assert not any('"device":"cpu"' in key for key in foreign), "on a GPU its operators make tensors there"
    assert found.prediction.rough_share > 0


def test_attention_over_more_images_takes_longer() -> None:
    model = Net(lambda _, x: F.scaled_dot_product_attention(x, x, x)).eval()
    short, long = (
        cw.predict(model, torch.ones(8, 8, length, 64, dtype=torch.float16), device="h200", store="none").time_us.value
        for length in (1024, 8192)
    )
    assert long > 20 * short, "products grow with the square of the length, and bytes do not"


def test_a_precision_casts_without_computing() -> None:
    model, x = residual("cpu", torch.float32)
    found = cw.optimize(model, x, plan_only=True, device="h200", precision="fp16", store="none")
    assert {step.operation.dtype for step in found.assignment.steps if isinstance(step.operation, ConvProblem)} == {
        "fp16"
    }
    (output,) = found.assignment.outputs
    assert found.assignment.tensors[output].dtype == "fp32"
    held = found.constants()
    assert {held[name].dtype for name in found.assignment.constants} == {torch.float16}
    assert {spec.dtype for spec in found.assignment.constants.values()} == {"fp16"}


def test_a_memory_budget_counts(planned: cw.PlannedEngine) -> None:
    whole = planned.memory_report().peak
    with pytest.raises(cw.Refused, match=r"does not fit into a memory budget of 1,000 bytes: the smallest possible is"):
        cw.optimize(*residual("meta"), plan_only=True, device="h200", memory_budget=1_000, store="none")
    again = cw.optimize(*residual("meta"), plan_only=True, device="h200", memory_budget=whole, store="none")
    assert again.assignment.steps == planned.assignment.steps


def test_a_folder_takes_the_network_to_its_device(tmp_path: Path) -> None:
    model, x = residual("cpu", torch.float32, batch=2)
    plan = cw.optimize(model, x, plan_only=True, store="none")
    plan.save(tmp_path / "plan")
    with pytest.raises(
        cw.Refused, match=r'was planned from predictions for .*, and nothing of it has run: .*on_change="replan"'
    ):
        cw.load(tmp_path / "plan", "cpu")
    engine = cw.load(tmp_path / "plan", "cpu", on_change="replan", mode="heuristic", store="none")
    assert torch.allclose(engine(x), model(x), atol=1e-4)


def test_a_saved_plan_is_read_again_on_any_machine(tmp_path: Path) -> None:
    plan = cw.optimize(*residual(), plan_only=True, device="h200", store="none")
    plan.save(tmp_path / "plan")
    read = cw.load(tmp_path / "plan", plan_only=True)
    assert read.assignment == plan.assignment
    assert (read.facts, read.bases, read.powers) == (H200, plan.bases, plan.powers)
    assert (read.memory_report(), read.unknown) == (plan.memory_report(), plan.unknown)
    assert read.prediction == plan.prediction
    assert (read.explain(), read.to_json()) == (plan.explain(), plan.to_json())
    read.save(tmp_path / "again")
    for name in ("plan.json", "weights.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "plan" / name).read_bytes()
    for device in (None, "h200"):
        with pytest.raises(cw.Refused, match=r"predictions for NVIDIA H200, .*load\(folder, plan_only=True\) reads"):
            cw.load(tmp_path / "plan", device)


@pytest.mark.parametrize(
    "option", [{"device": "cpu"}, {"on_change": "replan"}, {"mode": "full"}, {"policy": Policy(deterministic=True)},
               {"store": "none"}, {"on_failure": "torch"}, {"trust_kernels": True}],
)  # fmt: skip
def test_options_of_an_engine_are_refused_for_a_plan(tmp_path: Path, option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(cw.BadInput, match=f"reads a plan as it was saved, so that {name} would be ignored"):
        cw.load(tmp_path, plan_only=True, **option)


def test_an_engine_is_not_read_as_a_plan(tmp_path: Path) -> None:
    cw.optimize(nn.Conv2d(3, 4, 1).eval(), torch.ones(1, 3, 4, 4), mode="heuristic", store="none").save(tmp_path)
    with pytest.raises(cw.BadInput, match="holds an engine, not a plan alone: leave out plan_only"):
        cw.load(tmp_path, plan_only=True)


def test_a_folder_needs_weights(planned: cw.PlannedEngine, tmp_path: Path) -> None:
    with pytest.raises(cw.BadInput, match="the model has no weights"):
        planned.save(tmp_path / "plan")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "h200"}, r"runs on the device of `example`: leave out device='h200', or set plan_only=True"),
        ({"plan_only": True, "device": "abacus"}, r"device must be cpu, .* got 'abacus'"),
        ({"plan_only": True, "buckets": [1, 2]}, r"runs nothing, so that buckets would be ignored"),
        ({"plan_only": True, "partial": True}, r"runs nothing, so that partial would be ignored"),
        ({"plan_only": True, "mode": "full"}, r"runs nothing, so that mode would be ignored"),
        ({"plan_only": True, "mode": "predict-top"}, r"runs nothing, so that mode would be ignored"),
        ({"plan_only": True, "on_failure": "torch"}, r"runs nothing, so that on_failure would be ignored"),
        ({"plan_only": True, "precision": "mixed"}, r'precision="mixed" runs the model to measure its errors'),
        ({"plan_only": True, "policy": Policy(objective=Objective.ENERGY)}, r"can be planned only for time"),
    ],
)
def test_what_cannot_be_planned(options: dict[str, Any], said: str) -> None:
    with pytest.raises(cw.BadInput, match=said):
        cw.optimize(nn.ReLU().eval(), torch.ones(1, 3, 4, 4), **options)


def test_an_example_without_memory_is_on_no_device() -> None:
    with pytest.raises(cw.BadInput, match='does not say which device to plan for: give one, such as device="h200"'):
        cw.optimize(nn.ReLU().eval(), torch.ones(1, 3, 4, 4, device="meta"), plan_only=True)


def test_a_network_is_predicted_for_other_batches() -> None:
    model, x = nn.Conv2d(64, 64, 3).eval().half(), torch.ones(1, 64, 32, 32).half()
    small, large = (cw.predict(model, x, device="h200", batch=batch, store="none") for batch in (16, 512))
    assert large.time_us.value > 4 * small.time_us.value
    assert large.memory_bytes > small.memory_bytes
    assert small.to_json()["power_w"]["value"] > 0
    assert cw.predict(model, x, device="a100", store="none").to_json()["power_w"] is None  # which has no model
    assert "it does not fit" not in str(small)
    tiny = cw.predict(model, x, device=replace(profile("t4"), memory_bytes=1000), store="none")
    assert "it does not fit: the device has 1,000 bytes" in str(tiny)
    with pytest.raises(cw.BackendError, match=r"^out of memory for inputs of a batch of 1,000,000,000,000"):
        cw.predict(model, x, device="h200", batch=10**12)
    with pytest.raises(cw.BadInput, match="`batch` must be a whole number above 0, or None, got 0"):
        cw.predict(model, x, device="h200", batch=0)
    with pytest.raises(cw.BadInput, match="the model is in training mode"):
        cw.predict(nn.ReLU(), x, device="h200")
