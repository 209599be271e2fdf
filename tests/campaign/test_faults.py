"""Candidates that end their process or hang, and a full disk: what was measured is kept."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

import convwright as cw
from campaign import made_child
from convwright.campaign import child
from convwright.campaign.campaign import Campaign
from convwright.campaign.problems import shares_of
from convwright.campaign.series import Series
from convwright.core.observation import Outcome
from convwright.errors import StoreError
from convwright.measuring.hardware.machine import device_facts
from convwright.store.claims import Claims
from convwright.store.store import Store


def claims(store: Store) -> Claims:
    """The tasks of the campaign that these tests begin."""
    return Series(Campaign("seed 0", 0, shares_of("networks")), device_facts("cpu"), store).claims


class Stop:
    """Interrupts a campaign, as Ctrl-C does, once it has measured so many problems."""

    def __init__(self, problems: int) -> None:
        self._problems = problems

    def __call__(self, done: int, total: int, what: str) -> None:
        if what and int(what.partition(" rows of ")[2].partition(" ")[0]) >= self._problems:
            raise KeyboardInterrupt


def test_crashes_and_hangs_are_observations_and_an_interrupt_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "COMMAND", made_child.command("fine", "wrong", "killed", "hangs"))
    with Store.open(tmp_path / "store.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            cw.sample(
                "cpu", seconds=120, sources="networks", store=store, deadline_s=3.0, timing_us=5e3, progress=Stop(1)
            )
        seen = list(store.observations(mode="campaign"))
        problem = seen[0].candidate.problem
        quarantined = store.quarantined(problem.key, seen[0].device)
        tasks = claims(store).counts()
    outcomes = {each.candidate.id: each for each in seen}
    assert len(outcomes) == len(seen)
    assert outcomes["ruinous/killed"].outcome is Outcome.CRASHED
    assert outcomes["ruinous/killed"].reason == "its process died of SIGKILL"
    assert outcomes["ruinous/hangs"].outcome is Outcome.HUNG
    assert outcomes["ruinous/hangs"].reason == "its process did not answer within 3 s"
    assert outcomes["ruinous/wrong"].outcome is Outcome.FAILED
    assert str(outcomes["ruinous/wrong"].reason).startswith("failed: largest scaled error on normal data is")
    assert set(quarantined) == {"ruinous/killed", "ruinous/hangs"}
    for name in ("torch/default", "ruinous/fine"):
        measured = outcomes[name].measurement
        assert outcomes[name].outcome is Outcome.MEASURED
        assert measured is not None
        assert measured.device_us.low <= measured.device_us.value <= measured.device_us.high
        assert len(outcomes[name].rounds_us) >= 2
        assert dict(measured.conditions)["origin"].startswith("networks:")
        assert [error.kind for error in measured.errors] == ["normal"]
    assert (tasks["done"], tasks["claimed"]) == (1, 0)
    assert tasks["open"] >= 63


def done(store: Store) -> int:
    """How many tasks of the campaign were done."""
    return claims(store).counts()["done"]


@pytest.mark.slow
def test_a_full_disk_ends_a_campaign_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "COMMAND", made_child.command("fine"))
    place = tmp_path / "store.sqlite"
    Store.open(place).close()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (place.stat().st_size + 60_000, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"the store of findings at .*store\.sqlite failed: "):
            cw.sample("cpu", seconds=120, sources="networks", store=place, timing_us=5e3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Store.open(place) as store:  # what was kept before is whole
        kept = list(store.observations())
        assert done(store) == len({each.candidate.problem.key for each in kept})
