"""The power of candidates, from how busy they keep the device."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convwright import strict_json
from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.prediction import models
from convwright.prediction.boosted_trees import TreeSettings
from convwright.prediction.features import PARTS, features
from convwright.prediction.learning import learn
from convwright.prediction.power_model import fit_power_model
from convwright.prediction.sums import energy_of
from prediction.made_observations import DEVICE, observations

SMALL = TreeSettings(trees=10, losses=("squared_error",), members=1)
CANDIDATES = [each.candidate for each in observations(30)]
FOUND = features(CANDIDATES, DEVICE)
TIME_US = np.array([each.measurement.device_us.value for each in observations(30) if each.measurement is not None])
# The busier with products, the more.
WATTS = 700 + 60 * np.log(np.maximum(FOUND.parts[:, PARTS.index("products µs")] / TIME_US, 1e-3))


def test_a_line_is_found_and_how_far_it_is_off_is_said() -> None:
    random = np.random.default_rng(0)
    seen = np.arange(len(WATTS)) % 2 == 0
    scattered = WATTS * np.exp(0.05 * random.standard_normal(len(WATTS)))
    model = fit_power_model(FOUND.at(seen), TIME_US[seen], scattered[seen], DEVICE.key)
    off = np.abs(model.watts(FOUND.at(~seen), TIME_US[~seen]) / scattered[~seen] - 1)
    assert np.median(off) < 0.06
    assert model.median == pytest.approx(np.median(off), abs=0.02)
    assert np.mean(off < model.factor - 1) == pytest.approx(0.9, abs=0.1)
    assert model.rows == seen.sum()


def test_each_row_is_predicted_by_the_others_alone() -> None:
    """As if the line were fitted anew without it."""
    few, time_us, watts = FOUND.at(np.arange(12)), TIME_US[:12], WATTS[:12] + 20 * np.cos(np.arange(12))
    model = fit_power_model(few, time_us, watts, DEVICE.key)
    rows = [np.arange(12) != row for row in range(12)]
    alone = [
        fit_power_model(few.at(row), time_us[row], watts[row], DEVICE.key).watts(few, time_us)[~row][0] for row in rows
    ]
    assert model.median == pytest.approx(np.median(np.abs(np.array(alone) / watts - 1)), rel=0.05)


def test_nothing_beyond_what_was_seen() -> None:
    model = fit_power_model(FOUND, TIME_US, WATTS, DEVICE.key)
    watts = model.watts(FOUND, 1e6 * TIME_US)
    assert watts.min() >= WATTS.min()
    assert watts.max() <= WATTS.max()


def test_energy_is_as_unsure_as_time_and_power() -> None:
    model = fit_power_model(FOUND, TIME_US, WATTS, DEVICE.key)
    sure, unsure = (replace(model, factor=factor).around(500.0, in_domain=True) for factor in (1.0, 2.0))
    assert energy_of(sure, Interval(1000.0, 500.0, 2000.0)) == Interval(500.0, 250.0, 1000.0)
    energy = energy_of(unsure, Interval(1000.0, 500.0, inf))
    assert 125 < energy.low < 250
    assert energy.high == inf
    assert energy_of(unsure, Interval(1000.0, 0.0, inf)) == Interval(500.0, 0.0, inf)


def test_outside_of_the_domain_any_power_that_was_seen_may_be() -> None:
    model = replace(fit_power_model(FOUND, TIME_US, WATTS, DEVICE.key), least_w=100.0, most_w=700.0, factor=1.5)
    assert model.around(300.0, in_domain=True) == Interval(300.0, 200.0, 450.0)
    assert model.around(300.0, in_domain=False) == Interval(300.0, 100.0, 700.0)


@pytest.mark.usefixtures("few_steps")
def test_it_is_kept_beside_the_times(tmp_path: Path) -> None:
    learned = learn(observations(watts=200.0), DEVICE, settings=SMALL, tried=1)
    place, power = models.save(learned.predictor, tmp_path / models.file_name(DEVICE))
    assert models.served(DEVICE, model=place).predictor.predict_all(CANDIDATES, DEVICE) == (
        learned.predictor.predict_all(CANDIDATES, DEVICE)
    )
    said = strict_json.loads(power.read_text())
    wrong: list[Any] = [
        {}, [1], "x", said | {"weights": [1.0]}, said | {"weights": ["nan"] * 7}, said | {"centre": "1234567"},
        said | {"factor": 0.5}, said | {"least_w": 0.0}, said | {"mean_w": 10**400},
        said | {"deviation": [1.0] * 6 + [0.0]},        said | {"schema": "other"}, said | {"more": 1.0},
    ]  # fmt: skip
    for each in wrong:
        power.write_text(strict_json.dumps(each))
        with pytest.raises(BadInput, match="is not a model of power"):
            models.served(DEVICE, model=place)
    power.write_text(strict_json.dumps(said | {"schema": "convwright power model 1"}))
    with pytest.raises(BadInput, match="is not a model of power: it was learned by another version: learn it again"):
        models.served(DEVICE, model=place)
    power.write_text(strict_json.dumps(said | {"device": "NVIDIA H100"}))
    with pytest.raises(BadInput, match="is a model of NVIDIA H100, but power of NVIDIA H200 is needed"):
        models.served(DEVICE, model=place)
    power.write_text("{")
    with pytest.raises(BadInput, match="is not a model of power"):
        models.served(DEVICE, model=place)
    models.save(learn(observations(), DEVICE, settings=SMALL, tried=1).predictor, place)
    assert not power.exists()
