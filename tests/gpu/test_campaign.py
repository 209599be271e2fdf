"""A campaign on a GPU: candidates of all backends are observed, and the GPU does not wait for compilers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import convwright as cw
from convwright.core.observation import Outcome
from convwright.store.store import Store

pytestmark = [
    pytest.mark.gpu, pytest.mark.alone, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
]  # fmt: skip


def test_candidates_of_all_backends_are_observed_one_after_the_other(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.sqlite") as store:
        sampled = cw.sample("cuda:0", seconds=90, store=store, energy_every=200)
        seen = list(store.observations())
    measured = [each for each in seen if each.outcome is Outcome.MEASURED]
    assert sampled.rows == len(seen)
    assert len(measured) >= 0.8 * len(seen) > 200
    backends = Counter(each.candidate.leaf.backend for each in measured)
    assert {"torch", "cudnn", "triton", "reference"} <= set(backends)
    conditions = [dict(each.measurement.conditions) for each in measured if each.measurement is not None]
    assert all({"sm_clock_mhz", "temperature_c", "origin"} <= set(each) for each in conditions)
    assert any(each.measurement is not None and each.measurement.energy_mj for each in measured)
    # From one observation to the next, those with energy aside, it takes as long as to measure one.
    made = sorted(each.created for each in seen)
    pauses = sorted(later - earlier for earlier, later in pairwise(made))
    assert pauses[len(pauses) // 2] < 0.2
    assert pauses[int(0.9 * len(pauses))] < 1.0
