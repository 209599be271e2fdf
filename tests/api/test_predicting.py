"""``cw.predict``, ``cw.learn`` and sweeps: through their public names."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import convwright as cw
from convwright import strict_json
from convwright.api.predicted_sweep import PredictedSweep, SweepPoint, sweep_of
from convwright.campaign import parquet
from convwright.core.finding import Interval
from convwright.core.policy import Objective, Policy, Weights
from convwright.errors import BadInput
from convwright.prediction import models
from convwright.prediction.boosted_trees import TreeSettings
from convwright.prediction.learning import learn
from convwright.prediction.models import Origin
from convwright.report.predicted_curve import chart_of
from convwright.report.tables.predictions import print_predictions
from convwright.store.store import Store
from prediction.made_observations import DEVICE, FAST, candidates, measured, observations

SMALL = TreeSettings(trees=40, leaves=8, learning_rate=0.2, losses=("squared_error",), members=1)
TEXT = "mb8ic64ih28oc64kh3ph1 dt:fp16 tag:nhwc"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "h200.npz"
    models.save(learn(observations(), DEVICE, settings=SMALL, tried=1).predictor, path)
    return path


def test_a_device_that_is_not_here_is_predicted() -> None:
    found = cw.predict(TEXT, device="a100")
    assert found.model.origin is Origin.DATA_SHEET
    ids = [verdict.predicted.candidate.id for verdict in found.verdicts]
    assert "torch/default" in ids
    assert any(each.startswith("triton/") for each in ids)
    for verdict in found.verdicts:
        prediction = verdict.predicted.prediction
        assert prediction is not None
        assert 0 < prediction.time_us.low < prediction.time_us.value < prediction.time_us.high
        assert not prediction.in_domain
    times = [each.predicted.us for each in found.verdicts if each.allowed]
    assert times[0] <= min(times) * 1.03
    assert strict_json.loads(strict_json.dumps(strict_json.in_words(found.to_json())))["choice"] == ids[0]


def test_only_rewrites_that_may_win_are_predicted() -> None:
    small = cw.predict(TEXT, device="h200")
    assert not any(each.predicted.candidate.inner for each in small.verdicts)
    reasons = {refusal.id: refusal.reason for refusal in small.refusals}
    assert reasons["split-batch(2, …)"] == "computes a batch in parts, which saves workspace and no time"
    assert "its copies take " in reasons["relayout(nchw, …)"]
    for device in ("h200", "a100"):
        large = cw.predict("mb32ic256ih56oc256kh3ph1 dt:fp16", device=device)
        rewritten = [each.predicted.candidate for each in large.verdicts if each.predicted.candidate.inner]
        assert {each.algorithm for each in rewritten} == {"relayout"}


def test_parts_of_a_batch_are_predicted_if_workspace_is_what_counts() -> None:
    found = cw.predict(TEXT, device="h200", policy=Policy(objective=Objective.WORKSPACE))
    assert any(each.predicted.candidate.id.startswith("split-batch(2, ") for each in found.verdicts)


def test_a_shipped_model_knows_problems_like_those_of_networks() -> None:
    found = cw.predict(TEXT, device="h200")
    assert found.model.origin is Origin.SHIPPED
    predictions = [each.predicted.prediction for each in found.verdicts if each.allowed]
    assert sum(each is not None and each.in_domain for each in predictions) > len(predictions) / 2
    assert found.choice is not None
    bounds = found.choice.predicted.prediction
    assert bounds is not None
    assert bounds.time_us.high < 4 * bounds.time_us.value


def test_a_transferred_model_names_the_other_device_and_knows_the_bandwidth_of_its_own() -> None:
    bound_by_bytes = "mb32ic256ih56oc64kh1 dt:fp16 tag:nhwc"
    found, other = (cw.predict(bound_by_bytes, device=device) for device in ("h100", "h200"))
    assert found.model.origin is Origin.SHIPPED
    assert "transferred from NVIDIA H200, which was off by" in str(found.model)
    assert "transferred" not in str(other.model)
    assert found.choice is not None
    assert other.choice is not None
    prediction = found.choice.predicted.prediction
    assert prediction is not None
    assert prediction.in_domain
    assert found.choice.predicted.us > 1.1 * other.choice.predicted.us
    by_bandwidth_us = other.choice.predicted.us * 4.8 / 3.35
    assert prediction.time_us.low < by_bandwidth_us < prediction.time_us.high


def test_memory_is_operands_result_and_workspace() -> None:
    found = cw.predict("ic4ih8oc4kh3", device="cpu")
    operands = 4 * (4 * 8 * 8 + 4 * 4 * 3 * 3 + 4 * 6 * 6)
    for verdict in found.verdicts:
        workspace = verdict.predicted.candidate.workspace_bytes
        assert verdict.predicted.memory_bytes == (None if workspace is None else operands + workspace)


def test_what_does_not_fit_is_not_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    text = "mb100000ic64ih56oc64kh3ph1 dt:fp16"
    found = cw.predict(text, device="t4")
    own = next(each for each in found.verdicts if each.predicted.candidate.id == "torch/default")
    assert found.choice is None
    assert own.reason == "needs 80.3 GB of memory, and Tesla T4 has 15.8 GB"
    assert cw.predict(text, device="h200").choice is not None
    print_predictions(found, Console())
    assert "No candidate is allowed." in capsys.readouterr().out


def test_a_learned_model_is_used(model: Path) -> None:
    found = cw.predict(TEXT, device="h200", model=model)
    assert (found.model.origin, found.model.path) == (Origin.GIVEN, model)
    like = next(each for each in found.verdicts if each.predicted.candidate.leaf.algorithm == FAST)
    assert like.predicted.prediction is not None
    assert f"model of {len(observations())} measured candidates" in str(found.model)


def test_a_model_beside_the_store_is_found(tmp_path: Path) -> None:
    path, store = tmp_path / "kept.jsonl.gz", tmp_path / "findings.sqlite"
    with gzip.open(path, "wt") as file:
        file.writelines(strict_json.dumps(each.to_json()) + "\n" for each in observations(26))
    learned = cw.learn(path, device="h200", store=store)
    assert (learned.model.rows, learned.model.versions) == (104, {"cudnn": "91900"})
    assert cw.predict(TEXT, device="h200", store=store).model.origin is Origin.LEARNED
    assert cw.predict(TEXT, device="a100", store=store).model.origin is Origin.DATA_SHEET


def test_observations_of_the_store_are_learned_from(tmp_path: Path) -> None:
    with Store.open(tmp_path / "findings.sqlite") as store:
        store.observe([*observations()[:12], *(replace(each, device="another device") for each in observations()[:5])])
        with pytest.raises(BadInput, match=r"needs at least 100 measured candidates, got 12: .*convwright sample"):
            cw.learn(device="h200", store=store)


@pytest.mark.parametrize("line", ["{", '{"schema": "another"}', "[]"])
def test_a_bad_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text(strict_json.dumps(observations()[0].to_json()) + "\n" + line + "\n")
    with pytest.raises(BadInput, match=r"line 2 of .*kept\.jsonl is no observation"):
        cw.learn(path, device="h200")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.jsonl cannot be read as observations"):
        cw.learn(tmp_path / "nowhere.jsonl", device="h200")
    with pytest.raises(BadInput, match="`observations` must be records or the path of a file of them, got 3"):
        cw.learn(3, device="h200")  # type: ignore[arg-type]


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "kept.jsonl").write_bytes(b"\x93\xff\x00")
    with pytest.raises(BadInput, match=r"kept\.jsonl cannot be read as observations"):
        cw.learn(tmp_path / "kept.jsonl", device="h200")


def test_a_table_of_observations_is_learned_from(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "kept.parquet"
    parquet.write(lambda: observations()[:12], path)
    with pytest.raises(BadInput, match="needs at least 100 measured candidates, got 12"):
        cw.learn(path, device="h200")


def test_unknown_devices_are_answered_with_the_known() -> None:
    with pytest.raises(BadInput, match=r"one of a100, b200, h100, h200, .*, got 'h300'"):
        cw.predict(TEXT, device="h300")


def test_energy_cannot_be_an_objective_without_a_model_of_it(model: Path) -> None:
    found = cw.predict(TEXT, device="h200", model=model, policy=Policy(objective=Objective.ENERGY))
    assert found.choice is None
    assert {each.reason for each in found.verdicts if not each.allowed} >= {"no energy can be predicted"}


def test_packing_counts_where_weights_change() -> None:
    text = "mb32ic256ih14oc256kh3ph1 dt:fp32"
    changing, constant = (
        cw.predict(text, device="h200", policy=Policy(weights=each)) for each in (Weights.CHANGING, Weights.CONSTANT)
    )
    times = {each.predicted.candidate.id: each.predicted.us for each in constant.verdicts}
    packed = {each.predicted.candidate.id: each.predicted.us for each in changing.verdicts}
    more = {id_ for id_ in times if packed[id_] > times[id_]}
    assert more
    assert all("-packed" in id_ for id_ in more)
    for each in changing.verdicts:
        found = each.predicted.prediction
        if found is not None and found.energy_mj is not None and found.power_w is not None:
            assert found.energy_mj.value == pytest.approx(found.power_w.value * found.time_us.value / 1000)


def test_an_input_and_a_weight_pose_the_problem() -> None:
    x, w = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
    assert cw.predict(x, w, padding=1, device="cpu").problem == cw.problem(x, w, padding=1)


def test_a_breakdown_is_of_the_choice_or_of_whom_is_named(model: Path) -> None:
    found = cw.predict(TEXT, device="h200", model=model)
    assert found.choice is not None
    assert found.explained().candidate == found.choice.predicted.candidate.id
    named = found.explained(found.called("torch/default"))
    assert (named.candidate, named.predicted_us) == (
        "torch/default",
        pytest.approx(named.correction * named.physics_us),
    )
    assert "learned correction" in str(named)
    with pytest.raises(BadInput, match="no candidate here is called 'cudnn/none'; for this problem there are "):
        found.called("cudnn/none")


def test_a_prediction_is_printed(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    cw.show(cw.predict("ic4ih8oc4kh3", device="cpu"))
    said = capsys.readouterr().out
    assert "predicted, nothing ran" in said
    assert "No model was learned of this device" in said


@pytest.fixture(scope="module")
def swept() -> PredictedSweep:
    with Store.open(None) as store:
        store.record(
            cw.problem("mb1ic16ih14oc512kh1 dt:fp16").key, DEVICE.key, "torch/default", "any", measured(3.5), None
        )
        return cw.predict_sweep("mb1ic16ih7oc512kh1 dt:fp16", "ih=7,14,15,64", device="h200", store=store)


def test_a_sweep_has_a_point_for_each_value_and_what_was_measured(swept: PredictedSweep) -> None:
    assert [(each.value, each.measured_us) for each in swept.points] == [(7, None), (14, 3.5), (15, None), (64, None)]
    assert swept.points[0].time_us.value < swept.points[-1].time_us.value
    assert all(jump.startswith("From ih=") for jump in swept.jumps)


def test_a_printed_sweep_has_a_line_for_each_value(swept: PredictedSweep) -> None:
    lines = str(swept).splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == ["ih=7", "ih=14", "ih=15", "ih=64"]
    assert lines[1].endswith(f", {swept.points[1].candidate}, measured 3.5 µs")
    assert lines[4:] == [swept.model, *swept.jumps]


def test_a_sweep_is_drawn_by_winners(swept: PredictedSweep) -> None:
    chart = chart_of(swept)
    *lines, measured_too = chart.curves
    assert sum(len(each.x) for each in lines) == len(swept.points)
    assert (measured_too.label, measured_too.times_us) == ("measured, fastest", (Interval(3.5, 3.5, 3.5),))
    by_name = {each.label.lstrip("_"): each.colour for each in lines}
    assert len(set(by_name.values())) == len(by_name)


def test_jumps_are_told_with_their_cause() -> None:
    """From 132 blocks to 133 a second wave begins."""
    found = cw.predict_sweep("mb1ic512iw16896oc64kw1 dt:fp16 tag:nhwc", "iw=16896,16897,33792", device="h200")
    assert len(found.points) == 3
    assert all("the time rises" in each or "the time falls" in each for each in found.jumps)


@pytest.mark.parametrize(("text", "values"), [("iw=200:203", (200, 201, 202, 203)), ("iw=8:20:4", (8, 12, 16, 20)),
                                              ("iw=8..32:*2", (8, 16, 32))])  # fmt: skip
def test_forms_of_sweeps(text: str, values: tuple[int, ...]) -> None:
    assert sweep_of(text).values == values


def test_a_bad_sweep_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="a value of iw must be a whole number of at most 18 digits, got '9:'"):
        cw.predict_sweep(TEXT, "iw=9:", device="h200")
    with pytest.raises(BadInput, match="goes from a smaller value to a larger one"):
        cw.predict_sweep(TEXT, "iw=9:3", device="h200")
    with pytest.raises(BadInput, match="a sweep changes a size of a convolution, got a problem of kind 'pool'"):
        cw.predict_sweep("pool max mb2ic8ih9 kh3", "ih=9:12", device="h200")


def test_candidates_that_were_seen_are_like_those_learned_from(model: Path) -> None:
    problem = observations()[0].candidate.problem
    wanted = {each.id for each in candidates(problem)}
    found = cw.predict(problem, device="h200", model=model)
    seen = [each.predicted for each in found.verdicts if each.predicted.candidate.id in wanted]
    assert all(each.prediction is not None and each.prediction.in_domain for each in seen)


def test_a_rewrite_without_its_configuration_has_both_brackets() -> None:
    us = Interval(5.0, 4.0, 6.0)
    point = SweepPoint(7, TEXT, "relayout(nhwc, triton/implicit-gemm[bm=64,bn=16])", us, True, 1, None)
    assert point.family == "relayout(nhwc, triton/implicit-gemm)"
