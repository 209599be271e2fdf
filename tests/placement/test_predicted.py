"""What no estimate says of a model is predicted, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.core.finding import Interval
from convwright.errors import BadInput, Refused
from convwright.placement import Device, Estimate, Job, Placement, pareto, predicted
from convwright.placement.predicted import Model, missing, with_predictions

JOBS = [Job("archive", "net", (1, 4), images=1000), Job("other", "measured", (1,), images=10)]
DEVICES = [Device("fast", 141 * 10**9, kind="h200"), Device("a100", 40 * 10**9)]
MEASURED = [
    Estimate("measured", "fast", 1, Interval(50.0, 45.0, 55.0), 10**8),
    Estimate("net", "a100", 4, Interval(70.0, 69.0, 71.0), 10**8),
]


@pytest.fixture(scope="module")
def model() -> Model:
    made = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval()
    return Model(made, torch.ones(2, 16, 28, 28), "fp16")


@pytest.fixture(scope="module")
def known(model: Model) -> tuple[Estimate, ...]:
    """What was measured, and what is predicted besides."""
    estimates, _ = with_predictions(JOBS, DEVICES, MEASURED, {"net": model})
    return estimates


@pytest.fixture(scope="module")
def placed(model: Model) -> Placement:
    return cw.place(JOBS, DEVICES, MEASURED, models={"net": tuple(model)})


def test_only_what_is_missing_is_predicted(known: tuple[Estimate, ...]) -> None:
    asked = [(each.key, each.batch, each.device.name) for each in missing(JOBS, DEVICES, MEASURED, {"net"})]
    assert asked == [("net", 1, "fast"), ("net", 1, "a100"), ("net", 4, "fast")]
    assert known[:2] == tuple(MEASURED)
    assert [(each.key, each.batch, each.device) for each in known[2:]] == asked


def test_an_estimate_is_what_predict_says(model: Model, known: tuple[Estimate, ...]) -> None:
    (_, _, first, *_) = known
    found = cw.predict(model.module, model.example, device="h200", batch=1, precision="fp16")
    assert (first.time_us, first.memory_bytes) == (found.time_us, found.memory_bytes)


def test_jobs_are_placed_by_predictions(placed: Placement) -> None:
    assert {each.job.name: each.instances for each in placed.assigned}["other"] == ("fast/0",)
    assert placed.proven


def test_a_device_whose_predictions_rest_on_its_data_sheet_is_named_once(model: Model, placed: Placement) -> None:
    (note,) = placed.notes
    assert re.match(
        r"predictions for a100 \(NVIDIA A100.*\) rest on its data sheet, and may be wrong by a factor of \d.*: give "
        r"measured times \(`estimates=`, or tables \[\[estimate\]\]\), or run `convwright sample` and `convwright ",
        note,
    )
    assert note in str(placed).splitlines()
    assert placed.to_json()["notes"] == [note]
    assert not cw.place(JOBS, DEVICES[:1], MEASURED[:1], models={"net": tuple(model)}).notes


def test_without_a_model_or_an_estimate_the_job_is_named(model: Model) -> None:
    with pytest.raises(Refused, match="'other'"):
        cw.place(JOBS, DEVICES, MEASURED[1:], models={"net": tuple(model)})


def test_a_device_that_nobody_knows_is_one_sentence(model: Model) -> None:
    with pytest.raises(BadInput, match=r"abacus"):
        cw.place(JOBS[:1], [Device("abacus", 10**9)], models={"net": tuple(model)})


SPEC = """
[[job]]
name = "archive"
key = "net"
batches = [2]
images = 100
[[device]]
name = "gpu"
kind = "h200"
memory_bytes = 141_000_000_000
[[model]]
key = "net"
target = "{target}"
precision = "{precision}"
"""
SOURCE = """
import torch
def net():
    return torch.nn.Conv2d(16, 32, 3).eval(), torch.ones(1, 16, 14, 14)
def broken():
    raise RuntimeError("nobody should call this")
"""


def test_a_file_may_name_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from convwright.cli.main import app

    (tmp_path / "models.py").write_text(SOURCE)
    spec = tmp_path / "place.toml"
    spec.write_text(SPEC.format(target=f"{tmp_path}/models.py:net", precision="fp16"))
    app(["place", str(spec)], standalone_mode=False)
    assert "archive" in capsys.readouterr().out
    estimate = '[[estimate]]\nkey = "net"\ndevice = "gpu"\nbatch = 2\ntime_us = 5.0\nmemory_bytes = 1000\n'
    spec.write_text(SPEC.format(target=f"{tmp_path}/models.py:broken", precision="fp16") + estimate)
    app(["place", str(spec)], standalone_mode=False)  # the model is not needed, and so not made
    assert "archive" in capsys.readouterr().out


def test_a_wrong_precision_is_one_sentence(tmp_path: Path) -> None:
    from convwright.cli.main import app

    (tmp_path / "models.py").write_text(SOURCE)
    spec = tmp_path / "place.toml"
    spec.write_text(SPEC.format(target=f"{tmp_path}/models.py:net", precision="fp4"))
    with pytest.raises(BadInput, match="fp4"):
        app(["place", str(spec)], standalone_mode=False)


def test_a_curve_predicts_once(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, predict = list[object](), predicted._predicted
    monkeypatch.setattr(predicted, "_predicted", lambda *given: asked.append(given) or predict(*given))
    curve = pareto(JOBS[:1], DEVICES[:1], (), "makespan", "energy", points=3, models={"net": tuple(model)})
    assert curve
    assert len(asked) == 1
