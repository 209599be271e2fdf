"""Kernels are compiled in the order of their priority, several at once, and whoever wants them hears of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from time import perf_counter

import pytest

from convwright.core.candidate import Candidate
from convwright.tuning import compile_queue as queues
from convwright.tuning import workers
from convwright.tuning.compile_queue import CompileQueue, Priority, compile_queue
from tuning.fatal import kernel as fatal_kernel
from tuning.fatal import written
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, Way, offer

NAMES = [f"kernel-{i}" for i in range(6)]


def kernel(number: int) -> Candidate:
    return replace(offer(PROBLEM, f"compiled/kernel-{number}"), compiles=True)


@pytest.fixture
def queue(made: Made) -> CompileQueue:
    made.compiled = {name: Way(500.0) for name in NAMES}
    compile_queue().most = 1
    return compile_queue()


class Gate:
    """Holds up whatever compiles, or only what is called so; ``seen`` is what came to it, in order."""

    def __init__(self, made: Made, only: str = "") -> None:
        self.go, self.seen, self.at_it = threading.Event(), list[str](), threading.Event()
        self._only = only
        made.compiler = self

    def __call__(self, id_: str) -> None:
        self.seen.append(id_)
        self.at_it.set()
        if self._only in id_:
            assert self.go.wait(20)


def wanted(queue: CompileQueue, numbers: list[int], priority: Priority = Priority.SEARCH, **more: object) -> None:
    assert queue.want(map(kernel, numbers), CPU, priority, **more) is None  # type: ignore[arg-type]


def order(gate: Gate) -> list[int]:
    return [int(id_[-1]) for id_ in gate.seen]


def test_what_is_wanted_comes_in_order_and_each_once(queue: CompileQueue, made: Made) -> None:
    gate = Gate(made)
    gate.go.set()
    wanted(queue, [3, 1, 3, 2])
    wanted(queue, [1, 4])
    queue.wait_for_all()
    assert order(gate) == [3, 1, 2, 4]
    assert [queue.came(kernel(i), CPU) for i in (1, 2, 3, 4, 5)] == ["", "", "", "", None]


def test_a_search_comes_before_the_next_one_and_both_before_calls(queue: CompileQueue, made: Made) -> None:
    gate = Gate(made)
    wanted(queue, [0])
    assert gate.at_it.wait(20)
    wanted(queue, [1], Priority.BACKGROUND)
    wanted(queue, [2, 3], Priority.NEXT)
    wanted(queue, [4, 3])
    gate.go.set()
    queue.wait(lambda: queue.came(kernel(2), CPU) == "", perf_counter() + 20)
    wanted(queue, [2])  # which was compiled, and is now built in this process as well
    queue.wait_for_all()
    assert order(gate) == [0, 3, 4, 2, 1]


def test_what_only_the_next_searches_want_is_not_built_here(queue: CompileQueue, made: Made) -> None:
    wanted(queue, [0], Priority.NEXT, loads=False)
    queue.wait_for_all()
    assert (queue.came(kernel(0), CPU), made.built) == ("", [])
    wanted(queue, [0])
    queue.wait_for_all()
    assert made.built == [kernel(0).id]


def test_what_is_wanted_here_just_before_it_is_done_is_built_here(
    queue: CompileQueue, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = queue._done

    def done(job: object) -> str | None:
        came = compiled(job)  # type: ignore[arg-type]
        wanted(queue, [0])
        return came

    monkeypatch.setattr(queue, "_done", done)
    wanted(queue, [0], Priority.NEXT, loads=False)
    queue.wait_for_all()
    assert made.built == [kernel(0).id]


def test_several_at_once_but_no_more_than_are_allowed(queue: CompileQueue, made: Made) -> None:
    queue.most, meeting = 3, threading.Barrier(3)
    at_once, most = 0, 0
    counting = threading.Lock()

    def compiler(id_: str) -> None:
        nonlocal at_once, most
        with counting:
            at_once += 1
            most = max(most, at_once)
        meeting.wait(20)
        with counting:
            at_once -= 1

    made.compiler = compiler
    wanted(queue, [*range(6)])
    queue.wait_for_all()
    assert most == 3


def test_the_background_waits_until_nothing_was_timed_for_a_while(queue: CompileQueue, made: Made) -> None:
    queue.quiet_s, ready = 0.2, threading.Event()
    with queue.timing():
        wanted(queue, [0], Priority.BACKGROUND, subject=PROBLEM, then=ready.set)
        wanted(queue, [1])
        queue.wait(lambda: queue.came(kernel(1), CPU) is not None, perf_counter() + 20)
        time.sleep(0.1)
        assert made.built == [kernel(1).id]
    ended_s = perf_counter()
    assert ready.wait(20)
    assert perf_counter() - ended_s >= 0.2


def test_a_background_caller_hears_of_it_once_all_is_there(queue: CompileQueue, made: Made) -> None:
    heard: list[int] = []
    gate = Gate(made)
    wanted(queue, [0, 1], Priority.BACKGROUND, subject=PROBLEM, then=lambda: heard.append(len(made.built)))
    assert queue.missing(PROBLEM) == 2
    assert queue.missing("another") == 0
    gate.go.set()
    queue.wait_for_all()
    assert (heard, queue.missing(PROBLEM)) == ([2], 0)
    wanted(queue, [0, 1], Priority.BACKGROUND, subject=PROBLEM, then=lambda: heard.append(-1))
    queue.wait_for_all()
    assert heard == [2], "nothing was missing"


def test_who_hurries_comes_before_other_calls(queue: CompileQueue, made: Made) -> None:
    gate = Gate(made, only="kernel-0")
    wanted(queue, [0])
    assert gate.at_it.wait(20)
    wanted(queue, [1, 2], Priority.BACKGROUND, subject="first", then=lambda: None)
    wanted(queue, [3], Priority.BACKGROUND, subject="second", then=lambda: None)
    threading.Timer(0.2, gate.go.set).start()
    assert queue.hurry("second", 20.0)
    queue.wait_for_all()
    assert order(gate) == [0, 3, 1, 2]
    assert not queue.hurry("second", 20.0), "nothing more has come"


def test_who_hurries_waits_so_long_at_most(queue: CompileQueue, made: Made) -> None:
    gate = Gate(made)
    wanted(queue, [1], Priority.BACKGROUND, subject="first", then=lambda: None)
    assert not queue.hurry("first", 0.1)
    gate.go.set()
    queue.wait_for_all()


def test_what_a_search_wanted_and_was_not_begun_is_dropped(queue: CompileQueue, made: Made) -> None:
    gate, heard = Gate(made), list[str]()
    wanted(queue, [0])
    assert gate.at_it.wait(20)
    wanted(queue, [2], Priority.BACKGROUND, then=lambda: heard.append("calls"))
    wanted(queue, [0, 1, 2])
    queue.drop(map(kernel, range(3)), CPU)
    assert [queue.is_wanted(kernel(i), CPU) for i in range(3)] == [True, False, True]
    gate.go.set()
    queue.wait_for_all()
    assert (order(gate), heard) == ([0, 2], ["calls"]), "what is begun is for a later search, and calls wait on"


def test_none_is_begun_after_its_time(queue: CompileQueue, made: Made) -> None:
    gate = Gate(made)
    wanted(queue, [0], until_s=inf)
    assert gate.at_it.wait(20)
    wanted(queue, [1, 2], until_s=perf_counter() + 0.1)
    time.sleep(0.2)
    gate.go.set()
    queue.wait_for_all()
    assert order(gate) == [0]
    assert not queue.is_wanted(kernel(1), CPU)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such instruction\nand a long trace"), "failed: no such instruction"),
        (SystemExit("no such instruction"), "failed: no such instruction"),
        (MemoryError("no room"), "out of memory: no room"),
    ],
)
def test_what_goes_wrong_is_said_and_tried_again_by_searches_alone(
    queue: CompileQueue, made: Made, error: BaseException, said: str
) -> None:
    def broken(id_: str) -> None:
        raise error

    made.compiler = broken
    wanted(queue, [0])
    queue.wait_for_all()
    assert queue.came(kernel(0), CPU) == said
    made.compiler = lambda id_: None
    wanted(queue, [0], Priority.BACKGROUND)
    assert queue.came(kernel(0), CPU) == said
    wanted(queue, [0])
    queue.wait_for_all()
    assert queue.came(kernel(0), CPU) == ""


def test_without_a_thread_that_is_said_and_it_is_wanted_anew(
    queue: CompileQueue, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        said = queue.want([kernel(0)], CPU, Priority.SEARCH)
    assert said == "was not compiled for want of a thread: can't start new thread"
    assert not queue.is_wanted(kernel(0), CPU)
    wanted(queue, [0])
    queue.wait_for_all()
    assert queue.came(kernel(0), CPU) == ""


def test_who_is_interrupted_waits_for_nothing_and_calls_go_on(queue: CompileQueue, made: Made) -> None:
    gate, heard = Gate(made), list[str]()
    wanted(queue, [0])
    assert gate.at_it.wait(20)
    wanted(queue, [1])
    wanted(queue, [2], Priority.BACKGROUND, then=lambda: heard.append("calls"))
    with pytest.raises(KeyboardInterrupt), queue.timing():
        raise KeyboardInterrupt
    assert not queue.is_wanted(kernel(0), CPU)
    gate.go.set()
    queue.wait_for_all()
    assert (order(gate), heard) == ([0, 2], ["calls"])
    assert queue.came(kernel(0), CPU) is None, "what nobody waited for is for a later search"
    wanted(queue, [0, 1])
    queue.wait_for_all()
    assert [queue.came(kernel(i), CPU) for i in (0, 1)] == ["", ""]


def test_an_error_in_one_search_is_no_end_of_what_another_wants(queue: CompileQueue, made: Made) -> None:
    gate = Gate(made)
    wanted(queue, [0])
    with pytest.raises(ZeroDivisionError), queue.timing():
        raise ZeroDivisionError
    gate.go.set()
    queue.wait_for_all()
    assert queue.came(kernel(0), CPU) == ""


_ENDS_EARLY = """
import time
from convwright.tuning import listing
from convwright.tuning.compile_queue import CompileQueue, Priority
from tuning.made import CPU, candidate

def compile(candidate, device):
    print("compiling", flush=True)
    time.sleep(0.5)

listing.build = compile
queue = CompileQueue(most=1, quiet_s=0.0)
queue._workers.ask = lambda *asked, **how: None
queue._load = lambda names: None
queue.want([candidate(f"torch/{name}") for name in "abc"], CPU, Priority.BACKGROUND)
time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_process_that_ends_waits_for_one_compiler_only() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _ENDS_EARLY], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "compiling\n", "")


# In processes of their own.


def came(queue: CompileQueue, what: object) -> str | None:
    asked = fatal_kernel(what)
    queue.want([asked], CPU, Priority.SEARCH, loads=False)
    queue.wait_for_all()
    return queue.came(asked, CPU)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("algorithm", "end"),
    [
        ("segfault", "its compiler died of SIGSEGV"),
        ("killed", "its compiler died of SIGKILL"),
        ("exits", "its compiler ended with code 3"),
    ],
)
def test_what_a_compiler_dies_of_is_told_and_another_follows(
    fatal: None, tmp_path: Path, algorithm: str, end: str
) -> None:
    queue = CompileQueue(most=1)
    assert came(queue, tmp_path / "before") == ""
    assert came(queue, algorithm) == end
    assert came(queue, tmp_path / "after") == ""
    processes = {written(tmp_path / name)[0] for name in ("before", "after")}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_a_compiler_that_hangs_is_ended(fatal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST_COMPILING_S", 0.5)
    assert came(CompileQueue(most=1), "hangs") == "its compiler did not answer within 0.5 s"


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
def test_what_a_compiler_refuses_and_without_one_this_process_compiles(
    fatal: None, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if not is_there:
        monkeypatch.setattr(workers, "COMMAND", ["/nowhere/python"])
    built: list[str] = []
    monkeypatch.setattr(queues.listing, "build", lambda kernel, device: built.append(kernel.algorithm))
    queue = CompileQueue(most=1)
    queue.want([fatal_kernel("refused")], CPU, Priority.SEARCH)
    queue.wait_for_all()
    assert built == ["refused"]


@pytest.mark.slow
def test_compilers_are_started_before_anything_is_wanted(fatal: None, tmp_path: Path) -> None:
    queue = CompileQueue(most=2)
    queue.start(replace(CPU, kind="cuda"))
    until_s = time.monotonic() + 30
    while len(queue._workers.idle) < 2 and time.monotonic() < until_s:
        time.sleep(0.05)
    ready = set(queue._workers.idle)
    assert len(ready) == 2
    assert came(queue, tmp_path / "first") == ""
    assert written(tmp_path / "first")[0] in ready


def until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


def test_who_is_interrupted_ends_the_compiler(fatal: None) -> None:
    queue = CompileQueue(most=1)
    queue.want([fatal_kernel("hangs")], CPU, Priority.SEARCH)
    time.sleep(0.5)
    with pytest.raises(KeyboardInterrupt), queue.timing():
        raise KeyboardInterrupt
    until(lambda: not any(thread.name == "convwright-compiling" for thread in threading.enumerate()))
