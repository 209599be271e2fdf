"""What has to be compiled is compiled beside the caller: no call waits for it, and a later one has it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.tuning import session as sessions
from convwright.tuning.compiling import beside as besides
from convwright.tuning.compiling.beside import Beside
from convwright.tuning.compiling.compilers import Compilers
from convwright.tuning.find import Findings, find
from convwright.tuning.keeping.store import Store
from convwright.tuning.session import Session
from tuning.made import CPU, PROBLEM, chosen, reasons
from tuning.made_backend import Made, Way, offer

BUDGET_US = 200_000.0
KERNELS = {f"kernel-{i}": Way(500.0 - i, build_us=350_000.0) for i in range(6)}
COMPILING = "is being compiled beside, and will be tried at a later call"


class Told:
    """What was said of which problem, and when it was."""

    def __init__(self) -> None:
        self.problems: list[ConvProblem] = []
        self._said = threading.Event()

    def __call__(self, problem: ConvProblem) -> None:
        self.problems.append(problem)
        self._said.set()

    def wait(self) -> None:
        assert self._said.wait(20)


def until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


def search(beside: Beside, store: Store, **changed: Any) -> Findings:
    asked: dict[str, Any] = {"mode": Mode.QUICK, "store": store, "budget_us": BUDGET_US, "beside": beside}
    with beside.searching():
        return find(PROBLEM, CPU, **({"policy": Policy()} | asked | changed))


def test_no_call_waits_for_a_compiler_and_a_later_one_has_what_it_made(made: Made) -> None:
    made.quick, made.compiled = {"fast": Way(800.0)}, dict(KERNELS)
    told, store = Told(), Store.open(None)
    beside = Beside(told, quiet_s=0.01)
    first = search(beside, store)
    assert chosen(first) == "quick/fast"
    assert made.time() <= BUDGET_US
    said = [reason for id_, reason in reasons(first).items() if id_.startswith("compiled/")]
    assert sorted(said) == [COMPILING] * 4 + ["was not compiled: 4 others promised more"] * 2
    told.wait()
    assert told.problems == [PROBLEM]
    begun_us = made.time()
    second = search(beside, store)
    assert chosen(second) == "compiled/kernel-3"
    assert made.time() - begun_us <= BUDGET_US
    before = list(made.built)
    assert chosen(search(beside, store)) == "compiled/kernel-3"
    assert made.built == before  # nothing is searched any more


def test_what_is_not_compiled_yet_is_searched_by_the_next_process(made: Made) -> None:
    made.compiled, go = {"kernel": Way(500.0)}, threading.Event()

    def slow(id_: str) -> None:
        go.wait(20)

    made.compiler = slow
    store = Store.open(None)
    waiting, told = Beside(Told(), quiet_s=0.01), Told()
    for _ in range(2):
        assert reasons(search(waiting, store))["compiled/kernel"] == COMPILING
    go.set()
    other = Beside(told, quiet_s=0.01)
    search(other, store)
    told.wait()
    assert chosen(search(other, store)) == "compiled/kernel"


@pytest.mark.parametrize("later", [Arithmetic.FP32, Arithmetic.TF32])
def test_under_another_permission_other_kernels_are_compiled_and_none_twice(made: Made, later: Arithmetic) -> None:
    made.compiled = {
        **{f"tf32-{i}": Way(300.0 - i, arithmetic=Arithmetic.TF32) for i in range(6)},
        **{f"kernel-{i}": Way(500.0 - i) for i in range(6)},
    }
    strict, wide = (Policy(arithmetic=frozenset(each)) for each in ({Arithmetic.FP32}, set(Arithmetic)))
    policies = (wide, strict) if later is Arithmetic.FP32 else (strict, wide)
    compiled: list[str] = []
    made.compiler = compiled.append
    store, told = Store.open(None), Told()
    beside = Beside(told, quiet_s=0.0)
    for policy in policies:
        before = len(compiled)
        found = search(beside, store, policy=policy)
        assert COMPILING in reasons(found).values()
        beside.wait()
        assert 1 <= len(compiled) - before <= 4
        assert (chosen(search(beside, store, policy=policy)) or "").startswith("compiled/")
    assert any("kernel" in id_ for id_ in compiled)
    assert any("tf32" in id_ for id_ in compiled)
    assert sorted(set(compiled)) == sorted(compiled)


def test_nothing_is_compiled_while_something_is_searched(made: Made) -> None:
    made.compiled = {"kernel": Way(500.0)}
    told = Told()
    beside = Beside(told, quiet_s=0.2)
    with beside.searching():
        search(beside, Store.open(None))
        time.sleep(0.3)
        assert made.built.count("compiled/kernel") == 0
    ended = time.perf_counter()
    told.wait()
    assert time.perf_counter() - ended >= 0.2


@pytest.mark.parametrize(
    "error", [ValueError("no such instruction\nand a long trace"), SystemExit("no such instruction")]
)
def test_what_cannot_be_compiled_says_so_and_the_search_is_done(made: Made, error: BaseException) -> None:
    made.compiled = {"kernel": Way(500.0)}

    def broken(id_: str) -> None:
        raise error

    made.compiler = broken
    told, store = Told(), Store.open(None)
    beside = Beside(told, quiet_s=0.0)
    search(beside, store)
    told.wait()
    reason = reasons(search(beside, store))["compiled/kernel"]
    assert reason == "failed: no such instruction"
    built = list(made.built)
    search(Beside(Told()), store)
    assert made.built == built


def test_a_search_during_which_a_compiler_ends_is_not_done(made: Made) -> None:
    made.compiled = {"kernel": Way(500.0)}
    told, store = Told(), Store.open(None)
    beside = Beside(told, quiet_s=0.0)
    beside.under(Policy()).reason_to_wait(replace(offer(PROBLEM, "compiled/kernel"), compiles=True), CPU)
    told.wait()
    # It was still being compiled when it was this candidate's turn, and is ready at the end of the search.
    beside.reason_to_wait = lambda candidate, device, permitted: COMPILING  # type: ignore[method-assign]
    search(beside, store)
    assert not beside.is_waited_for(PROBLEM, CPU)
    assert chosen(search(Beside(Told()), store)) != "compiled/kernel"
    assert reasons(search(Beside(Told()), store))["compiled/kernel"] == COMPILING


def test_where_no_thread_can_be_started_that_is_said(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made.compiled = {"kernel": Way(500.0)}
    told, store = Told(), Store.open(None)
    beside = Beside(told, quiet_s=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert reasons(search(beside, store))["compiled/kernel"] == (
            "was not compiled for want of a thread: can't start new thread"
        )
    assert reasons(search(beside, store))["compiled/kernel"] == COMPILING  # which is not done by then
    told.wait()
    assert chosen(search(beside, store)) == "compiled/kernel"


def test_who_asks_for_a_search_waits_for_the_compiler(made: Made) -> None:
    made.compiled = {"kernel": Way(500.0, build_us=90_000.0)}
    found = find(PROBLEM, CPU, Policy(), mode=Mode.QUICK, store=Store.open(None), budget_us=BUDGET_US)
    assert chosen(found) == "compiled/kernel"
    assert chosen(search(Beside(Told()), Store.open(None), mode=Mode.FULL)) == "compiled/kernel"


def test_a_session_chooses_anew_when_more_is_ready(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    news = threading.Event()
    monkeypatch.setattr(sessions, "_hearers", [news.set])
    made.quick, made.compiled = {"fast": Way(800.0)}, {"kernel": Way(500.0)}
    session = Session(Mode.QUICK, Store.open(None))
    assert session.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "quick/fast"
    asked = session.answer(PROBLEM, CPU, Policy(), "quick/fast", None).captured
    assert news.wait(20)
    assert session.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "compiled/kernel"
    assert session.answer(PROBLEM, CPU, Policy(), "quick/fast", None).captured.candidate == asked.candidate


def test_whoever_remembers_calls_hears_of_it() -> None:
    from convwright.ops.calls.form import forget

    assert forget in sessions._hearers


_ENDS_EARLY = """
import time
from convwright.core.policy import Policy
from convwright.tuning import listing
from convwright.tuning.compiling.beside import Beside
from convwright.tuning.compiling.compilers import Compilers
from tuning.made import CPU, candidate

def compile(candidate, device):
    print("compiling", flush=True)
    time.sleep(0.5)

listing.build = compile
beside = Beside(print, quiet_s=0.0)
for name in "abc":
    beside.under(Policy()).reason_to_wait(candidate(f"torch/{name}"), CPU)
time.sleep(0.2)
"""


def test_a_process_that_ends_waits_for_one_compiler_only() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _ENDS_EARLY], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "compiling\n", "")


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch) -> list[ConvProblem]:
    """Of which problems kernels were compiled, in their order."""
    asked: list[ConvProblem] = []

    def compile_(_: Compilers, candidate: Any, device: object) -> None:
        asked.append(candidate.problem)

    monkeypatch.setattr(Compilers, "compile", compile_)
    return asked


def test_who_asks_but_once_has_what_calls_have_later(made: Made) -> None:
    made.compiled = dict(KERNELS)
    here = Session(Mode.QUICK, Store.open(None))
    assert here.plan(PROBLEM, CPU, Policy()).candidate.id == "compiled/kernel-3"
    assert here.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "compiled/kernel-3"


def test_its_kernels_are_compiled_ahead_of_others(
    made: Made, compilers: list[ConvProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(besides, "_AT_ONCE", 1)
    made.compiled = dict(KERNELS)
    here, other = Session(Mode.QUICK, Store.open(None)), ConvProblem.parse("ic4ih11oc4kh3")
    here.answer(other, CPU, Policy(), None, None)
    here.plan(PROBLEM, CPU, Policy())
    here.wait_for_compilers()
    assert compilers == [PROBLEM] * 4 + [other] * 4


def test_what_comes_late_for_it_is_for_the_calls_behind(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.compiled, may_go_on = dict(KERNELS), threading.Event()
    monkeypatch.setattr(Compilers, "compile", lambda *asked: None if may_go_on.wait(20) else "nobody let it go on")
    monkeypatch.setattr(sessions, "_PATIENCE_S", 0.1)
    here = Session(Mode.QUICK, Store.open(None))
    assert not here.plan(PROBLEM, CPU, Policy()).candidate.compiles
    may_go_on.set()
    here.wait_for_compilers()
    assert here.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "compiled/kernel-3"


def test_others_are_served_while_it_waits(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.compiled, may_go_on = dict(KERNELS), threading.Event()
    monkeypatch.setattr(Compilers, "compile", lambda *asked: None if may_go_on.wait(20) else "nobody let it go on")
    here, chosen_once = Session(Mode.QUICK, Store.open(None)), list[str]()

    def ask() -> None:
        chosen_once.append(here.plan(PROBLEM, CPU, Policy()).candidate.id)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: bool(here.chosen))
    other = ConvProblem.parse("ic4ih11oc4kh3")
    assert here.answer(other, CPU, Policy(), "torch/default", None).captured.is_torch
    assert not chosen_once
    may_go_on.set()
    asking.join(20)
    assert chosen_once == ["compiled/kernel-3"]


def test_what_has_to_stay_the_same_is_not_waited_for(made: Made) -> None:
    made.compiled, policy = dict(KERNELS), Policy(deterministic=True)
    here = Session(Mode.QUICK, Store.open(None))
    first = here.answer(PROBLEM, CPU, policy, None, None).captured
    assert here.plan(PROBLEM, CPU, policy).candidate == first.candidate
    here.wait_for_compilers()
