"""Child processes that do tasks: several, one that died, one that hangs, none; and what a compiler does there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from convwright.backends import registry
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.tuning import listing, workers
from convwright.tuning.workers import Abandoned, TaskFailed, Worker, WorkerDied, WorkerNotStarted, WorkerPool
from opened import opened
from tuning.fatal import kernel, written
from tuning.made import CPU

MOST_NICENESS = 19


def compiled(pool: WorkerPool, what: object, **how: Any) -> bool:
    """Whether a worker could be had that compiles."""
    try:
        pool.ask("compile", kernel(what), CPU, **how)
    except WorkerNotStarted:
        return False
    return True


def none_left() -> tuple[int, int]:
    raise OSError(24, "Too many open files")


def test_one_process_compiles_all_that_is_asked_for_in_turn(fatal: None, tmp_path: Path) -> None:
    asked = WorkerPool(4, niceness=3)
    assert [compiled(asked, tmp_path / str(i)) for i in range(3)] == [True] * 3
    said = {written(tmp_path / str(i)) for i in range(3)}
    assert len(said) == 1
    ((process, niceness),) = said
    assert process != os.getpid()
    assert niceness == min(os.getpriority(os.PRIO_PROCESS, 0) + 3, MOST_NICENESS)


@pytest.mark.slow
def test_several_at_once_but_no_more_than_are_allowed(fatal: None, tmp_path: Path) -> None:
    asked = WorkerPool(2)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda i: compiled(asked, tmp_path / str(i)), range(6)))
    assert 1 <= len({written(tmp_path / str(i))[0] for i in range(6)}) <= 2


@pytest.mark.slow
def test_one_that_nobody_asked_for_a_while_is_followed_by_another(fatal: None, tmp_path: Path) -> None:
    asked = WorkerPool(1, idle_s=0.05)
    assert compiled(asked, tmp_path / "first")
    time.sleep(1.0)
    assert compiled(asked, tmp_path / "second")
    assert written(tmp_path / "first")[0] != written(tmp_path / "second")[0]


@pytest.mark.parametrize(
    "command", [["/nowhere/python"], ["", "-c"], ["/usr/bin/uwsgi"], [sys.executable, "-c", "raise SystemExit(1)"]]
)
def test_without_a_process_that_is_said(fatal: None, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr(workers, "COMMAND", command)
    asked = WorkerPool(1)
    assert not compiled(asked, "anything")
    monkeypatch.setattr(subprocess, "Popen", None)
    assert not compiled(asked, "anything")


def test_a_kernel_of_tritons_is_compiled_for_a_gpu_that_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("Triton's interpreter compiles nothing")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    problem, device = ConvProblem.parse("mb1ic16ih8oc16kh3 dt:fp16 tag:nhwc"), profile("h200")
    offered = listing.candidates(registry.backend("triton").candidates(problem, device, listing.Policy()))
    WorkerPool(1).ask("compile", offered[0], device)
    assert len([*tmp_path.rglob("*.cubin")]) == 1


def test_the_process_that_compiles_loads_no_pytorch() -> None:
    code = "import sys; import convwright.tuning.worker, convwright.backends.triton.implicit_gemm.offers; "
    code += "print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_one_that_could_not_be_started_is_tried_again_after_a_pause(
    fatal: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "PAUSE_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", none_left)
        asked = WorkerPool(1)
        assert not compiled(asked, tmp_path / "first")
    time.sleep(0.2)
    assert compiled(asked, tmp_path / "second")
    assert not (tmp_path / "first").exists()
    assert written(tmp_path / "second")[0] != os.getpid()


def test_the_pause_grows_until_one_is_started(fatal: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []
    now_s = 100.0

    def none_left_at() -> tuple[int, int]:
        tried.append(now_s)
        return none_left()

    asked = WorkerPool(1)
    with monkeypatch.context() as patch:
        patch.setattr(workers, "perf_counter", lambda: now_s)
        patch.setattr(os, "pipe", none_left_at)
        while now_s < 110.0:
            compiled(asked, tmp_path / "none")
            now_s += 0.5
    assert tried == [100.0, 101.0, 103.0, 107.0]


def test_where_python_is_no_program_nothing_is_ever_tried(fatal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(workers, "PAUSE_S", 0.0)
    asked = WorkerPool(1)
    assert [compiled(asked, "anything") for _ in range(2)] == [False, False]


def test_who_interrupts_this_process_does_not_mean_the_compiler(fatal: None, tmp_path: Path) -> None:
    asked = WorkerPool(1)
    assert compiled(asked, tmp_path / "first")
    assert os.getpgid(written(tmp_path / "first")[0]) != os.getpgid(0)


def test_one_that_has_ended_leaves_nothing_behind(fatal: None, tmp_path: Path) -> None:
    before = opened()
    asked = WorkerPool(1, idle_s=0.05)
    assert compiled(asked, tmp_path / "first")
    process = written(tmp_path / "first")[0]
    for _ in range(200):
        if not asked.idle:
            break
        time.sleep(0.05)
    time.sleep(0.1)
    assert not os.path.exists(f"/proc/{process}")
    assert opened() <= before


def test_the_last_one_that_rests_may_end_while_it_is_asked_for(fatal: None, tmp_path: Path) -> None:
    class Emptied(list[Any]):
        """What another thread has taken the last one from since somebody looked."""

        def __bool__(self) -> bool:
            return True

    asked = WorkerPool(1)
    asked._idle = Emptied()
    assert compiled(asked, tmp_path / "first")
    assert written(tmp_path / "first")[0] != os.getpid()


@pytest.mark.slow
def test_those_that_were_started_before_are_the_ones_that_compile(fatal: None, tmp_path: Path) -> None:
    asked = WorkerPool(2)
    asked.start(5)
    until_s = time.monotonic() + 20
    while len(asked.idle) < 2 and time.monotonic() < until_s:
        time.sleep(0.05)
    ready = set(asked.idle)
    assert len(ready) == 2
    asked.start(5)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda i: compiled(asked, tmp_path / str(i)), range(4)))
    assert {written(tmp_path / str(i))[0] for i in range(4)} <= ready


TASKS = """
import sys
sys.path[:0] = {paths}
import os, time
from convwright.errors import BadInput
from convwright.tuning.worker import serve

def count(say, most):
    for number in range(most):
        say(number)
        time.sleep(0.1)
    return most

def refuse(say):
    raise BadInput("no such thing")

def fail(say):
    raise KeyError("no such thing")

def leave(say):
    print("a last word", file=sys.stderr, flush=True)
    os._exit(4)

serve({{"count": count, "refuse": refuse, "fail": fail, "leave": leave, "big": lambda say, n: b"x" * n, "pid": lambda say: os.getpid()}})
"""  # noqa: E501


def worker(**asked: Any) -> Worker:
    return Worker(command=[sys.executable, "-c", TASKS.format(paths=sys.path)], **asked)


def test_a_deadline_holds_for_each_message() -> None:
    said: list[int] = []
    with worker() as asked:
        assert asked.ask("count", 4, patience_s=0.4 * 5, hear=said.append) == 4
        with pytest.raises(WorkerDied, match=r"^did not answer within 0\.05 s$"):
            asked.ask("count", 4, patience_s=0.05)
        assert not asked.is_alive
    assert said == [0, 1, 2, 3]


def test_an_error_of_ours_is_one_sentence_and_any_other_ends_the_worker() -> None:
    with worker() as asked:
        with pytest.raises(TaskFailed, match=r"^BadInput: no such thing$"):
            asked.ask("refuse")
        assert asked.ask("pid") == asked.pid
        with pytest.raises(TaskFailed, match=r"^KeyError: "):
            asked.ask("fail")
        assert not asked.is_alive


def test_what_it_says_last_is_kept_and_large_answers_come_whole() -> None:
    with worker() as asked:
        assert len(asked.ask("big", 3_000_000)) == 3_000_000
        with pytest.raises(WorkerDied, match=r"^ended with code 4: a last word$"):
            asked.ask("leave")
        assert asked.log == "a last word\n"


def test_what_is_over_is_not_waited_for() -> None:
    over = threading.Event()
    with worker() as asked:
        threading.Timer(0.3, over.set).start()
        with pytest.raises(Abandoned):
            asked.ask("count", 300, is_over=over.is_set)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/nowhere/python"], r"could not be started: .*/nowhere/python"),
        (["/usr/bin/uwsgi"], "could not be started: /usr/bin/uwsgi is not a Python interpreter"),
        ([sys.executable, "-c", "raise KeyError(3)"], "could not be started: it ended with code 1: KeyError: 3"),
    ],
)
def test_one_that_cannot_be_started_is_one_sentence(command: list[str], why: str) -> None:
    before = opened()
    with pytest.raises(WorkerNotStarted, match=why):
        Worker(command=command)
    assert opened() <= before


@pytest.mark.slow
def test_the_pause_after_a_failed_start_ends_with_the_next_success(
    fatal: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, pool = 100.0, WorkerPool(1)

    def ask() -> bool:
        return compiled(pool, tmp_path / "any")

    def fails() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pipe", none_left)
            assert not ask()

    monkeypatch.setattr(workers, "perf_counter", lambda: now_s)
    fails()
    now_s += 1.5
    fails()  # for two seconds from here
    now_s += 1.5
    assert not ask()
    now_s += 1.0
    assert ask()
    pool._idle.pop().end()
    fails()  # for one second again
    now_s += 1.2
    assert ask()


@pytest.mark.slow
def test_what_loads_triton_loads_all_that_a_kernel_needs() -> None:
    pytest.importorskip("triton")
    told = """
import sys
from convwright.tuning.worker import load_compilers
load_compilers(print, [("torch", "conv")])
assert "triton" not in sys.modules
load_compilers(print, [("triton", "conv")])
before = {name for name in sys.modules if name.startswith("triton")}
import convwright.backends.triton.implicit_gemm.offers, convwright.backends.triton.weight_gradient.offers
print(len(before) > 50, {name for name in sys.modules if name.startswith("triton")} - before)
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "True set()\n"
