"""A model of a new device that knows another device's times."""

from __future__ import annotations

import numpy as np
import pytest

from convwright.errors import BadInput
from convwright.prediction.boosted_trees import TreeSettings
from convwright.prediction.time_model import fit_time_model
from convwright.prediction.transfer import SharedProblems, fit_transfer

NAMES, ESTIMATES = ("size", "channels"), ("roofline", "tiles")


def shared(rows: int, *, seed: int = 0) -> tuple[SharedProblems, np.ndarray]:
    """Each problem has a factor of its own, which both devices share and no feature tells. The new device is slower
    by its physics, and by another half where a problem has many channels."""
    random = np.random.default_rng(seed)
    features = random.uniform(0, 3, (rows, 2))
    reference = np.exp(np.stack([features[:, 0], features.sum(axis=1)], axis=1))
    own = reference * np.array([3.0, 2.0])
    factor = np.exp(0.6 * random.standard_normal(rows))
    measured = 3 * reference[:, 0] * factor * np.where(features[:, 1] > 2, 1.5, 1) * random.normal(1, 0.02, rows)
    return SharedProblems(reference[:, 0] * factor, features, own, reference), measured


@pytest.mark.usefixtures("few_steps")
def test_what_the_devices_share_is_known_from_the_other() -> None:
    problems, measured = shared(200)
    unseen, wanted = shared(400, seed=1)
    settings = TreeSettings(trees=40, learning_rate=0.2, losses=("squared_error",), members=1)
    model = fit_transfer(
        problems, measured, device="T4", reference="V100", features=NAMES, estimates=ESTIMATES, settings=settings
    )
    alone = fit_time_model(
        problems.features, problems.estimates_us[:, 0], measured, device="T4", names=NAMES, settings=settings
    )
    off = np.abs(model.predict(unseen).value_us / wanted - 1).mean()
    off_alone = np.abs(alone.predict(unseen.features, unseen.estimates_us[:, 0]).value_us / wanted - 1).mean()
    assert off < 0.05 < 0.4 < off_alone
    assert model.model.versions == {"reference": "V100"}
    assert len(model.model.features) == problems.inputs()[0].shape[1]


def test_problems_that_do_not_fit_are_refused() -> None:
    problems, _ = shared(20)
    less = SharedProblems(
        problems.reference_us, problems.features, problems.estimates_us, problems.reference_estimates_us[:, :1]
    )
    with pytest.raises(BadInput, match="the same estimates for both devices"):
        less.inputs()
    negative = SharedProblems(
        -problems.reference_us, problems.features, problems.estimates_us, problems.reference_estimates_us
    )
    with pytest.raises(BadInput, match="must be above 0, got -"):
        negative.inputs()
