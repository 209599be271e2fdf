"""Verdicts: what is the same is said to be, and 3 % are found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from convwright.errors import BadInput
from convwright.measuring.compare import Outcome, compare, compare_undisturbed
from convwright.measuring.regression import median_interval
from convwright.measuring.timer import Timing, measure, measure_calls
from measuring.fake_clock import FakeClock


def verdicts(factor: float, *, noise: float = 0.01, budget_us: float = 1e6) -> Counter[Outcome]:
    """100 runs, each with a noise of its own, of a call beside one with ``factor`` times its work."""
    found: Counter[Outcome] = Counter()
    for seed in range(100):
        calls = {"a": lambda: 7.0 * factor, "b": lambda: 7.0}
        timings = measure_calls(calls, clock=FakeClock(seed, noise=noise), budget_us=budget_us, seed=seed)
        found[compare(timings["a"], timings["b"]).outcome] += 1
    return found


def test_a_call_is_the_same_as_itself_in_95_of_100() -> None:
    assert verdicts(1.0)[Outcome.SAME] >= 95


@pytest.mark.parametrize(("factor", "outcome"), [(1.03, Outcome.SLOW), (1 / 1.03, Outcome.FAST)])
def test_3_percent_are_found_in_95_of_100(factor: float, outcome: Outcome) -> None:
    assert verdicts(factor)[outcome] >= 95


def test_1_percent_is_a_tie() -> None:
    assert verdicts(1.01)[Outcome.SAME] >= 95


def test_what_the_budget_leaves_open_is_said_to_be_open() -> None:
    found = verdicts(1.0, noise=0.02, budget_us=2e4)
    assert found[Outcome.FAST] + found[Outcome.SLOW] <= 1
    assert found[Outcome.AMBIGUOUS] >= 95


def timing(*slopes_us: float, run: int = 0) -> Timing:
    return Timing(median_interval(slopes_us), 0.0, 3 * len(slopes_us), slopes_us, None, run)


def test_the_edges_of_a_tie() -> None:
    base = timing(*[100.0] * 10)
    assert compare(timing(*[101.9] * 10), base).outcome is Outcome.SAME
    assert compare(timing(*[102.1] * 10), base).outcome is Outcome.SLOW
    assert compare(base, timing(*[102.1] * 10)).outcome is Outcome.FAST
    assert compare(timing(*[100.5] * 5, *[101.5] * 5), base).outcome is Outcome.SAME
    assert compare(timing(*[100.4] * 5, *[101.6] * 5), base).outcome is Outcome.AMBIGUOUS
    assert compare(timing(*[101.0] * 5, *[103.5] * 5), base).outcome is Outcome.AMBIGUOUS


def test_a_verdict_reads_as_a_sentence() -> None:
    assert (
        str(compare(timing(*[150.0] * 8), timing(*[100.0] * 8)))
        == "slow: takes 1.500 times as long, 95 % 1.500 to 1.500, 8 rounds"
    )


def test_rounds_that_other_work_disturbed_decide_only_where_that_is_tolerated() -> None:
    own, other = timing(*[100.0, 400.0] * 5), timing(*[50.0, 200.0] * 5)
    shaken = replace(own, disturbed=True)
    for a, b in ((other, shaken), (shaken, other)):
        assert compare_undisturbed(a, b) is None
        verdict = compare_undisturbed(a, b, tolerate_load=True)
        assert verdict is not None
        assert verdict.outcome is (Outcome.FAST if a is other else Outcome.SLOW)
    assert compare_undisturbed(other, own) == compare(other, own)


def test_a_ratio_is_known_where_the_rounds_give_both_ends() -> None:
    assert compare(timing(*[50.0] * 6), timing(*[100.0] * 6)).is_known
    assert not compare(timing(50.0), timing(100.0)).is_known
    assert not compare(timing(1e-3, 50.0), timing(100.0, 1e-3)).is_known


def test_what_is_no_timing_is_not_compared() -> None:
    with pytest.raises(BadInput, match="what is compared must be a Timing, as `measure_together` gives, got 1"):
        compare(1, 2)  # type: ignore[arg-type]


def test_timings_of_two_runs_are_not_compared() -> None:
    first, second = (measure(lambda: 7.0, clock=FakeClock(seed), budget_us=1e4) for seed in (1, 2))
    with pytest.raises(BadInput, match=r"one run of measure_together took both, .* two runs"):
        compare(first, second)
