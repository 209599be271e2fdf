"""Several kernels are compiled at once, each once, and only while there is time."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from convwright.core.policy import Policy
from convwright.settings import Mode
from convwright.tuning import ahead
from convwright.tuning.ahead import compile_ahead
from convwright.tuning.find import Findings, find
from convwright.tuning.store import Store
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, Way, offer

FASTEST = "compiled/kernel-5"


def kernels(build_us: float) -> dict[str, Way]:
    return {f"kernel-{i}": Way(500.0 - 40 * i, build_us=build_us) for i in range(6)}


def search(mode: Mode, budget_us: float) -> Findings:
    return find(PROBLEM, CPU, Policy(), mode=mode, store=Store.open(None), budget_us=budget_us)


def looked_at(found: Findings) -> set[str]:
    untried = "was not tried: the budget was spent"
    return {verdict.finding.candidate.id for verdict in found.verdicts if verdict.reason != untried}


@pytest.mark.parametrize(("mode", "budget_us"), [(Mode.FULL, 6e6), (Mode.QUICK, 2e6)])
def test_all_that_there_is_time_for_is_compiled_and_then_looked_at(made: Made, mode: Mode, budget_us: float) -> None:
    made.quick, made.compiled = {"other": Way(800.0)}, kernels(build_us=100_000.0)
    found = search(mode, budget_us)
    assert {f"compiled/kernel-{i}" for i in range(6)} <= looked_at(found)
    assert found.choice is not None
    assert found.choice.candidate.id == FASTEST


def test_it_stops_when_there_is_no_more_time(made: Made) -> None:
    made.compiled = kernels(build_us=0.0)
    candidates = [replace(offer(PROBLEM, f"compiled/kernel-{i}"), compiles=True) for i in range(6)]
    left = iter([True, True, True])
    built = compile_ahead(candidates, CPU, lambda: next(left, False))
    assert len(built) == 3
    assert sorted(made.built) == sorted(candidate.id for candidate in built)


def test_what_compiles_together_does_so_at_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    made.compiled, meeting = kernels(build_us=0.0), threading.Barrier(3)
    made.compiler = lambda id_: meeting.wait(20) and None
    candidates = [replace(offer(PROBLEM, f"compiled/kernel-{i}"), compiles=True) for i in range(6)]
    assert compile_ahead(candidates, CPU, lambda: True) == frozenset(candidates)


def test_what_is_ready_is_left_alone(made: Made) -> None:
    made.quick = {"other": Way(800.0)}
    assert compile_ahead([offer(PROBLEM, "quick/other")], CPU, lambda: True) == frozenset()
    assert made.built == []


def test_a_kernel_inside_several_rewrites_is_compiled_once(made: Made) -> None:
    made.compiled = kernels(build_us=0.0)
    leaf = replace(offer(PROBLEM, "compiled/kernel-0"), compiles=True)
    around = [
        replace(leaf, backend="split-batch", algorithm="", config=(("parts", str(parts)),), inner=leaf)
        for parts in (2, 4)
    ]
    assert compile_ahead(around, CPU, lambda: True) == frozenset(around)
    assert made.built == ["compiled/kernel-0"]


def test_what_cannot_be_compiled_says_so_in_its_row(made: Made) -> None:
    made.compiled = kernels(build_us=0.0)

    def broken(id_: str) -> None:
        if id_ == FASTEST:
            raise RuntimeError("out of registers\nat line 7")

    made.compiler = broken
    found = search(Mode.FULL, 6e6)
    reasons = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
    assert reasons[FASTEST] == "failed: out of registers"
    assert found.choice is not None
    assert found.choice.candidate.id == "compiled/kernel-4"


def test_as_many_threads_as_there_are_kernels_at_the_most(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    own = ahead.ThreadPoolExecutor

    def pool(workers: int, name: str) -> object:
        asked.append(workers)
        return own(workers, name)

    monkeypatch.setattr(ahead, "ThreadPoolExecutor", pool)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    made.compiled = kernels(build_us=0.0)
    candidates = [replace(offer(PROBLEM, f"compiled/kernel-{i}"), compiles=True) for i in range(6)]
    compile_ahead(candidates[:2], CPU, lambda: True)
    compile_ahead(candidates * 3, CPU, lambda: True)
    assert asked == [2, 6]
