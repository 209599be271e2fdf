"""Which kernels a search has compiled, how long it waits for them, and that it takes those that have come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import convwright as cw
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.epilogue import Epilogue
from convwright.core.finding import Interval
from convwright.core.policy import Policy
from convwright.core.predictor import Prediction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.rewrites import REWRITES, rewrite
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import chains, kernels, listing
from convwright.tuning.budget import Budget
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.find import Findings, find
from convwright.tuning.kernels import SearchKernels, compiling, worth_compiling
from convwright.tuning.search import Search
from tuning.made import CPU, PROBLEM, chosen, reasons
from tuning.made_backend import COMPILING, Made, MadeCompiled, Way, offer, ways

BUDGET_US = 200_000.0
FASTEST = "compiled/kernel-5"


def kernel(number: int, problem: ConvProblem = PROBLEM) -> Candidate:
    return replace(offer(problem, f"compiled/kernel-{number}"), compiles=True)


def asked(budget_us: float = 6e6, **changes: object) -> Search:
    # The time of what is made stands still while compilers work: this one has to pass.
    budget = Budget(budget_us, now_us=lambda: time.perf_counter() * 1e6)
    made = Search(PROBLEM, CPU, Policy(), Mode.FULL, Store.open(None), budget)
    return replace(made, **changes)  # type: ignore[arg-type]


def built(ready: SearchKernels, problem: ConvProblem = PROBLEM) -> list[int]:
    """Which kernels are there, once no more are waited for."""
    while ready.wait():
        pass
    return [i for i in range(6) if ready.reason_to_pass(kernel(i, problem)) is None]


def compiled(search: Search, listed: list[Candidate]) -> list[int]:
    with compiling(search, listed, 0, afresh=False, then=None) as ready:
        return built(ready)


def search(mode: Mode, budget_us: float = BUDGET_US, store: Store | None = None, **more: Any) -> Findings:
    return find(PROBLEM, CPU, Policy(), mode=mode, store=store or Store.open(None), budget_us=budget_us, **more)


# What a long search has compiled.


@pytest.mark.parametrize(("mode", "budget_us"), [(Mode.FULL, 6e6), (Mode.QUICK, 2e6)])
def test_all_kernels_are_compiled_and_looked_at(made: Made, mode: Mode, budget_us: float) -> None:
    made.quick, made.compiled = {"other": Way(800.0)}, ways()
    found = search(mode, budget_us)
    assert not {f"compiled/kernel-{i}" for i in range(6)} - set(made.built)
    assert chosen(found) == FASTEST


def test_what_there_is_no_time_for_is_not_begun_and_said_to_be_too_late(made: Made) -> None:
    compile_queue().most = 1
    made.compiled = ways()
    made.compiler = lambda id_: time.sleep(0.4)
    with compiling(asked(2e6), [kernel(i) for i in range(6)], 0, afresh=False, then=None) as ready:
        assert built(ready) == [0, 1]
        assert ready.reason_to_pass(kernel(4)) == "was not compiled in time"
    compile_queue().wait_for_all()
    assert len(made.built) <= 3


def test_nobody_waits_for_a_compiler_that_takes_most_of_the_budget(made: Made) -> None:
    may_end, begun_s = threading.Event(), time.perf_counter()
    made.compiled = ways()
    made.compiler = lambda id_: may_end.wait(20) and None if id_ == kernel(2).id else None
    try:
        with compiling(asked(1e6), [kernel(i) for i in range(6)], 0, afresh=False, then=None) as ready:
            assert built(ready) == [0, 1, 3, 4, 5]
            assert 0.3 < time.perf_counter() - begun_s < 5
            assert ready.reason_to_pass(kernel(2)) == "was not compiled in time"
            assert not ready.is_built(kernel(2))
    finally:
        may_end.set()
        compile_queue().wait_for_all()


@pytest.mark.slow
def test_the_first_to_come_is_waited_for_longer_than_others(made: Made) -> None:
    """As compilers are slow in a new process, where a short search would have to do without all kernels."""
    made.compiled = ways()

    def takes(*took_s: float) -> list[int]:
        made.built.clear()
        made.compiler = lambda id_: time.sleep(took_s[int(id_[-1])])
        compile_queue.cache_clear()
        compile_queue().most = 2
        found = compiled(asked(4e6), [kernel(i) for i in range(2)])
        compile_queue().wait_for_all()
        return found

    assert takes(2.6, 3.5) == [0]
    assert takes(2.6, 0.5) == [1]


def test_each_is_looked_at_as_soon_as_it_is_compiled(made: Made) -> None:
    """Whichever comes first, and while another is still being compiled."""
    looked_at, made.compiled = threading.Event(), ways()
    made.compiler = lambda id_: looked_at.wait(20) and None if id_ == kernel(0).id else None
    made.disturb = lambda: float(looked_at.set() or 0.0) if made.built[-1] == FASTEST else 0.0
    found = search(Mode.FULL, 6e6)
    assert looked_at.is_set()
    assert chosen(found) == FASTEST
    assert kernel(0).id in made.built


def test_others_are_looked_at_meanwhile(made: Made) -> None:
    others_came, early = threading.Event(), threading.Event()
    made.quick, made.compiled = {f"other-{i}": Way(800.0) for i in range(4)}, ways()
    made.compiler = lambda id_: others_came.wait(20) and None

    def progress(doing: str, done: int, of: int) -> None:
        if doing == "first looks" and done == 4:
            others_came.set()
        if doing == "compiling" and not others_came.is_set():
            early.set()

    found = search(Mode.FULL, 6e6, progress=progress)
    assert others_came.is_set()
    assert not early.is_set()
    assert chosen(found) == FASTEST


def test_nothing_is_begun_any_more_for_a_search_that_ended(made: Made) -> None:
    compile_queue().most = 1
    may_go_on, made.compiled = threading.Event(), ways()
    made.compiler = lambda id_: may_go_on.wait(20) and None
    with (
        pytest.raises(ZeroDivisionError),
        compiling(asked(), [kernel(i) for i in range(6)], 0, afresh=False, then=None),
    ):
        raise ZeroDivisionError
    may_go_on.set()
    compile_queue().wait_for_all()
    assert len(made.built) <= 1


def test_a_rewrite_is_ready_when_the_kernel_inside_is(made: Made) -> None:
    made.compiled = ways()
    around = [rewrite("split-batch").wrap(PROBLEM, (("parts", "2"),), kernel(i)) for i in range(2)]
    with compiling(asked(), [kernel(0)], 0, afresh=False, then=None) as ready:
        assert built(ready) == [0]
        assert [ready.reason_to_pass(candidate) for candidate in around] == [None, kernels.NOT_WANTED]
        assert [ready.is_built(candidate) for candidate in around] == [True, False]


def test_problems_inside_rewrites_have_their_turn(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each problem the most promising come first, however many the others have."""
    monkeypatch.setattr(chains, "REWRITES", REWRITES)
    made.compiled = ways()
    inner = chains.chains(PROBLEM, CPU)[0][0].inner
    wanted = worth_compiling(asked(), [kernel(i) for i in range(6)], 1)
    assert wanted[:5] == [kernel(0), kernel(1), kernel(0, inner), kernel(2), kernel(3)]


class Backwards:
    """Predicts that the kernel with the highest number is the fastest."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        if not candidate.compiles:
            return None
        time_us = 1.0 / (1 + int(candidate.id[-1]))
        return Prediction(Interval(time_us, time_us, time_us), in_domain=True)

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        return [self.predict(candidate, device) for candidate in candidates]


def test_what_a_predictor_says_decides_what_comes_first(made: Made) -> None:
    made.compiled = ways()
    listed = [kernel(i) for i in range(6)]
    assert worth_compiling(asked(predictor=Backwards()), listed, 0) == listed[::-1]
    assert chosen(search(Mode.QUICK, predictor=Backwards())) == FASTEST, "which is among the first four now"


def test_nothing_is_compiled_for_parts_of_a_batch(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "REWRITES", REWRITES)
    made.compiled = ways()
    batch = ConvProblem.parse("mb8ic8ih9oc8kh3")
    asking = replace(asked(), problem=batch)
    assert any(inner.n < 8 for inner in listing.inner_problems(batch, CPU))
    assert {each.problem.n for each in worth_compiling(asking, [kernel(i, batch) for i in range(6)])} == {8}


@pytest.mark.parametrize("alone", [True, False])
def test_what_serves_channels_last_is_not_compiled_for_planes(
    alone: bool, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "REWRITES", (rewrite("relayout"),))
    made.compiled = ways()
    last = PROBLEM.in_layout(Layout.NHWC)
    found = worth_compiling(replace(asked(), problem=last), [] if alone else [kernel(i, last) for i in range(6)])
    assert {each.problem.x.layout for each in found} == {Layout.NCHW if alone else Layout.NHWC}


def test_what_serves_planes_alone_is_compiled_for_them(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "REWRITES", (rewrite("relayout"),))
    made.compiled = ways()
    last = PROBLEM.in_layout(Layout.NHWC)
    found = worth_compiling(replace(asked(), problem=last), [kernel(i, last) for i in range(4)])
    in_planes = [each.algorithm for each in found if each.problem.x.layout is Layout.NCHW]
    assert in_planes == [kernel(i).algorithm for i in (4, 5)]


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_kernel_fuses_itself_is_not_compiled_apart(
    alone: bool, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "REWRITES", (rewrite("unfuse"),))
    made.compiled = ways()
    fused = replace(PROBLEM, epilogue=Epilogue.parse("bias+relu"))
    own = [] if alone else [kernel(i, fused) for i in range(6)]
    inner = {each.problem for each in worth_compiling(replace(asked(), problem=fused), own)} - {fused}
    assert [each.epilogue for each in inner] == ([Epilogue()] if alone else [])


def test_what_failed_before_is_not_compiled_again(made: Made) -> None:
    made.compiled = ways()
    asking = asked()
    asking.store.record(PROBLEM.key, CPU.key, kernel(2).id, "1", None, "failed: out of registers")
    assert compiled(asking, [kernel(i) for i in range(6)]) == [0, 1, 3, 4, 5]


def test_what_is_isolated_is_not_built_here(made: Made) -> None:
    made.compiled = ways()
    assert compiled(asked(isolate=True), [kernel(i) for i in range(6)]) == [*range(6)]
    assert made.built == []


def test_what_compiles_in_this_process_has_its_turn_in_a_full_search_only(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.compiled = ways(build_us=10_000.0)
    for module in ("kernels", "run"):
        monkeypatch.setattr(f"convwright.tuning.{module}.is_compiled_apart", lambda candidate: False)
    assert compiled(asked(), [kernel(i) for i in range(6)]) == []
    search(Mode.FULL, 6e6)
    assert {kernel(i).id for i in range(6)} <= set(made.built)
    said = reasons(search(Mode.QUICK, 2e6))
    assert "only a full search has time" in said[kernel(0).id]


def test_what_cannot_be_compiled_says_so_and_is_not_tried_again(made: Made) -> None:
    made.compiled = ways()

    def broken(id_: str) -> None:
        if id_ == FASTEST:
            raise RuntimeError("out of registers\nat line 7")

    made.compiler = broken
    store = Store.open(None)
    for _ in range(2):
        found = search(Mode.FULL, 6e6, store)
        assert reasons(found)[FASTEST] == "failed: out of registers"
        assert chosen(found) == "compiled/kernel-4"
    assert store.findings(PROBLEM.key, CPU.key)[FASTEST].failure == "failed: out of registers"


# What a short one has.


def test_a_short_search_waits_for_its_kernels_and_says_so(made: Made) -> None:
    made.compiled, said, go = ways(build_us=90_000.0), list[tuple[int, int, str]](), threading.Event()
    made.compiler = lambda id_: go.wait(20) and None

    def progress(*of: Any) -> None:
        said.append(of)
        go.set()

    found = cw.find(PROBLEM, device=CPU, mode="quick", store=Store.open(None), progress=progress)
    assert chosen(found) == "compiled/kernel-3", "the fastest of the four that were compiled"
    assert said[0] == (0, 4, "compiling")
    assert said[next(i for i, (*_, what) in enumerate(said) if what != "compiling") - 1] == (4, 4, "compiling")
    assert said[-1] == (1, 1, "")
    assert reasons(found)[FASTEST] == kernels.NOT_WANTED


def test_where_more_are_compiled_at_once_it_waits_for_more(made: Made) -> None:
    made.compiled = ways()
    compile_queue().most = 15
    assert chosen(search(Mode.QUICK)) == FASTEST


def test_what_comes_late_is_for_a_later_search(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "WAITED_S", 0.3)
    made.compiled, go, store = ways(), threading.Event(), Store.open(None)
    made.compiler = lambda id_: go.wait(20) and None if id_ == kernel(0).id else None
    found = search(Mode.QUICK, store=store)
    assert reasons(found)["compiled/kernel-0"] == COMPILING
    assert chosen(found) == "compiled/kernel-3"
    go.set()
    compile_queue().wait_for_all()
    assert "compiling" not in reasons(search(Mode.QUICK, store=store))["compiled/kernel-0"], "it was not settled"


def test_a_search_that_is_made_anew_has_those_compiled_again_that_were_fastest(made: Made) -> None:
    store = Store.open(None)
    for name in ("kernel-5", "kernel-4"):
        made.compiled = {name: ways()[name]}
        search(Mode.QUICK, store=store)
    made.compiled = {name: replace(way, time_us=1.9 * way.time_us) for name, way in ways().items()}
    compile_queue.cache_clear()
    made.built.clear()
    found = search(Mode.QUICK, 300_000.0, store)
    assert chosen(found) == FASTEST
    assert {id_ for id_ in made.built if "kernel" in id_} == {kernel(i).id for i in (5, 4, 0, 1)}


def test_kernels_inside_rewrites_are_waited_for_where_there_are_no_others(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfused(self: MadeCompiled, problem: ConvProblem, *of: Any) -> Iterable[Offer]:
        return () if problem.epilogue.bias else offered(self, problem, *of)

    made.compiled, offered = ways(), MadeCompiled.candidates
    monkeypatch.setattr(MadeCompiled, "candidates", unfused)
    monkeypatch.setattr(chains, "REWRITES", (rewrite("unfuse"),))
    found = cw.find("ic4ih8oc4kh3ph1 ep:bias", device=CPU, mode="quick", store=Store.open(None))
    assert chosen(found) == "unfuse(compiled/kernel-0)"
    assert {id_ for id_ in made.built if "kernel" in id_} == {f"compiled/kernel-{i}" for i in range(4)}


def test_what_is_refused_is_so_before_anything_is_compiled(made: Made) -> None:
    made.compiled = ways()
    with pytest.raises(cw.BadInput, match="energy"):
        cw.find(PROBLEM, device=CPU, mode="quick", store=Store.open(None), energy=True)
    assert made.built == []
