"""A time model as a file: it comes back as it was, and anything else is one sentence."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convwright import strict_json
from convwright.errors import BadInput
from convwright.prediction.boosted_trees import TreeSettings
from convwright.prediction.learned_rates import fit_learned_rates
from convwright.prediction.time_model import TimeModel, fit_time_model
from convwright.prediction.time_model_file import load, save
from prediction.made_times import NAMES, times


@pytest.fixture(scope="module")
def model(few_steps: None) -> TimeModel:
    settings = TreeSettings(trees=8, members=1)
    return fit_time_model(*times(60), device="H200", names=NAMES, versions={"cudnn": "9.19"}, settings=settings)


def test_it_comes_back_as_it_was(model: TimeModel, tmp_path: Path) -> None:
    path, unseen = tmp_path / "h200.model", times(40, seed=1)
    save(model, path)
    again = load(path)
    for ours, theirs in zip(*(each.predict(*unseen[:2]) for each in (model, again)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (again.device, again.features, again.versions) == ("H200", NAMES, {"cudnn": "9.19"})
    assert (again.error, again.rows, again.intervals) == (model.error, 60, model.intervals)


def test_learned_rates_come_back_as_they_were(model: TimeModel, tmp_path: Path) -> None:
    made = times(60)
    rates = fit_learned_rates(made.features, np.log(made.measured_us / made.physics_us), (0, 1, 2))
    with_rates = replace(model, correction=replace(model.correction, rough=rates))
    save(with_rates, tmp_path / "m")
    again, unseen = load(tmp_path / "m"), times(40, seed=1)
    np.testing.assert_array_equal(again.predict(*unseen[:2]).value_us, with_rates.predict(*unseen[:2]).value_us)
    changed(tmp_path / "m", **{"rates.bias": None})
    with pytest.raises(BadInput, match="learned rates need the arrays"):
        load(tmp_path / "m")


def test_intervals_without_bounds_come_back(model: TimeModel, tmp_path: Path) -> None:
    open_ = replace(model, intervals=replace(model.intervals, log_factors=(float("inf"),), edges_us=()))
    save(open_, tmp_path / "m")
    assert load(tmp_path / "m").intervals == open_.intervals


def changed(path: Path, **arrays: np.ndarray | None) -> None:
    with np.load(path) as file:
        kept = {name: file[name] for name in file.files} | arrays
    with path.open("wb") as out:
        np.savez(out, **{name: array for name, array in kept.items() if array is not None})


def header(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"header": None}, "it has no header"),
        ({"header": header("{")}, "not strict JSON"),
        ({"header": header('{"schema": "x"}')}, "must have the schema 'convwright time model 2', got 'x'"),
        ({"header": header("[1]")}, "must have the schema 'convwright time model 2', got None"),
        ({"header": header('{"schema": "convwright time model 2"}')}, "its header lacks"),
        ({"trees.value": None}, "the arrays .* value is missing"),
        ({"domain.centre": np.ones(1)}, "fits its centre"),
        ({"domain.centre": np.array([{}], dtype=object)}, "a .npz file of plain arrays"),
    ],
)
def test_what_is_no_model_is_one_sentence(
    model: TimeModel, tmp_path: Path, arrays: dict[str, np.ndarray | None], told: str
) -> None:
    save(model, tmp_path / "m")
    changed(tmp_path / "m", **arrays)
    with pytest.raises(BadInput, match=told):
        load(tmp_path / "m")


def test_other_files_are_one_sentence(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.ones(3))
    for content in (b"", b"text", b"PK\x03\x04 half a zip", array.getvalue()):
        (tmp_path / "m").write_bytes(content)
        with pytest.raises(BadInput, match="is not a time model"):
            load(tmp_path / "m")
    with pytest.raises(BadInput, match="cannot be read as a time model"):
        load(tmp_path / "absent")


def test_a_header_about_other_arrays_is_refused(model: TimeModel, tmp_path: Path) -> None:
    save(model, tmp_path / "m")
    with np.load(tmp_path / "m") as file:
        said = strict_json.loads(file["header"].tobytes())
    changed(tmp_path / "m", header=header(strict_json.dumps(said | {"features": ["one"]})))
    with pytest.raises(BadInput, match="1 names of features, trees or rates of 3, a smooth function of 3, a domain"):
        load(tmp_path / "m")
