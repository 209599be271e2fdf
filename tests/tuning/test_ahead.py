"""Kernels are compiled at once before a long search, and wait for no search of a problem inside a rewrite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter
from types import SimpleNamespace

import pytest

from convwright.core.candidate import Candidate
from convwright.core.epilogue import Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.rewrites import REWRITES, rewrite
from convwright.settings import Mode
from convwright.tuning import chains, listing
from convwright.tuning.budget import Budget
from convwright.tuning.compiling import ahead, pool
from convwright.tuning.compiling.ahead import Ahead, compiling_ahead, is_long, worth_compiling
from convwright.tuning.find import Findings, find
from convwright.tuning.keeping.store import Store
from convwright.tuning.search import Search
from tuning.made import CPU, PROBLEM, Compiled
from tuning.made_backend import Made, Way, offer

FASTEST = "compiled/kernel-5"


def kernels(build_us: float) -> dict[str, Way]:
    return {f"kernel-{i}": Way(500.0 - 40 * i, build_us=build_us) for i in range(6)}


def kernel(number: int, problem: ConvProblem = PROBLEM) -> Candidate:
    return replace(offer(problem, f"compiled/kernel-{number}"), compiles=True)


def asked(budget_us: float = 6e6, **changes: object) -> Search:
    made = Search(PROBLEM, CPU, Policy(), Mode.FULL, Store.open(None), Budget(budget_us))
    return replace(made, **changes)  # type: ignore[arg-type]


def compiled(search: Search, listed: list[Candidate], most_chains: int | None = 0) -> list[int]:
    """Which of the kernels, of those that are waited for."""
    with compiling_ahead(search, listed, most_chains) as ready:
        return built(ready)


def built(ready: Ahead, problem: ConvProblem = PROBLEM) -> list[int]:
    return [i for i in range(6) if ready.reason_to_wait(kernel(i, problem), CPU) is None]


def ended() -> None:
    """Nothing is compiled any more."""
    for thread in threading.enumerate():
        if thread.name == "convwright-ahead":
            thread.join(20)


def search(mode: Mode, budget_us: float) -> Findings:
    return find(PROBLEM, CPU, Policy(), mode=mode, store=Store.open(None), budget_us=budget_us)


def looked_at(found: Findings) -> set[str]:
    untried = ("was not tried: the budget was spent", ahead.NO_TIME)
    return {verdict.finding.candidate.id for verdict in found.verdicts if verdict.reason not in untried}


@pytest.mark.parametrize(("mode", "budget_us"), [(Mode.FULL, 6e6), (Mode.QUICK, 2e6)])
def test_all_that_there_is_time_for_is_compiled_and_then_looked_at(made: Made, mode: Mode, budget_us: float) -> None:
    made.quick, made.compiled = {"other": Way(800.0)}, kernels(build_us=100_000.0)
    found = search(mode, budget_us)
    assert {f"compiled/kernel-{i}" for i in range(6)} <= looked_at(found)
    assert found.choice is not None
    assert found.choice.candidate.id == FASTEST


def test_what_there_is_no_time_to_compile_is_not_begun(made: Made) -> None:
    made.compiled = kernels(build_us=500_000.0)
    assert compiled(asked(4e6), [kernel(i) for i in range(6)]) in ([0, 1, 2], [0, 1, 2, 3])
    assert len(made.built) < 6


def test_what_compiles_together_does_so_at_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 3)
    made.compiled, meeting = kernels(build_us=0.0), threading.Barrier(3)
    made.compiler = lambda id_: meeting.wait(20) and None
    assert compiled(asked(), [kernel(i) for i in range(6)]) == [*range(6)]


def test_nobody_waits_for_a_compiler_that_takes_most_of_the_budget(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 2)
    may_end, begun_s = threading.Event(), perf_counter()
    made.compiled = kernels(build_us=0.0)
    made.compiler = lambda id_: may_end.wait(20) and None if id_ == kernel(2).id else None
    try:
        with compiling_ahead(asked(1e6), [kernel(i) for i in range(6)], 0) as ready:
            assert built(ready) == [0, 1, 3, 4, 5]
            assert 0.3 < perf_counter() - begun_s < 5
            assert ready.reason_to_wait(kernel(2), CPU) == "was not compiled in time"
            assert not ready.is_built(kernel(2), CPU)
    finally:
        may_end.set()
        ended()


def test_the_first_to_come_is_waited_for_longer_than_others(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """As compilers are slow in a new process, where a short search would have to do without all kernels."""
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 2)
    made.compiled = kernels(build_us=0.0)

    def takes(*took_s: float) -> list[int]:
        made.built.clear()
        made.compiler = lambda id_: time.sleep(took_s[int(id_[-1])])
        found = compiled(asked(4e6), [kernel(i) for i in range(2)])
        ended()
        return found

    assert takes(2.1, 3.5) == [0]
    assert takes(2.1, 0.5) == [1]


def test_what_comes_late_is_looked_at_and_wins(made: Made) -> None:
    made.quick, made.compiled = {"other": Way(800.0)}, {"kernel-0": Way(300.0)}
    made.compiler = lambda id_: time.sleep(2.1)
    found = search(Mode.FULL, 4e6)
    assert found.choice is not None
    assert found.choice.candidate.backend == "compiled"


def test_others_are_looked_at_meanwhile(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being compiled holds up nobody, and is looked at when it is there, before what is slower."""
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 1)
    others_came, kernels_came = threading.Event(), threading.Event()
    made.quick, made.compiled = {f"other-{i}": Way(800.0) for i in range(4)}, kernels(build_us=0.0)
    made.compiler = lambda id_: others_came.wait(20) and None

    def progress(doing: str, done: int, of: int) -> None:
        if doing == "first looks" and done == 4:
            others_came.set()
        if doing == "compiling" and not others_came.is_set():
            kernels_came.set()

    found = find(PROBLEM, CPU, Policy(), mode=Mode.FULL, store=Store.open(None), budget_us=6e6, progress=progress)
    assert others_came.is_set()
    assert not kernels_came.is_set()
    assert FASTEST in looked_at(found)


def test_nothing_is_compiled_any_more_for_a_search_that_ended(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 1)
    may_go_on, made.compiled = threading.Event(), kernels(build_us=0.0)
    made.compiler = lambda id_: may_go_on.wait(20) and None if id_ == kernel(1).id else None

    def broken(doing: str, done: int, of: int) -> None:
        if done:
            raise RuntimeError("nobody listens")

    with pytest.raises(RuntimeError, match="nobody listens"):
        compiled(asked(progress=broken), [kernel(i) for i in range(6)])
    may_go_on.set()
    ended()
    assert len(made.built) <= 2


def test_what_a_thread_raises_is_raised_where_it_was_asked_for(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(leaf: Candidate, device: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "shared_compilers", lambda: SimpleNamespace(start=lambda count: None, compile=broken))
    made.compiled = kernels(build_us=0.0)
    with pytest.raises(KeyboardInterrupt):
        compiled(asked(), [kernel(0)])


def test_what_is_ready_is_left_alone(made: Made) -> None:
    made.quick = {"other": Way(800.0)}
    assert compiled(asked(), [offer(PROBLEM, "quick/other")]) == []
    assert made.built == []


def test_a_rewrite_is_ready_when_the_kernel_inside_is(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.compiled, died = kernels(build_us=0.0), "its compiler died of SIGSEGV"
    compilers = SimpleNamespace(start=lambda count: None, compile=lambda leaf, _: died if leaf == kernel(2) else None)
    monkeypatch.setattr(pool, "shared_compilers", lambda: compilers)
    around = [rewrite("split-batch").wrap(PROBLEM, (("parts", "2"),), kernel(i)) for i in range(3)]
    with compiling_ahead(asked(), [kernel(0), kernel(2)], 0) as ready:
        assert [ready.reason_to_wait(candidate, CPU) for candidate in around] == [None, ahead.NO_TIME, died]
        assert [ready.is_built(candidate, CPU) for candidate in around] == [True, False, False]


def test_problems_inside_rewrites_have_their_turn(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each problem the most promising come first, however many the others have."""
    monkeypatch.setattr(chains, "REWRITES", REWRITES)
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 1)
    made.compiled = kernels(build_us=300_000.0)
    inner = chains.chains(PROBLEM, CPU)[0][0].inner
    with compiling_ahead(asked(3.4e6), [kernel(i) for i in range(6)], 1) as ready:
        assert built(ready) == [0, 1, 2, 3]
        assert built(ready, inner) == [0]
        assert made.built == [kernel(i).id for i in (0, 1, 0, 2, 3)]


def test_nothing_is_compiled_for_parts_of_a_batch(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "REWRITES", REWRITES)
    made.compiled = kernels(build_us=0.0)
    batch = ConvProblem.parse("mb8ic8ih9oc8kh3")
    asking = replace(asked(), problem=batch)
    assert any(inner.n < 8 for inner in listing.inner_problems(batch, CPU))
    assert {each.problem.n for each in worth_compiling(asking, [kernel(i, batch) for i in range(6)])} == {8}


@pytest.mark.parametrize("alone", [True, False])
def test_what_serves_channels_last_is_not_compiled_for_planes(
    alone: bool, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "REWRITES", (rewrite("relayout"),))
    made.compiled = kernels(build_us=0.0)
    last = PROBLEM.in_layout(Layout.NHWC)
    asking = replace(asked(), problem=last)
    found = worth_compiling(asking, [] if alone else [kernel(i, last) for i in range(6)])
    assert {each.problem.x.layout for each in found} == {Layout.NCHW if alone else Layout.NHWC}


def test_what_serves_planes_alone_is_compiled_for_them(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "REWRITES", (rewrite("relayout"),))
    made.compiled = kernels(build_us=0.0)
    last = PROBLEM.in_layout(Layout.NHWC)
    own = [kernel(i, last) for i in range(4)]
    found = worth_compiling(replace(asked(), problem=last), own)
    in_planes = [each.algorithm for each in found if each.problem.x.layout is Layout.NCHW]
    assert in_planes == [kernel(i).algorithm for i in (4, 5)]


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_kernel_fuses_itself_is_not_compiled_apart(
    alone: bool, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "REWRITES", (rewrite("unfuse"),))
    made.compiled = kernels(build_us=0.0)
    fused = replace(PROBLEM, epilogue=Epilogue.parse("bias+relu"))
    asking = replace(asked(), problem=fused)
    own = [] if alone else [kernel(i, fused) for i in range(6)]
    inner = {kernel.problem for kernel in worth_compiling(asking, own)} - {fused}
    assert [each.epilogue for each in inner] == ([Epilogue()] if alone else [])


def test_nothing_is_compiled_between_timings(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the problem itself nor for one inside a rewrite."""
    monkeypatch.setattr(chains, "REWRITES", (rewrite("split-batch"),))
    monkeypatch.setattr("convwright.tuning.find.compiling_ahead", lambda *_: nullcontext(Compiled(kernel(0).id)))
    made.compiled = kernels(build_us=10_000.0)
    found = search(Mode.FULL, 6e6)
    said = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
    assert {said[kernel(i).id] for i in range(1, 6)} == {"others promised more"}
    assert {id_ for id_ in made.built if id_.startswith("compiled/")} == {kernel(0).id}
    assert found.choice is not None
    assert found.choice.candidate.id == kernel(0).id


def test_what_failed_before_is_not_compiled_again(made: Made) -> None:
    made.compiled = kernels(build_us=0.0)
    asking = asked()
    asking.store.record(PROBLEM.key, CPU.key, kernel(2).id, "1", None, "failed: out of registers")
    assert compiled(asking, [kernel(i) for i in range(6)]) == [0, 1, 3, 4, 5]


def test_a_short_search_compiles_nothing_ahead() -> None:
    assert is_long(asked())
    assert not is_long(asked(200_000.0))


def test_what_is_isolated_is_not_built_here(made: Made) -> None:
    made.compiled = kernels(build_us=0.0)
    assert compiled(asked(isolate=True), [kernel(i) for i in range(6)]) == [*range(6)]
    assert made.built == []


def test_what_compiles_in_this_process_has_its_turn_in_a_full_search_only(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.compiled = kernels(build_us=10_000.0)
    monkeypatch.setattr(ahead, "elsewhere", lambda candidate: False)
    monkeypatch.setattr("convwright.tuning.run.elsewhere", lambda candidate: False)
    assert compiled(asked(), [kernel(i) for i in range(6)]) == []
    assert {kernel(i).id for i in range(6)} <= looked_at(search(Mode.FULL, 6e6))
    said = {v.finding.candidate.id: v.reason for v in search(Mode.QUICK, 2e6).verdicts}
    assert "only a full search has time" in said[kernel(0).id]


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
    workers: list[int] = []
    own = pool.begun

    def begun(work: Callable[[], None], count: int) -> int:
        workers.append(count)
        return own(work, count)

    monkeypatch.setattr(pool, "begun", begun)
    monkeypatch.setattr(pool, "MOST_AT_ONCE", 64)
    made.compiled = kernels(build_us=0.0)
    listed = [kernel(i) for i in range(6)]
    compiled(asked(), listed[:2])
    compiled(asked(), listed * 3)
    assert workers == [2, 6]
