"""What is seen of one candidate: its time with rounds and conditions, its error, and its energy where that is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import pytest

from convwright.campaign import child
from convwright.campaign.attempt import Attempt
from convwright.campaign.campaign import Campaign
from convwright.campaign.child import Plan, Start
from convwright.campaign.drawn import Drawn
from convwright.campaign.listed import is_hopeless
from convwright.campaign.problems import SHARES
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.tuning import listing
from convwright.tuning.trials import extras

CAMPAIGN = Campaign("made", 0, SHARES, timing_us=50e3, most=4)
DRAWN = Drawn(ConvProblem.of((1, 8, 16, 16), (8, 8, 3, 3), padding=1), "networks:made", 7)


@pytest.fixture(scope="module")
def plan() -> Iterator[Plan]:
    child.begin(None, Start("cpu", None, measures=False))
    yield child.plan(None, CAMPAIGN, DRAWN)
    child.forget()


def attempt(plan: Plan, place: int, **changed: object) -> Observation:
    return child.attempt(None, replace(Attempt(CAMPAIGN, DRAWN, plan.listed[place], plan.policy, 1), **changed))


def test_pytorchs_own_call_comes_first_and_one_problem_in_eight_has_more(plan: Plan) -> None:
    assert plan.listed[0].candidate.id == "torch/default"
    assert len({each.candidate.id for each in plan.listed}) == len(plan.listed) == CAMPAIGN.most
    many = child.plan(None, CAMPAIGN, replace(DRAWN, number=8)).listed
    assert CAMPAIGN.most < len(many) <= 4 * CAMPAIGN.most
    algorithms = {each.candidate.family for each in many if each.first}
    assert {"torch/default", "reference/gemm", "reference/direct"} <= algorithms
    assert len(algorithms) == sum(each.first for each in many)
    assert any(not each.first for each in many)


def test_a_measured_candidate_is_an_observation_with_all_that_belongs_to_it(plan: Plan) -> None:
    for place in range(2):
        seen = attempt(plan, place)
        measured = seen.measurement
        assert seen.outcome is Outcome.MEASURED
        assert measured is not None
        conditions = dict(measured.conditions)
        assert (conditions["origin"], conditions["campaign"], conditions["mode"]) == (
            "networks:made",
            "made",
            "campaign",
        )
        assert len(seen.rounds_us) >= 2  # fewer than there is time for, where other work disturbs some
        assert min(seen.rounds_us) <= measured.device_us.value <= max(seen.rounds_us) or measured.doubt is not None
        assert measured.errors[0].relative_l2 < 1e-5
        assert Observation.from_json(seen.to_json()) == seen
    again = attempt(plan, 0, drawn=replace(DRAWN, again=True)).measurement
    assert again is not None
    assert dict(again.conditions)["measured"] == "again"


def test_what_is_far_slower_than_others_is_timed_by_its_first_runs_alone(plan: Plan) -> None:
    slow = Drawn(ConvProblem.of((16, 64, 64, 64), (64, 64, 3, 3), padding=1), "networks:made", 8)
    listed = child.plan(None, CAMPAIGN, slow).listed[0]
    clocks, rounds = [], []
    for best_us in (1.0, 1e6):
        seen = child.attempt(None, Attempt(CAMPAIGN, slow, listed, plan.policy, 1, best_us))
        assert seen.measurement is not None
        clocks.append(dict(seen.measurement.conditions)["clock"])
        rounds.append(len(seen.rounds_us))
    assert clocks == ["WallClock, one call at a time", "WallClock"]
    assert rounds[0] <= 3


class Counter:
    """Counts energy as if 50 W were drawn."""

    source = "made"

    def read_mj(self) -> float:
        return perf_counter() * 50_000


def test_energy_is_measured_of_one_in_so_many(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "counter_of", lambda device: Counter())
    monkeypatch.setattr("convwright.campaign.attempt.ENERGY_S", 1.0)
    campaign = replace(CAMPAIGN, energy_every=3)
    energies = []
    for number in (2, 3):
        measured = attempt(plan, 0, campaign=campaign, number=number).measurement
        assert measured is not None
        energies.append(measured.energy_mj)
    assert energies[0] is None
    assert energies[1] is not None
    assert energies[1] > 0


def test_physics_says_what_is_hopeless() -> None:
    h200 = profile("h200")
    problem = ConvProblem.of((32, 256, 56, 56), (256, 256, 3, 3), padding=1, dtype="fp16")
    candidate = listing.candidates(listing.direct(problem, h200, Policy()))[0]
    assert is_hopeless(candidate, h200, best_us=1.0)
    assert not is_hopeless(candidate, h200, best_us=1e6)
