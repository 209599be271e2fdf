"""The order of first looks: PyTorch's own call, then by turns, what compiles last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.lineup import Lineup
from convwright.tuning.ranking import by_promise
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, Time, Way, offer


def promise(listed: Sequence[Candidate]) -> list[Candidate]:
    return by_promise(listed, CPU)


def lineup(made: Made, more: Iterable[str] = (), budget: Budget | None = None) -> Lineup:
    direct = listing.candidates(listing.direct(PROBLEM, CPU, Policy()))
    direct += [offer(PROBLEM, name) for name in more]
    budget = budget or Budget(1e6, now_us=made.time)
    return Lineup(PROBLEM, CPU, direct, direct[0], lambda inner: [], budget, most_chains=3, rank=promise)


def order(line: Lineup, times_us: dict[str, float]) -> list[str]:
    """The ids in their order, while it is told of each backend's candidates what they take."""
    ids = []
    for candidate in line:
        ids.append(candidate.id)
        line.hear(candidate, times_us.get(candidate.backend, 100.0))
    return ids


def test_everything_comes_once_the_baseline_first_and_what_compiles_last(made: Made) -> None:
    made.quick = {name: Way(1.0) for name in "abcdefghijkl"}
    made.compiled = {name: Way(1.0) for name in "xy"}
    line = lineup(made)
    ids = order(line, {})
    assert ids[0] == "torch/default"
    assert ids[-2:] == ["compiled/x", "compiled/y"]
    assert sorted(ids) == sorted(candidate.id for candidate in line.listed)
    assert [name for name in ids if "quick" in name] == [f"quick/{name}" for name in "abcdefghijkl"]


def test_what_links_comes_ahead_of_what_compiles(made: Made) -> None:
    """It takes a library tenths of a second, and processes beside compile meanwhile."""
    made.quick = {name: Way(1.0) for name in "abc"}
    made.compiled = {"x": Way(1.0)}
    line = lineup(made)
    line.listed.insert(1, replace(offer(PROBLEM, "reference/fft"), links_us=2e5))
    assert order(line, {})[1:] == ["quick/a", "quick/b", "quick/c", "reference/fft", "compiled/x"]


def test_what_has_been_compiled_comes_right_behind_the_baseline(made: Made) -> None:
    """A search may be made for its sake, and a look at another may take all of its time."""
    made.quick = {name: Way(1.0) for name in "abcd"}
    made.compiled = {name: Way(1.0) for name in "xyz"}
    direct = listing.candidates(listing.direct(PROBLEM, CPU, Policy()))
    line = Lineup(
        PROBLEM, CPU, direct, direct[0], lambda inner: [], Budget(1e6, now_us=made.time), most_chains=0, rank=promise,
        is_built=lambda candidate: candidate.algorithm in "xy",
    )  # fmt: skip
    ids = order(line, {"compiled": 900.0})
    assert ids[:3] == ["torch/default", "compiled/x", "compiled/y"]
    assert ids[-1] == "compiled/z"


def test_a_backend_that_is_slow_has_its_turn_less_often(made: Made) -> None:
    made.quick = {f"fast-{i}": Way(1.0) for i in range(10)}
    ids = order(lineup(made, [f"torch/slow-{i}" for i in range(10)]), {"torch": 500.0, "quick": 100.0})
    assert sum("slow" in name for name in ids[:12]) <= 2
    equal = order(lineup(made, [f"torch/slow-{i}" for i in range(10)]), {})
    assert sum("slow" in name for name in equal[:12]) >= 5


def test_rewrites_are_not_planned_where_time_is_short() -> None:
    asked: list[object] = []

    def promising(inner: object) -> list[Candidate]:
        asked.append(inner)
        return []

    for left, planned in ((0.7, True), (0.5, False)):
        time = Time()
        line = Lineup(
            PROBLEM, CPU, [offer(PROBLEM, "torch/default")], None, promising, Budget(100.0, now_us=time),
            most_chains=3, rank=promise,
        )  # fmt: skip
        time.now_us = 100.0 * (1 - left)
        asked.clear()
        assert order(line, {}) == ["torch/default"]
        assert bool(asked) is planned


def test_where_time_is_short_rewrites_stand_around_what_is_compiled() -> None:
    """No backend is asked for that. Grouped layers with channels last have kernels inside a relayout alone."""
    kernel = replace(offer(PROBLEM, "compiled/x"), compiles=True)
    time = Time()
    line = Lineup(
        PROBLEM, CPU, [offer(PROBLEM, "torch/default")], None, lambda inner: pytest.fail("no time"),
        Budget(100.0, now_us=time), most_chains=3, rank=promise, is_built=lambda candidate: True,
        kernels_of=lambda inner: [replace(kernel, problem=inner)],
    )  # fmt: skip
    time.now_us = 50.0
    ids = order(line, {})
    assert ids[0] == "torch/default"
    assert len(ids) == 1 + 3
    assert all("(compiled/x)" in id_ or ", compiled/x)" in id_ for id_ in ids[1:])


def test_kernels_still_being_compiled_for_inner_problems_are_tried_when_they_come() -> None:
    """A search has no time of them when it chooses what to wrap, and one may be the fastest."""
    ready, late = (replace(offer(PROBLEM, f"compiled/{name}"), compiles=True) for name in ("ready", "late"))
    built, waits = {ready.algorithm}, [True, False]

    def wait() -> bool:
        built.add(late.algorithm)
        return waits.pop(0)

    line = Lineup(
        PROBLEM, CPU, [offer(PROBLEM, "torch/default")], None, lambda inner: [offer(inner, "quick/a")],
        Budget(100.0, now_us=Time()), most_chains=None, rank=promise, wait=wait,
        is_built=lambda candidate: candidate.leaf.algorithm in built,
        kernels_of=lambda inner: [replace(each, problem=inner) for each in (ready, late)],
    )  # fmt: skip
    ids = order(line, {})
    after = [id_ for id_ in ids if "compiled/late" in id_]
    assert len(after) == sum("quick/a" in id_ for id_ in ids) > 0
    assert ids[-len(after) :] == after
    assert not any("compiled/ready" in id_ for id_ in ids)


def test_what_is_not_allowed_keeps_nothing_back_that_has_been_compiled(made: Made) -> None:
    """It would promise most, as coarse arithmetic does, and is never compiled."""
    made.quick = {f"quick-{i}": Way(1.0) for i in range(4)}
    made.compiled = {name: Way(1.0) for name in [*(f"coarse-{i}" for i in range(20)), "fine"]}
    direct = listing.candidates(listing.direct(PROBLEM, CPU, Policy()))
    seen: list[str] = []
    line = Lineup(
        PROBLEM, CPU, direct, direct[0], lambda inner: [], Budget(1e6, now_us=made.time), most_chains=0, rank=promise,
        is_built=lambda candidate: candidate.algorithm == "fine" and len(seen) > 1,
        is_allowed=lambda candidate: not candidate.algorithm.startswith("coarse"),
    )  # fmt: skip
    for candidate in line:
        seen.append(candidate.id)
        line.hear(candidate, 1.0)
    assert seen.index("compiled/fine") < seen.index("quick/quick-3")
    assert sorted(seen) == sorted(candidate.id for candidate in direct)
    assert all("coarse" in name for name in seen[-20:])
