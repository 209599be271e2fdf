"""Candidates that end the process in which they run: each is a failure in words, and the others are measured."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import convwright as cw
from convwright.backends import registry
from convwright.errors import BackendError
from convwright.measuring.hardware.machine import device_facts
from convwright.store.store import Store
from convwright.tuning import chains, worker, workers
from convwright.tuning.trials import isolation
from convwright.tuning.trials.isolation import Switches
from forked_worker import forked_workers
from opened import opened

ROOT = Path(cw.__file__).parents[1]


@pytest.fixture
def _ruinous(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    own = {"torch": registry.BACKENDS["torch"], "ruinous": "tuning.made_backend:Ruinous"}
    monkeypatch.setattr(registry, "BACKENDS", own)
    monkeypatch.setattr(chains, "REWRITES", ())
    registry.imported.cache_clear()
    yield
    registry.imported.cache_clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.usefixtures("_ruinous")
def test_a_crash_a_hang_and_an_end_are_failures_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "MOST_LOOKING_S", 3.0)
    with forked_workers(worker.serve), Store.open(None) as store:
        found = cw.find("mb2ic4ih8oc4kh3ph1", device="cpu", mode="quick", isolate=True, store=store, budget_us=1e6)
        rows = {verdict.finding.candidate.id: verdict for verdict in found.verdicts}
        stored = store.findings(found.problem.key, device_facts("cpu").key)
    assert {name: rows[f"ruinous/{name}"].reason for name in ("killed", "segfault", "exits", "hangs")} == {
        "killed": "failed: its process died of SIGKILL",
        "segfault": "failed: its process died of SIGSEGV",
        "exits": "failed: its process ended with code 3",
        "hangs": "failed: its process did not answer within 3 s",
    }
    assert stored["ruinous/segfault"].failure == "failed: its process died of SIGSEGV"
    for name in ("torch/default", "ruinous/fine"):
        measured = rows[name].finding.measurement
        assert measured is not None
        assert measured.device_us.value > 0


@pytest.mark.slow
def test_what_is_found_in_another_process_is_found_as_here() -> None:
    with Store.open(None) as store:
        found = cw.find("ic2ih4oc2kh1", device="cpu", mode="quick", isolate=True, store=store, budget_us=1e6)
    assert found.choice is not None
    assert found.choice.measurement is not None
    assert dict(found.choice.measurement.conditions)["mode"] == "quick"
    ran = [v for v in found.verdicts if v.finding.measurement is not None]
    assert {v.finding.candidate.id for v in ran} >= {"torch/default"}


BROKEN = "from convwright.tuning.worker import serve; serve({'measure': lambda say, request: {}['no such thing']})"


@pytest.mark.slow
@pytest.mark.usefixtures("_ruinous")
def test_an_error_of_the_other_process_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", BROKEN])
    with pytest.raises(BackendError, match="the process that measures candidates failed: KeyError"):
        cw.find("ic2ih4oc2kh1", device="cpu", mode="quick", isolate=True, store=Store.open(None))


def test_a_process_that_cannot_be_started_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "COMMAND", ["/no such python"])
    before = opened()
    with pytest.raises(BackendError, match=r"the process that measures candidates could not be started: .*/no such py"):
        cw.find("ic2ih4oc2kh1", device="cpu", mode="quick", isolate=True, store=Store.open(None))
    assert opened() <= before


SET = """
import pickle, sys, torch
from convwright.tuning.trials.isolation import Switches
torch.backends.cudnn.conv.fp32_precision, torch.backends.cudnn.rnn.fp32_precision = "ieee", "tf32"
before = Switches.now()
for switches in pickle.loads(bytes.fromhex(sys.argv[1])):
    switches.set()
    assert Switches.now() == switches, (Switches.now(), switches)
print(before.tf32)
"""


@pytest.mark.slow
def test_switches_are_carried_over_whatever_they_are() -> None:
    """In a process of its own, since those of precision cannot be set back to what was inherited."""
    every = [Switches(*(place == index for place in range(7))) for index in range(1, 6)]  # one at a time
    every.append(Switches(*(place < 2 for place in range(7))))  # without cuDNN there is no TF32
    every += [Switches(*[True] * 7), Switches(*[False] * 7)]
    command = [sys.executable, "-W", "ignore", "-c", SET, pickle.dumps(every).hex()]
    there = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=there)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.slow
def test_what_a_process_says_by_the_way_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loud = "import sys; sys.stderr.write('a warning ' * 100_000); from convwright.tuning.worker import serve; serve()"
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", loud])
    monkeypatch.setattr(isolation, "MOST_SILENT_S", 30.0)
    found = cw.find("ic2ih4oc2kh1", device="cpu", mode="quick", isolate=True, store=Store.open(None), budget_us=1e6)
    assert [v.finding.failure for v in found.verdicts if v.finding.candidate.id == "torch/default"] == [None]
    assert any(v.finding.measurement is not None for v in found.verdicts)
