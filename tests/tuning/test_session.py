"""The process's memory of choices, within one process and across two."""

from __future__ import annotations

import ast
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import convwright as cw
from convwright import flags
from convwright.backends import registry
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode, Settings, settings
from convwright.store.store import Store
from convwright.tuning import run as tuner
from convwright.tuning import session as sessions
from convwright.tuning.choose import Eager
from convwright.tuning.find import find
from convwright.tuning.session import Choice, Session, session, using
from convwright.tuning.trials import quick_timing, side_by_side
from forked import in_child
from tuning.made import CPU, PROBLEM, FakeTuner, candidate, choose


def test_mode_off_leaves_everything_to_pytorch(fake: FakeTuner) -> None:
    assert choose(mode=Mode.OFF).is_torch
    assert fake.calls == []
    assert choose("reference/gemm", mode=Mode.OFF).candidate.id == "reference/gemm"


def test_where_nothing_is_known_pytorchs_own_call_serves(fake: FakeTuner) -> None:
    choice = choose(mode=Mode.HEURISTIC)
    assert choice.is_torch
    assert choice.device_us is None
    assert choice.torch_device_us is None


def test_the_best_is_chosen_and_says_what_it_and_pytorchs_own_call_take(fake: FakeTuner) -> None:
    choice = choose()
    assert choice.candidate.id == "reference/gemm"
    assert choice.device_us is not None
    assert choice.torch_device_us is not None
    assert choice.device_us.high == pytest.approx(10 * 1.001)
    assert choice.torch_device_us.low == pytest.approx(100 * 0.999)


def test_a_problem_is_searched_once(fake: FakeTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Session(Mode.QUICK, Store.open(None))
    first = made.answer(PROBLEM, CPU, Policy(), None, None).captured
    monkeypatch.setattr(tuner, "measure_candidates", None)
    monkeypatch.setattr("convwright.tuning.session.find", None)
    assert made.answer(PROBLEM, CPU, Policy(), None, None).captured is first


def test_a_capture_takes_what_is_in_doubt_and_nothing_that_is_forgotten(
    fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Session(Mode.QUICK, Store.open(None))
    first = here.answer(PROBLEM, CPU, Policy(), None, None).captured

    def captured() -> Choice:
        with monkeypatch.context() as inside:
            inside.setattr("convwright.tuning.session.capturing", lambda device: True)
            return here.answer(PROBLEM, CPU, Policy(), None, None).captured

    here._reconsider(PROBLEM)
    assert here.chosen == ()
    assert captured() is first
    second = here.answer(PROBLEM, CPU, Policy(), None, None).captured
    assert second is not first
    assert here.chosen == (second,)
    assert captured() is second
    here._reconsider(PROBLEM)
    here.forget()
    assert captured().is_torch


def test_another_policy_and_other_flags_are_other_questions(fake: FakeTuner) -> None:
    made = Session(Mode.QUICK, Store.open(None))
    assert made.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "reference/gemm"
    assert made.answer(PROBLEM, CPU, Policy(max_workspace_bytes=0), None, None).captured.is_torch
    torch.use_deterministic_algorithms(True)
    try:
        made.answer(PROBLEM, CPU, Policy(deterministic=True), None, None)
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(fake.calls) == 3


def test_without_onednn_it_is_another_question(fake: FakeTuner) -> None:
    here = Session(Mode.QUICK, Store.open(None))
    here.answer(PROBLEM, CPU, Policy(), None, None)
    with torch.backends.mkldnn.flags(enabled=False):
        here.answer(PROBLEM, CPU, Policy(), None, None)
    assert len(here.chosen) == 2


def test_times_of_pytorchs_own_call_hold_for_the_libraries_that_it_may_use() -> None:
    torchs = registry.backend("torch")
    gpu = device_facts("h200")
    with torch.backends.mkldnn.flags(enabled=True), torch.backends.cudnn.flags(enabled=True):
        both = [torchs.fingerprint(device) for device in (CPU, gpu)]
    with torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False):
        neither = [torchs.fingerprint(device) for device in (CPU, gpu)]
    assert not set(both) & set(neither)


@pytest.mark.parametrize("benchmark", [False, True])
def test_times_of_pytorchs_own_call_hold_for_the_determinism_that_was_asked_for(benchmark: bool) -> None:
    """Either flag changes which of cuDNN's algorithms it runs; on a CPU neither does."""
    torchs, gpu = registry.backend("torch"), device_facts("h200")
    with torch.backends.cudnn.flags(enabled=True, benchmark=benchmark, deterministic=False):
        free, on_cpu = torchs.fingerprint(gpu), torchs.fingerprint(CPU)
        torch.use_deterministic_algorithms(True)
        try:
            strict = torchs.fingerprint(gpu)
            assert torchs.fingerprint(CPU) == on_cpu
        finally:
            torch.use_deterministic_algorithms(False)
        assert torchs.fingerprint(gpu) == free
    with torch.backends.cudnn.flags(enabled=True, benchmark=benchmark, deterministic=True):
        assert torchs.fingerprint(gpu) == strict != free


def test_the_same_choice_has_the_same_plan() -> None:
    made = Session(Mode.OFF, Store.open(None))
    one, other = (made.answer(PROBLEM, CPU, Policy(max_error=e), "reference/gemm", None).captured for e in (1.0, 2.0))
    assert one.plan() is other.plan()


def test_flags_are_read_at_the_call() -> None:
    gpu = device_facts("h200")
    with flags.tf32(True):
        assert "tf32" in flags.completed(Policy(), DType.FP32, gpu).arithmetic  # type: ignore[operator]
        with flags.tf32(False):
            assert "tf32" not in flags.completed(Policy(), DType.FP32, gpu).arithmetic  # type: ignore[operator]
        assert flags.tf32_allowed()
        with torch.backends.cudnn.flags(enabled=False, allow_tf32=True):  # and PyTorch's own kernels know no TF32
            assert not flags.tf32_allowed()
    assert "tf32" not in flags.completed(Policy(), DType.FP32, CPU).arithmetic  # type: ignore[operator]


def test_the_session_is_as_the_environment_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert session().store.path is None
    assert session() is session()
    monkeypatch.setenv("CONVWRIGHT_MODE", "off")
    monkeypatch.setenv("CONVWRIGHT_STORE", str(tmp_path / "s.sqlite"))
    settings.cache_clear()
    assert settings() == Settings(Mode.OFF, tmp_path / "s.sqlite")
    monkeypatch.delenv("CONVWRIGHT_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings.cache_clear()
    for name in "MODE", "TRUST", "NVTX":
        monkeypatch.setenv(f"CONVWRIGHT_{name}", "")  # as good as none
    assert settings() == Settings(Mode.QUICK, tmp_path / "convwright" / "findings.sqlite")
    settings.cache_clear()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CONVWRIGHT_STORE", "~/s.sqlite")
    assert settings().store_path == tmp_path / "home" / "s.sqlite"
    settings.cache_clear()
    monkeypatch.setenv("CONVWRIGHT_STORE", "~nobody at all/s.sqlite")
    with pytest.raises(BadInput, match="CONVWRIGHT_STORE begins with the home of a user who is not known here: '~nob"):
        settings()
    monkeypatch.setenv("CONVWRIGHT_MODE", "fast")
    settings.cache_clear()
    there = "off, heuristic, predict, predict-top, quick, full"
    with pytest.raises(BadInput, match=f"CONVWRIGHT_MODE must be one of {there}, got 'fast'"):
        settings()


def test_last_choice_is_none_at_first() -> None:
    assert cw.last_choice() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_second_process_chooses_the_same_without_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_STORE", str(tmp_path / "shared.sqlite"))
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    settings.cache_clear()
    monkeypatch.setattr(side_by_side, "doubt", lambda timing, look_us: None)  # other work does not count here
    monkeypatch.setattr(quick_timing, "MOST_WAITING", float("inf"))
    monkeypatch.setattr(sessions, "SEARCHED", ("cpu",))  # as on a GPU
    measured, measure = [], tuner.measure_candidates

    def counting(*rest: Any, **keywords: Any) -> Any:
        measured.append(1)
        return measure(*rest, **keywords)

    monkeypatch.setattr(tuner, "measure_candidates", counting)

    def work() -> str:
        torch.set_num_threads(1)
        x, w = torch.ones(2, 4, 8, 8), torch.ones(4, 4, 3, 3)
        for _ in range(2):  # a problem is worth a search when it comes again
            cw.conv2d(x, w, padding=1)
        choice = cw.last_choice()
        return f"{len(measured)} {choice and choice.candidate.id}"

    first, second = (in_child(work).split(maxsplit=1) for _ in range(2))
    assert (first[0], second[0]) == ("1", "0")
    assert first[1] == second[1] != "None"


UNUSABLE = """
import sys, warnings
import torch
import convwright as cw

x, w = torch.ones(2, 4, 8, 8), torch.ones(4, 4, 3, 3)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        cw.conv2d(x, w, padding=1)
    with cw.enabled():
        torch.nn.functional.conv2d(x, w)
    cw.find(x, w, mode="heuristic")
print([f"{each.category.__name__}: {each.message}" for each in caught])
"""


@pytest.mark.slow
def test_calls_are_computed_whatever_the_store_is_and_it_is_said_once(tmp_path: Path) -> None:
    newer, corrupt = tmp_path / "newer.sqlite", tmp_path / "corrupt.sqlite"
    Store.open(newer).close()
    with closing(sqlite3.connect(newer)) as file:
        file.execute("PRAGMA user_version = 99")
    corrupt.write_bytes(b"SQLite format 3\x00" + b"and then nothing that it could read" * 100)
    for path, said in ((newer, "findings are kept in memory only"), (corrupt, f"{corrupt} was corrupt and now lies")):
        environment = {**os.environ, "CONVWRIGHT_STORE": str(path), "CONVWRIGHT_MODE": "quick"}
        command = [sys.executable, "-c", UNUSABLE]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        (warning,) = ast.literal_eval(done.stdout)
        assert warning.startswith(f"StoreWarning: {said}")
        assert done.stderr == ""


def test_a_policy_that_allows_nothing_is_refused_in_words() -> None:
    nothing = Policy(arithmetic={Arithmetic.INT8})
    with pytest.raises(
        Refused, match=f"nothing that computes {PROBLEM.key} is allowed: torch/default computes in fp32"
    ):
        choose(mode=Mode.HEURISTIC, policy=nothing)


def test_where_pytorchs_own_call_is_not_allowed_the_first_that_is_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def offers(*_: Any) -> Iterator[Candidate]:
        yield candidate("torch/default", deterministic=None)

    monkeypatch.setattr("convwright.backends.torch_native.backend.TorchNative.candidates", offers)
    choice = choose(mode=Mode.HEURISTIC, policy=Policy(deterministic=True))
    assert choice.candidate.id == "reference/gemm"


def test_a_store_called_none_is_memory_and_a_home_is_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with using("none") as store:
        assert store.path is None
    with using("~/kept.sqlite") as store:
        assert store.path == tmp_path / "kept.sqlite"
    assert [each.name for each in tmp_path.iterdir() if each.name in ("none", "~")] == []
    with pytest.raises(BadInput, match="`store` takes a path, got ''"), using(""):
        pass


def fast_and_slow(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    return FakeTuner({"reference/gemm": 10.0, "reference/direct": 20.0}).in_place(monkeypatch)


def test_an_eager_call_and_a_captured_one_have_their_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    fast_and_slow(monkeypatch)
    dear = Eager(extra_us=lambda candidate: 25.0 if candidate.algorithm == "gemm" else 1.0)
    store = Store.open(None)
    for _ in range(2):  # the second is a process that takes both from the store
        answer = Session(Mode.QUICK, store).answer(PROBLEM, CPU, Policy(), None, dear)
        assert answer.captured.candidate.id == "reference/gemm"
        assert answer.eager.candidate.id == "reference/direct"  # 25 µs are more than a quarter of the 90 that are saved


def test_calls_on_a_cpu_do_not_search(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, store = fast_and_slow(monkeypatch), Store.open(None)
    monkeypatch.setattr(sessions, "SEARCHED", ("cuda",))
    here = Session(Mode.QUICK, store)
    assert here.answer(PROBLEM, CPU, Policy(), None, Eager(tie=0.1)).eager.is_torch
    assert fake.calls == []
    find(PROBLEM, CPU, Policy(), mode=Mode.QUICK, store=store)
    here.forget()
    assert here.answer(PROBLEM, CPU, Policy(), None, Eager(tie=0.1)).eager.candidate.id == "reference/gemm"


def test_a_plan_is_searched_for_on_a_cpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fast_and_slow(monkeypatch)
    monkeypatch.setattr(sessions, "SEARCHED", ("cuda",))
    here = Session(Mode.QUICK, Store.open(None))
    assert here.plan(PROBLEM, CPU, Policy()).candidate.id == "reference/gemm"
    assert here.plan(PROBLEM, CPU, Policy()) is here.plan(PROBLEM, CPU, Policy())
    assert len(fake.calls) == 1


def test_a_search_that_a_busy_machine_left_without_a_conclusion_is_not_repeated_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, store = fast_and_slow(monkeypatch), Store.open(None)
    fake.doubt = "unstable: other work had the cores"
    for process in range(2):
        here = Session(Mode.QUICK, store)
        answer = here.answer(PROBLEM, CPU, Policy(), None, None)
        assert answer.eager.is_torch
        assert not answer.lasts
        again = here.answer(PROBLEM, CPU, Policy(), None, None)
        assert (again.eager.is_torch, again.lasts) == (True, False)
        assert len(fake.calls) == 1, process
    fake.doubt = None
    monkeypatch.setattr(sessions, "_BUSY_S", 0.0)
    assert here.answer(PROBLEM, CPU, Policy(), None, None).eager.candidate.id == "reference/gemm"


def test_two_devices_search_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search waits for the other to have begun; on one device they wait for each other to end."""
    devices = [replace(CPU, torch_name=name) for name in ("cpu", "cpu:0")]
    both, running, most = threading.Barrier(2, timeout=20), [0], [0]
    own = sessions.find

    def slow(problem: ConvProblem, device: DeviceFacts, *rest: Any, **more: Any) -> Any:
        if met:
            both.wait()
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        running[0] -= 1
        return own(problem, CPU, *rest, **more)

    fast_and_slow(monkeypatch)
    monkeypatch.setattr(sessions, "find", slow)
    for met, asked in ((True, devices), (False, devices[:1] * 2)):
        here, most[0] = Session(Mode.QUICK, Store.open(None)), 0
        threads = [
            threading.Thread(target=here.answer, args=(PROBLEM, device, Policy(max_error=1.0 + i), None, None))
            for i, device in enumerate(asked)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert most == [2 if met else 1]
