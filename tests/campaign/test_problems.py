"""The sequence of problems: the same for everyone, small enough, and of every source that has a share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import convwright as cw
from convwright.campaign.bounds import MOST_US, usual_us
from convwright.campaign.campaign import Campaign
from convwright.campaign.drawn import Drawn
from convwright.campaign.problems import SHARES, problem_at, shares_of
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BadInput

CPU = DeviceFacts("a CPU", "cpu", "any", threads=2, memory_bytes=1 << 34)
H200 = profile("h200")


def campaign(seed: int = 0, shares: tuple[tuple[str, float], ...] = SHARES) -> Campaign:
    return Campaign("made", seed, shares)


@pytest.mark.parametrize("device", [CPU, H200], ids=["cpu", "h200"])
def test_each_place_has_its_problem_whoever_asks_and_in_whatever_order(device: DeviceFacts) -> None:
    forwards = [problem_at(campaign(), device, number) for number in range(12)]
    backwards = [problem_at(campaign(), device, number) for number in reversed(range(12))]
    assert forwards == backwards[::-1]
    assert len({each.problem for each in forwards}) == 12
    others = [problem_at(campaign(seed=1), device, number) for number in range(12)]
    assert not {each.problem for each in forwards} & {each.problem for each in others}


@pytest.mark.parametrize("device", [CPU, H200], ids=["cpu", "h200"])
def test_problems_are_of_all_sorts_and_fit(device: DeviceFacts) -> None:
    drawn = [problem_at(campaign(), device, number) for number in range(100)]
    drawn += [problem_at(campaign(shares=(("kinds", 1.0),)), device, number) for number in range(40)]
    problems = [each.problem for each in drawn]
    convolutions = [problem for problem in problems if isinstance(problem, ConvProblem)]
    assert {each.origin.partition(":")[0] for each in drawn} == {"random", "networks", "kinds"}
    assert {problem.kind for problem in problems} == {"conv", "linear", "copy", "pointwise", "pool", "resize"}
    assert {problem.direction for problem in convolutions} == set(Direction)
    assert {problem.rank for problem in convolutions} == {1, 2, 3}
    assert {str(problem.x.layout) for problem in convolutions} == {"nchw", "nhwc"}
    assert any(1 < problem.groups < problem.c for problem in convolutions)
    assert any(problem.groups == problem.c > 1 for problem in convolutions)
    assert any(problem.epilogue.residual for problem in convolutions)
    assert max(usual_us(problem, device) for problem in problems) <= MOST_US
    assert all(sum(s.nbytes for s in p.operands.values()) <= (device.memory_bytes or 0) / 32 for p in problems)


def test_times_are_spread_over_magnitudes() -> None:
    times = [usual_us(problem_at(campaign(), H200, number).problem, H200) for number in range(80)]
    within = Counter(sum(time >= limit for limit in (10.0, 100.0, 1000.0)) for time in times)
    assert min(within[place] for place in range(4)) >= 8


def test_layers_of_a_network_carry_its_name() -> None:
    origins = {problem_at(campaign(shares=(("networks", 1.0),)), CPU, n).origin for n in range(30)}
    assert all(origin.startswith("networks:") for origin in origins)
    assert {"networks:deepbench", "networks:msd"} & origins
    assert len(origins) > 5


def test_a_task_is_written_and_read_back() -> None:
    drawn = Drawn(problem_at(campaign(), CPU, 3).problem, "networks:resnet18", 3, again=True)
    assert Drawn.read(drawn.text()) == drawn
    assert drawn.name == "00000003-again"
    with pytest.raises(BadInput, match=r"this is not a problem of a campaign: '\{\}'"):
        Drawn.read("{}")


def test_shares_that_are_none_are_refused_in_words() -> None:
    assert shares_of({"kinds": 2}) == (("kinds", 2.0),)
    with pytest.raises(BadInput, match="a source of problems is one of random, networks, kinds, got 'zoo'"):
        shares_of("zoo")
    with pytest.raises(BadInput, match="the share of random must be a finite number that is not negative, got -1"):
        shares_of("random=-1")
    with pytest.raises(BadInput, match="written name or name=share, for example random=2, got 'random=much'"):
        shares_of("random=much")
    with pytest.raises(BadInput, match="must have a share above 0"):
        shares_of("random=0")


def test_a_campaign_that_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="`seed` must be a whole number that is not negative, got -1"):
        campaign(seed=-1)
    with pytest.raises(BadInput, match="`repeat` is a share of the problems, between 0 and 1, got 2"):
        Campaign("made", 0, SHARES, repeat=2)
    tiny = DeviceFacts("a watch", "cpu", "any", threads=1, memory_bytes=1 << 10)
    with pytest.raises(BadInput, match="no problem of the source 'networks' fits on a watch: choose other sources"):
        problem_at(campaign(shares=(("networks", 1.0),)), tiny, 0)


@pytest.mark.parametrize(
    ("given", "shares"), [(["random"], (("random", 1.0),)), (("random=2", "kinds"), (("random", 2.0), ("kinds", 1.0)))]
)
def test_sources_are_a_list_as_well(given: object, shares: tuple[tuple[str, float], ...]) -> None:
    assert shares_of(given) == shares  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [3, [3], []])
def test_other_sources_are_refused(given: object) -> None:
    with pytest.raises(BadInput, match=r'^`sources` must be names, such as \["random"\], or shares, as in'):
        cw.sample("cpu", seconds=1, sources=given)  # type: ignore[arg-type]


def test_a_campaign_needs_a_store_that_keeps_what_it_measures(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        cw.StoreError, match=r"^a campaign needs a store that keeps its observations: .*is not a folder"
    ):
        cw.sample("cpu", seconds=1, store=tmp_path / "file" / "x.sqlite")
