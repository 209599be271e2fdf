"""First looks alone, by which the candidates of a problem inside a rewrite are ranked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from convwright.core.candidate import Offer
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import inner_problems, listing
from convwright.tuning.budget import Budget
from convwright.tuning.find import find
from convwright.tuning.run import Run
from convwright.tuning.search import Search
from convwright.tuning.trials.first_looks import glance
from convwright.tuning.trials.search_input import SearchInput
from tuning.made import CPU, PROBLEM, Compiled
from tuning.made_backend import Made, MadeQuick, Way


def glanced(made: Made, budget_us: float = 1e6) -> list[str]:
    listed = listing.candidates(listing.direct(PROBLEM, CPU, Policy()))
    budget = Budget(budget_us, now_us=made.time)
    contest = SearchInput(PROBLEM, CPU, Policy(), listed[0], {}, Mode.QUICK, budget)
    return [candidate.id for candidate in glance(listed, contest)]


def test_the_fastest_comes_first_and_nothing_is_timed(made: Made) -> None:
    made.quick = {"slow": Way(3000.0), "fast": Way(400.0), "wrong": Way(100.0, wrong=True)}
    assert glanced(made) == ["quick/wrong", "quick/fast", "torch/default", "quick/slow"]
    assert made.time() < 20_000


def test_a_call_of_pytorchs_own_that_is_slow_keeps_nobody_from_being_looked_at(made: Made) -> None:
    made.own_us, made.quick = 9000.0, {"fast": Way(400.0)}
    assert glanced(made, budget_us=40_000.0) == ["quick/fast", "torch/default"]


def test_no_look_is_begun_behind_the_end_of_the_budget(made: Made) -> None:
    made.quick = {f"way-{i}": Way(500.0, build_us=10_000.0) for i in range(9)}
    assert len(glanced(made, budget_us=24_000.0)) == 3


def test_what_is_not_allowed_and_what_would_have_to_be_compiled_is_left_out(made: Made) -> None:
    made.quick = {"fast": Way(400.0), "large": Way(300.0)}
    made.compiled = {"built": Way(200.0), "not-built": Way(100.0)}
    offers = listing.candidates(listing.direct(PROBLEM, CPU, Policy()))
    offers = [replace(each, workspace_bytes=100) if each.id == "quick/large" else each for each in offers]
    policy = Policy(max_workspace_bytes=10)
    search = Search(PROBLEM, CPU, policy, Mode.QUICK, Store.open(None), Budget(1e6), kernels=Compiled("compiled/built"))
    run = Run(search, offers, lambda problem: [], rewrites=False, most_chains=0, afresh=True)
    assert [candidate.id for candidate in run.glance()] == ["compiled/built", "quick/fast", "torch/default"]


def test_beside_the_fastest_the_fastest_that_saves_products_is_wrapped(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = MadeQuick.candidates

    def saving(self: MadeQuick, *asked: Any) -> Iterator[Offer]:
        yield from (replace(each, saves_products=each.id in ("quick/b", "quick/e")) for each in offered(self, *asked))  # type: ignore[type-var]

    monkeypatch.setattr(MadeQuick, "candidates", saving)
    made.quick = {name: Way(300.0 + 50 * place) for place, name in enumerate("abcde")}
    search = Search(PROBLEM, CPU, Policy(), Mode.FULL, Store.open(None), Budget(1e6, now_us=made.time))
    best = inner_problems.searching(search)(ConvProblem.parse("mb2ic8ih9oc8kh3"))
    assert [candidate.id for candidate in best] == ["quick/a", "quick/c", "quick/b"]


def test_a_budget_that_is_spent_before_the_search_begins_leaves_pytorchs_own_call(made: Made) -> None:
    made.quick = {"fast": Way(400.0)}
    found = find(PROBLEM, CPU, Policy(), mode=Mode.FULL, store=Store.open(None), budget_us=1.0)
    assert found.choice is not None
    assert found.choice.candidate.id == "torch/default"
