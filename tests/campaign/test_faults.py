"""Candidates that end their process or hang, a full disk, a command that is killed: nothing is lost and nothing counts
twice."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic, sleep

import pytest

import convwright as cw
from campaign import made_child
from convwright.campaign import child, series
from convwright.campaign.drawn import Drawn
from convwright.core.observation import Outcome
from convwright.errors import StoreError
from convwright.measuring.hardware.machine import device_facts
from convwright.store.store import Store


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
                "cpu", seconds=120, sources="networks", store=store, deadline_s=2.0, timing_us=5e3, progress=Stop(1)
            )
        seen = list(store.observations(mode="campaign"))
        problem = seen[0].candidate.problem
        quarantined = store.quarantined(problem.key, seen[0].device)
        tasks = series.Claims(store, f"seed 0 on {seen[0].device}").counts()
    outcomes = {each.candidate.id: each for each in seen}
    assert len(outcomes) == len(seen)
    assert outcomes["ruinous/killed"].outcome is Outcome.CRASHED
    assert outcomes["ruinous/killed"].reason == "its process died of SIGKILL"
    assert outcomes["ruinous/hangs"].outcome is Outcome.HUNG
    assert outcomes["ruinous/hangs"].reason == "its process did not answer within 2 s"
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


# The command, whose processes measure nothing but PyTorch's own call and one that is as right.
COMMAND = """
import sys
sys.path.append({tests!r})
from campaign import made_child
from convwright.campaign import child
from convwright.cli.main import main
child.COMMAND = made_child.command("fine")
main()
"""


def begun(store: Path) -> subprocess.Popen[str]:
    """The command, which has begun."""
    script = COMMAND.format(tests=made_child.TESTS)
    words = ["sample", "--device", "cpu", "--for", "2m", "--sources", "networks", "--store", str(store)]
    return subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def done(store: Store) -> int:
    """How many tasks of the campaign were done."""
    facts = device_facts("cpu")
    return series.Claims(store, f"seed 0 on {facts.key}").counts()["done"]


def test_a_command_that_is_killed_loses_nothing_and_nothing_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "COMMAND", made_child.command("fine"))
    monkeypatch.setattr(series, "STALE_S", 0.5)
    place, began_s = tmp_path / "store.sqlite", monotonic()
    with begun(place) as command, Store.open(place) as store:
        while not store.observed(device_facts("cpu").key):
            assert command.poll() is None, command.communicate()
            assert monotonic() - began_s < 120
            sleep(0.05)
        command.send_signal(signal.SIGKILL)
        command.communicate()
        before = done(store)
        with pytest.raises(KeyboardInterrupt):
            cw.sample("cpu", seconds=120, sources="networks", store=store, progress=Stop(2))
        after, seen = done(store), list(store.observations())
    places = Counter(
        (conditions["problem number"], "measured" in conditions, each.candidate.id)
        for each in seen
        if each.measurement is not None
        for conditions in [dict(each.measurement.conditions)]
    )
    assert before >= 1
    assert after >= before + 2
    assert set(places.values()) == {1}
    # The problem that was claimed when the command was killed is anybody's to claim, and no other is missing.
    with Store.open(place) as store:
        left = series.Claims(store, f"seed 0 on {seen[0].device}").claim("another", 1000, 0.5)
    numbers = {int(number) for number, again, _ in places if not again}
    claimed = {Drawn.read(body).number for _, body in left}
    assert max(numbers) > min(claimed)
    assert not numbers & {Drawn.read(body).number for _, body in left if not Drawn.read(body).again}
    assert numbers | claimed == set(range(64))


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
