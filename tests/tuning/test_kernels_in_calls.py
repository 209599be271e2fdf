"""Kernels for searches inside calls: no call waits for a compiler, and later ones have what it made."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import kernels
from convwright.tuning import session as sessions
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.find import Findings, find
from convwright.tuning.session import Session
from tuning.made import CPU, PROBLEM, chosen, reasons
from tuning.made_backend import COMPILING, Made, Way, ways

BUDGET_US = 200_000.0


def in_call(store: Store, policy: Policy = Policy(), **more: Any) -> Findings:
    more = {"then": lambda: None, "store": store, **more}
    return find(PROBLEM, CPU, policy, mode=Mode.QUICK, budget_us=BUDGET_US, **more)


def test_no_call_waits_for_a_compiler_and_a_later_one_has_what_it_made(made: Made) -> None:
    made.quick, made.compiled = {"fast": Way(800.0)}, ways(build_us=350_000.0)
    ready, go, store = threading.Event(), threading.Event(), Store.open(None)
    made.compiler = lambda id_: go.wait(20) and None
    first = in_call(store, then=ready.set)
    assert chosen(first) == "quick/fast"
    assert made.time() <= BUDGET_US
    said = [reason for id_, reason in reasons(first).items() if id_.startswith("compiled/")]
    assert sorted(said) == [COMPILING] * 4 + [kernels.NOT_WANTED] * 2
    assert compile_queue().missing(PROBLEM) == 4
    go.set()
    assert ready.wait(20)
    begun_us = made.time()
    assert chosen(in_call(store)) == "compiled/kernel-3"
    assert made.time() - begun_us <= BUDGET_US
    before = list(made.built)
    assert chosen(in_call(store)) == "compiled/kernel-3"
    assert made.built == before, "nothing is searched any more"


def test_what_is_not_compiled_yet_is_not_settled(made: Made) -> None:
    made.compiled, go, store = {"kernel": Way(500.0)}, threading.Event(), Store.open(None)
    made.compiler = lambda id_: go.wait(20) and None
    for _ in range(2):
        assert reasons(in_call(store))["compiled/kernel"] == COMPILING
    go.set()
    compile_queue().wait_for_all()
    assert chosen(in_call(store)) == "compiled/kernel"


@pytest.mark.parametrize("later", [Arithmetic.FP32, Arithmetic.TF32])
def test_under_another_permission_other_kernels_are_compiled_and_none_twice(made: Made, later: Arithmetic) -> None:
    made.compiled = {
        **{f"tf32-{i}": Way(300.0 - i, arithmetic=Arithmetic.TF32) for i in range(6)},
        **{f"kernel-{i}": Way(500.0 - i) for i in range(6)},
    }
    strict, wide = (Policy(arithmetic=frozenset(each)) for each in ({Arithmetic.FP32}, set(Arithmetic)))
    compiled_: list[str] = []
    made.compiler = compiled_.append
    store = Store.open(None)
    for policy in (wide, strict) if later is Arithmetic.FP32 else (strict, wide):
        before = len(compiled_)
        assert COMPILING in reasons(in_call(store, policy)).values()
        compile_queue().wait_for_all()
        assert 1 <= len(compiled_) - before <= 4
        assert (chosen(in_call(store, policy)) or "").startswith("compiled/")
    assert any("kernel" in id_ for id_ in compiled_)
    assert any("tf32" in id_ for id_ in compiled_)
    assert sorted(set(compiled_)) == sorted(compiled_)


def test_what_cannot_be_compiled_for_a_call_says_so_and_the_search_is_done(made: Made) -> None:
    made.compiled, store = {"kernel": Way(500.0)}, Store.open(None)

    def broken(id_: str) -> None:
        raise ValueError("no such instruction\nand a long trace")

    made.compiler = broken
    in_call(store)
    compile_queue().wait_for_all()
    assert reasons(in_call(store))["compiled/kernel"] == "failed: no such instruction"
    before = list(made.built)
    in_call(store)
    assert made.built == before


def test_without_a_thread_that_is_said_and_the_search_is_not_done(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made.compiled, store = {"kernel": Way(500.0)}, Store.open(None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        said = reasons(in_call(store))["compiled/kernel"]
    assert said == "was not compiled for want of a thread: can't start new thread"
    assert reasons(in_call(store))["compiled/kernel"] == COMPILING
    compile_queue().wait_for_all()
    assert chosen(in_call(store)) == "compiled/kernel"


def test_a_session_chooses_anew_when_more_is_ready(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    news = threading.Event()
    monkeypatch.setattr(sessions, "_hearers", [news.set])
    made.quick, made.compiled = {"fast": Way(800.0)}, {"kernel": Way(500.0)}
    session = Session(Mode.QUICK, Store.open(None))
    assert session.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "quick/fast"
    asked_for = session.answer(PROBLEM, CPU, Policy(), "quick/fast", None).captured
    assert news.wait(20)
    assert session.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "compiled/kernel"
    assert session.answer(PROBLEM, CPU, Policy(), "quick/fast", None).captured.candidate == asked_for.candidate


def test_whoever_remembers_calls_hears_of_it() -> None:
    from convwright.eager.calls.call import forget

    assert forget in sessions._hearers


def test_who_asks_but_once_has_what_calls_have_later(made: Made) -> None:
    made.compiled = ways()
    here = Session(Mode.QUICK, Store.open(None))
    assert here.plan(PROBLEM, CPU, Policy()).candidate.id == "compiled/kernel-3"
    assert here.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "compiled/kernel-3"


def test_what_comes_late_for_it_is_for_later_calls(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.compiled, go = ways(), threading.Event()
    made.compiler = lambda id_: go.wait(20) and None
    monkeypatch.setattr(sessions, "_PATIENCE_S", 0.1)
    here = Session(Mode.QUICK, Store.open(None))
    assert not here.plan(PROBLEM, CPU, Policy()).candidate.compiles
    go.set()
    compile_queue().wait_for_all()
    assert here.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "compiled/kernel-3"


def test_others_are_served_while_it_waits(made: Made) -> None:
    made.compiled, go = ways(), threading.Event()
    made.compiler = lambda id_: go.wait(20) and None
    here, chosen_once = Session(Mode.QUICK, Store.open(None)), list[str]()
    asking = threading.Thread(target=lambda: chosen_once.append(here.plan(PROBLEM, CPU, Policy()).candidate.id))
    asking.start()
    until_s = time.monotonic() + 20
    while not here.chosen and time.monotonic() < until_s:
        time.sleep(0.01)
    other = ConvProblem.parse("ic4ih11oc4kh3")
    assert here.answer(other, CPU, Policy(), "torch/default", None).captured.is_torch
    assert not chosen_once
    go.set()
    asking.join(20)
    assert chosen_once == ["compiled/kernel-3"]


def test_what_has_to_stay_the_same_is_not_waited_for(made: Made) -> None:
    made.compiled, policy = ways(), Policy(deterministic=True)
    here = Session(Mode.QUICK, Store.open(None))
    first = here.answer(PROBLEM, CPU, policy, None, None).captured
    assert here.plan(PROBLEM, CPU, policy).candidate == first.candidate
    compile_queue().wait_for_all()
