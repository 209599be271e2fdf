"""Kernels of the next problems are compiled while one is searched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import upcoming, workers
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.find import find
from convwright.tuning.upcoming import Upcoming
from tuning.made import CPU, chosen
from tuning.made_backend import Made, Way

PROBLEMS = [ConvProblem.parse(f"ic4ih{size}oc4kh3ph1") for size in range(6, 26)]


class Compiler:
    """Says of which problems kernels were compiled, in their order; ``may_go_on`` holds them up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[ConvProblem, str]] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

        def ask(_: object, task: str, kernel: Any, device: object, **how: object) -> None:
            assert self.may_go_on.wait(20)
            self.asked.append((kernel.problem, kernel.algorithm))

        monkeypatch.setattr(workers.WorkerPool, "ask", ask)

    def problems(self) -> list[ConvProblem]:
        return list(dict.fromkeys(problem for problem, _ in self.asked))


@pytest.fixture
def compiler(made: Made, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    made.compiled = {f"kernel-{i}": Way(500.0 - 40 * i) for i in range(6)}
    monkeypatch.setattr(upcoming, "processors", lambda: 8)
    compile_queue().most = 2
    made_up = Compiler(monkeypatch)
    yield made_up
    made_up.may_go_on.set()
    compile_queue().wait_for_all()


def of(mode: Mode, store: Store | None = None) -> Upcoming:
    return Upcoming(PROBLEMS, CPU, Policy(), mode=mode, store=store or Store.open(None))


def test_quick_searches_have_kernels_and_so_have_the_next_ones(compiler: Compiler) -> None:
    store = Store.open(None)
    with of(Mode.QUICK, store).compiling() as following:
        for problem in PROBLEMS[:2]:
            following.at(problem)
            found = find(problem, CPU, Policy(), mode=Mode.QUICK, store=store)
            assert chosen(found) == "compiled/kernel-2", "the fastest of the three that were compiled"
        compile_queue().wait_for_all()
    assert compiler.problems() == PROBLEMS[:14], "those of the two, and of twelve after them"
    assert len(compiler.asked) == 14 * 3


def test_what_is_searched_now_comes_before_what_is_next(compiler: Compiler) -> None:
    store = Store.open(None)
    with of(Mode.QUICK, store).compiling() as following:
        compiler.may_go_on.clear()
        following.at(PROBLEMS[0])
        following.at(PROBLEMS[3])
        threading.Timer(0.2, compiler.may_go_on.set).start()
        find(PROBLEMS[3], CPU, Policy(), mode=Mode.QUICK, store=store)
        of_it = [place for place, (problem, _) in enumerate(compiler.asked) if problem == PROBLEMS[3]]
    assert max(of_it) <= 5, "two were begun when it was asked for"


def test_what_is_ready_is_searched_first(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = PROBLEMS[0]

    def slowly(self: Any, task: str, kernel: Any, device: object, **how: object) -> None:
        if kernel.problem == slow:
            assert compiler.may_go_on.wait(20)
        compiler.asked.append((kernel.problem, kernel.algorithm))

    monkeypatch.setattr(workers.WorkerPool, "ask", slowly)
    compile_queue().most = 6
    compiler.may_go_on.clear()
    order = []
    with of(Mode.QUICK).compiling() as following:
        for problem in following.in_turn():
            order.append(problem)
            if len(order) == 5:
                compiler.may_go_on.set()
                compile_queue().wait_for_all()
    assert slow not in order[:5]
    assert order[5] == slow
    assert sorted(order, key=PROBLEMS.index) == PROBLEMS


def test_a_long_search_has_more_and_what_was_left_out_is_not_compiled(compiler: Compiler) -> None:
    with of(Mode.FULL).compiling() as following:
        following.at(PROBLEMS[3])
        compile_queue().wait_for_all()
    assert compiler.problems() == PROBLEMS[3:16]
    assert len(compiler.asked) == 13 * 6


def test_nothing_is_begun_after_it(compiler: Compiler) -> None:
    compiler.may_go_on.clear()
    with of(Mode.FULL).compiling() as following:
        following.at(PROBLEMS[0])
    compiler.may_go_on.set()
    compile_queue().wait_for_all()
    assert len(compiler.asked) <= 2


def test_what_is_settled_is_not_compiled_again(compiler: Compiler) -> None:
    store = Store.open(None)
    for _ in range(2):
        with of(Mode.QUICK, store).compiling() as following:
            following.at(PROBLEMS[0])
            find(PROBLEMS[0], CPU, Policy(), mode=Mode.QUICK, store=store)
        compile_queue().wait_for_all()
        compile_queue.cache_clear()
    assert sum(problem == PROBLEMS[0] for problem, _ in compiler.asked) == 3


@pytest.mark.parametrize("mode", [Mode.HEURISTIC, Mode.OFF])
def test_where_nothing_runs_nothing_is_compiled(mode: Mode, compiler: Compiler) -> None:
    with of(mode).compiling() as following:
        following.at(PROBLEMS[0])
    absent = Upcoming(PROBLEMS, replace(CPU, torch_name=None), Policy(), mode=Mode.QUICK, store=Store.open(None))
    with absent.compiling():
        absent.at(PROBLEMS[0])
    assert compiler.asked == []


def test_with_few_processors_nothing_is_compiled_for_the_next(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upcoming, "processors", lambda: 2)
    with of(Mode.QUICK).compiling() as following:
        following.at(PROBLEMS[0])
    assert compiler.asked == []
