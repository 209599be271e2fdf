"""Kernels of the next problems are compiled while one is searched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

import convwright as cw
from convwright.core.candidate import Offer
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.rewrites import rewrite
from convwright.settings import Mode
from convwright.tuning import chains
from convwright.tuning.compiling import pool, series
from convwright.tuning.compiling.compilers import Compilers
from convwright.tuning.compiling.series import Series
from convwright.tuning.find import Findings, find
from convwright.tuning.keeping.store import Store
from tuning.made import CPU, reasons
from tuning.made_backend import Made, MadeCompiled, Way, offer

PROBLEMS = [ConvProblem.parse(f"ic4ih{size}oc4kh3ph1") for size in range(6, 16)]
KERNELS = {f"kernel-{i}": Way(500.0 - 40 * i, build_us=0.0) for i in range(6)}
COMPILING = "is being compiled beside, and will be tried at a later call"


class Compiler:
    """Says of which problems kernels were compiled, in their order; ``may_go_on`` holds them up, or a ``late`` one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[ConvProblem, str]] = []
        self.may_go_on, self._writing = threading.Event(), threading.Lock()
        self.may_go_on.set()
        self.died: str | None = None
        self.late, self.begun = "", threading.Event()

        def compile_(_: Compilers, candidate: object, device: object) -> str | None:
            self.begun.set()
            if self.late in ("", candidate.algorithm):  # type: ignore[attr-defined]
                assert self.may_go_on.wait(20)
            with self._writing:
                self.asked.append((candidate.problem, candidate.algorithm))  # type: ignore[attr-defined]
            return self.died

        monkeypatch.setattr(Compilers, "compile", compile_)
        monkeypatch.setattr(Compilers, "start", lambda self, count: None)

    def problems(self) -> list[ConvProblem]:
        return list(dict.fromkeys(problem for problem, _ in self.asked))


@pytest.fixture
def compiler(made: Made, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made.compiled = dict(KERNELS)
    monkeypatch.setattr(series, "processors", lambda: 8)
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(pool, "PLACES", 2)
    return Compiler(monkeypatch)


def made_of(mode: Mode, store: Store | None = None) -> Series:
    return Series(PROBLEMS, CPU, Policy(), mode=mode, store=store or Store.open(None))


def ended() -> None:
    for thread in threading.enumerate():
        if thread.name == "convwright-ahead":
            thread.join(20)


def quick(problem: ConvProblem, of: Series, store: Store) -> Findings:
    return find(problem, CPU, Policy(), mode=Mode.QUICK, store=store, kernels=of.ready(problem))


def test_quick_searches_have_kernels_that_no_budget_of_theirs_had_time_for(compiler: Compiler) -> None:
    store = Store.open(None)
    with made_of(Mode.QUICK, store).compiling() as of:
        found = [quick(problem, of, store) for problem in PROBLEMS[:2]]
    ended()
    for each in found:
        assert each.choice is not None
        assert each.choice.candidate.id == "compiled/kernel-3", "the fastest of the four that were compiled"
    assert compiler.problems() == PROBLEMS[:8], "those of the two, and of six behind them"
    assert len(compiler.asked) == 8 * 4


def test_reading_what_was_compiled_takes_no_time_of_a_search(compiler: Compiler, made: Made) -> None:
    made.compiled = {name: replace(way, build_us=90_000.0) for name, way in KERNELS.items()}
    store = Store.open(None)
    with made_of(Mode.QUICK, store).compiling() as of:
        found = quick(PROBLEMS[0], of, store)
    ended()
    assert found.choice is not None
    assert found.choice.candidate.id == "compiled/kernel-3", "of which all four take longer to be read than a search"


def test_what_cannot_be_read_is_a_failure_and_not_tried_again(compiler: Compiler, made: Made) -> None:
    def read(id_: str) -> None:
        if id_ == "compiled/kernel-3":
            raise ValueError("another version wrote it")

    made.compiler = read
    store = Store.open(None)
    for _ in range(2):
        found = cw.find(PROBLEMS[0], device=CPU, mode="quick", store=store)
        ended()
        assert reasons(found)["compiled/kernel-3"] == "failed: another version wrote it"
        assert found.choice is not None
        assert found.choice.candidate.id == "compiled/kernel-2"
    assert len(compiler.asked) == 4


def test_what_a_search_has_no_time_to_read_is_for_a_later_one(
    compiler: Compiler, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no compiler can be had, so that this process compiles what it reads."""
    monkeypatch.setattr(series, "_WAITED_S", 0.3)
    made.compiler = lambda id_: time.sleep(0.4)
    store = Store.open(None)
    with made_of(Mode.QUICK, store).compiling() as of:
        found = quick(PROBLEMS[0], of, store)
    ended()
    assert made.built.count("compiled/kernel-0") >= 1
    assert [reasons(found)[f"compiled/kernel-{i}"] for i in range(1, 4)] == [COMPILING] * 3


def test_what_is_there_is_read_while_another_is_late(
    compiler: Compiler, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.compiled = {name: replace(way, build_us=90_000.0) for name, way in KERNELS.items()}
    monkeypatch.setattr(series, "_WAITED_S", 0.5)
    compiler.late = "kernel-0"
    compiler.may_go_on.clear()
    store = Store.open(None)
    with made_of(Mode.QUICK, store).compiling() as of:
        found = quick(PROBLEMS[0], of, store)
        compiler.may_go_on.set()
    ended()
    assert reasons(found)["compiled/kernel-0"] == COMPILING
    assert found.choice is not None
    assert found.choice.candidate.id == "compiled/kernel-3"


def test_a_search_of_one_problem_waits_for_its_kernels_and_says_so(compiler: Compiler) -> None:
    told: list[tuple[str, int, int]] = []
    compiler.may_go_on.clear()

    def progress(*of: Any) -> None:
        told.append(of)
        compiler.may_go_on.set()

    found = cw.find(PROBLEMS[0], device=CPU, mode="quick", store=Store.open(None), progress=progress)
    ended()
    assert found.choice is not None
    assert found.choice.candidate.id == "compiled/kernel-3"
    assert compiler.problems() == PROBLEMS[:1]
    assert told[0] == ("compiling", 0, 4)
    assert told[next(i for i, (what, *_) in enumerate(told) if what != "compiling") - 1] == ("compiling", 4, 4)


def test_a_search_that_is_made_anew_has_those_compiled_again_that_were_fastest(compiler: Compiler, made: Made) -> None:
    store = Store.open(None)
    for name in ("kernel-5", "kernel-4"):
        made.compiled = {name: KERNELS[name]}
        cw.find(PROBLEMS[0], device=CPU, mode="quick", store=store)
    made.compiled = {name: replace(way, time_us=1.9 * way.time_us) for name, way in KERNELS.items()}
    compiler.asked.clear()
    found = cw.find(PROBLEMS[0], device=CPU, mode="quick", store=store, budget_us=300_000.0)
    ended()
    assert {name for _, name in compiler.asked} == {"kernel-5", "kernel-4", "kernel-0", "kernel-1"}
    assert found.choice is not None
    assert found.choice.candidate.id == "compiled/kernel-5"


def test_what_is_known_is_not_compiled_again(compiler: Compiler) -> None:
    store = Store.open(None)
    for _ in range(2):
        cw.find(PROBLEMS[0], device=CPU, mode="quick", store=store)
        ended()
    assert len(compiler.asked) == 4


def test_kernels_inside_rewrites_are_waited_for_where_there_are_no_others(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfused(self: MadeCompiled, problem: ConvProblem, *of: Any) -> Iterable[Offer]:
        return () if problem.epilogue.bias else offered(self, problem, *of)

    offered = MadeCompiled.candidates
    monkeypatch.setattr(MadeCompiled, "candidates", unfused)
    monkeypatch.setattr(chains, "REWRITES", (rewrite("unfuse"),))
    found = cw.find("ic4ih8oc4kh3ph1 ep:bias", device=CPU, mode="quick", store=Store.open(None))
    ended()
    assert found.choice is not None
    assert found.choice.candidate.id == "unfuse(compiled/kernel-0)"
    assert [name for _, name in compiler.asked] == [f"kernel-{i}" for i in range(4)]


def test_an_error_in_one_search_is_no_end_of_the_compilers_of_another(compiler: Compiler) -> None:
    with pytest.raises(ZeroDivisionError), made_of(Mode.QUICK).compiling():
        raise ZeroDivisionError
    assert not pool.is_over()


def test_what_an_interrupt_ended_is_for_a_later_search(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PLACES", 1)
    compiler.may_go_on.clear()

    def interrupted(*_: Any) -> None:
        assert compiler.begun.wait(20)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), made_of(Mode.QUICK).compiling() as of:
        of.ready(PROBLEMS[0], interrupted)
    compiler.may_go_on.set()
    ended()
    begun = replace(offer(PROBLEMS[0], "compiled/kernel-0"), compiles=True)
    assert of.reason_to_wait(begun, CPU) == COMPILING
    pool.go_on()


def test_what_is_refused_is_so_before_anything_is_compiled(compiler: Compiler) -> None:
    with pytest.raises(cw.BadInput, match="energy"):
        cw.find(PROBLEMS[0], device=CPU, mode="quick", store=Store.open(None), energy=True)
    assert compiler.asked == []


def test_a_long_search_waits_for_its_own_and_the_next_ones_have_theirs(compiler: Compiler) -> None:
    with made_of(Mode.FULL).compiling() as of:
        assert of.ready(PROBLEMS[3]) is None
        ended()
    assert compiler.problems() == PROBLEMS[3:], "what was left out is not compiled"
    assert len(compiler.asked) == 7 * 6


def test_what_comes_late_is_tried_at_a_later_call(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_WAITED_S", 0.01)
    compiler.may_go_on.clear()
    store = Store.open(None)
    with made_of(Mode.QUICK, store).compiling() as of:
        found = quick(PROBLEMS[0], of, store)
    said = reasons(found)
    assert [said[f"compiled/kernel-{i}"] for i in range(4)] == [COMPILING] * 4
    assert said["compiled/kernel-5"] == "was not compiled: others promised more"
    with made_of(Mode.QUICK, store).compiling() as again:
        compiler.may_go_on.set()
        assert quick(PROBLEMS[0], again, store).choice is not None, "it is not settled"
    ended()
    assert (PROBLEMS[0], "kernel-3") in compiler.asked


def test_nothing_is_begun_behind_it(compiler: Compiler) -> None:
    compiler.may_go_on.clear()
    with made_of(Mode.FULL).compiling() as of:
        of.ready(PROBLEMS[0])
    compiler.may_go_on.set()
    ended()
    assert len(compiler.asked) <= 1


def test_what_a_compiler_dies_of_is_said(compiler: Compiler) -> None:
    compiler.died = "its compiler was killed"
    store = Store.open(None)
    with made_of(Mode.QUICK, store).compiling() as of:
        found = quick(PROBLEMS[0], of, store)
    ended()
    assert reasons(found)["compiled/kernel-0"] == "its compiler was killed"


def test_what_is_settled_is_not_compiled_again(compiler: Compiler) -> None:
    store = Store.open(None)
    for _ in range(2):
        with made_of(Mode.QUICK, store).compiling() as of:
            quick(PROBLEMS[0], of, store)
        ended()
    assert sum(problem == PROBLEMS[0] for problem, _ in compiler.asked) == 4


@pytest.mark.parametrize("mode", [Mode.HEURISTIC, Mode.OFF])
def test_where_nothing_runs_nothing_is_compiled(mode: Mode, compiler: Compiler) -> None:
    with made_of(mode).compiling() as of:
        assert of.ready(PROBLEMS[0]) is None
    absent = Series(PROBLEMS, replace(CPU, torch_name=None), Policy(), mode=Mode.QUICK, store=Store.open(None))
    with absent.compiling():
        assert absent.ready(PROBLEMS[0]) is None
    assert compiler.asked == []


def test_with_few_processors_only_what_is_waited_for_is_compiled(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "processors", lambda: 2)
    with made_of(Mode.QUICK).compiling() as of:
        assert of.ready(PROBLEMS[0]) is of
    ended()
    assert compiler.problems() == PROBLEMS[:1]
