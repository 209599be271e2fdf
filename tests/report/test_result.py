"""Results of a benchmark: how a choice compares with PyTorch's own call, and what all of them come to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding, Interval, KindError, Measurement, PairedRatio
from convwright.core.policy import Objective, Policy
from convwright.core.profiles import profile
from convwright.report.benchmarks.lines import as_line
from convwright.report.benchmarks.result import Asked, Outcome, Result, key_of, outcome_of
from convwright.report.benchmarks.table import Summary
from convwright.settings import Mode
from convwright.suites.suite import Row
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings

ROW = Row("one", "ic8ih9oc8kh3")
CPU = DeviceFacts("a cpu", "cpu", "x86", torch_name="cpu", bandwidth_bytes_per_us=100.0)
POLICY = Policy(max_workspace_bytes=1 << 30)


def finding(name: str, low: float, value: float, high: float, *, error: float = 1e-7, workspace: int = 0) -> Finding:
    backend, _, algorithm = name.partition("/")
    candidate = Candidate(ROW.problem, backend, algorithm, (), Arithmetic.FP32, workspace, True, Source.RULE)
    errors = (KindError("normal", error, 1.0),)
    return Finding(candidate, Measurement(Interval(value, low, high), None, errors, workspace, 9, ()))


def found(torchs: Finding | None, *others: Finding, policy: Policy = POLICY) -> Findings:
    rows = [*([torchs] if torchs else []), *others]
    return Findings(ROW.problem, CPU, policy, Mode.QUICK, choose(rows, torchs, policy), (), torchs)


OWN = finding("torch/default", 99, 100, 101)
CASES = [
    ("half", [finding("a/b", 49, 50, 51)], Outcome.FASTER, (99 / 51, 2.0, 101 / 49)),
    ("equal", [finding("a/b", 99, 100, 101)], Outcome.SAME, (1, 1, 1)),
    ("slow", [finding("a/b", 149, 150, 151)], Outcome.SAME, (1, 1, 1)),
    ("wide", [finding("a/b", 50, 90, 130)], Outcome.AMBIGUOUS, (1, 1, 1)),
    ("wrong", [finding("a/b", 49, 50, 51, error=1e-2)], Outcome.SAME, (1, 1, 1)),
    ("alone", [], Outcome.SAME, (1, 1, 1)),
]


@pytest.mark.parametrize(("others", "outcome", "ratio"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_outcomes(others: list[Finding], outcome: Outcome, ratio: tuple[float, float, float]) -> None:
    searched = found(OWN, *others)
    assert outcome_of(searched) is outcome
    assert searched.times_faster == pytest.approx(Interval(ratio[1], ratio[0], ratio[2]))


def test_a_choice_may_be_slower_where_something_else_is_wanted() -> None:
    own, ours = finding("torch/default", 9, 10, 11, workspace=99), finding("a/b", 39, 40, 41)
    searched = found(own, ours, policy=Policy(max_workspace_bytes=1 << 30, objective=Objective.WORKSPACE))
    assert searched.choice is ours
    assert outcome_of(searched) is Outcome.SLOWER


@pytest.mark.parametrize(
    ("times", "outcome"),
    [
        ((98.5, 99, 99.5), Outcome.SAME),
        ((101, 101.5, 102), Outcome.SAME),
        ((50, 90, 130), Outcome.AMBIGUOUS),
        ((90, 130, 170), Outcome.AMBIGUOUS),
        ((97.9, 100, 102.1), Outcome.AMBIGUOUS),
    ],
)
def test_a_tie_is_the_same_whichever_was_chosen(times: tuple[float, float, float], outcome: Outcome) -> None:
    own, ours = finding("torch/default", 99.5, 100, 100.5, workspace=99), finding("a/b", *times)
    searched = found(own, ours, policy=Policy(max_workspace_bytes=1 << 30, objective=Objective.WORKSPACE))
    assert searched.choice is ours
    assert outcome_of(searched) is outcome


@pytest.mark.parametrize(("high", "outcome"), [(102.0, Outcome.SAME), (102.1, Outcome.AMBIGUOUS)])
def test_what_is_not_known_to_within_a_tie_is_the_same_as_nothing(high: float, outcome: Outcome) -> None:
    assert outcome_of(found(finding("torch/default", 200 - high, 100, high))) is outcome


def disturbed(row: Finding) -> Finding:
    assert row.measurement is not None
    return replace(row, measurement=replace(row.measurement, doubt="unstable: all rounds: wait"))


def test_what_other_work_disturbed_is_ambiguous_however_narrow_and_is_searched_again() -> None:
    searched = found(disturbed(OWN), finding("a/b", 49, 50, 51))
    assert searched.choice is searched.baseline
    assert outcome_of(searched) is Outcome.AMBIGUOUS
    record = asked().record(ROW, searched, 0.5)
    assert Result.of(record).unstable == "unstable: all rounds: wait"
    assert key_of(record) is None


def test_nothing_is_compared_with_what_was_not_measured() -> None:
    unmeasured = Finding(OWN.candidate, note="was not measured")
    for searched in (found(unmeasured), found(None, finding("a/b", 1, 2, 3))):
        assert outcome_of(searched) is None
        assert searched.times_faster is None


def beside_own(low: float, value: float, high: float, own: str = OWN.candidate.id) -> Finding:
    """A candidate with disjoint times, whose ratio to PyTorch's own call is known from 31 rounds."""
    made = finding("a/b", 49, 50, 51)
    assert made.measurement is not None
    paired = PairedRatio(own, Interval(value, low, high), 31)
    return replace(made, measurement=replace(made.measurement, paired=paired))


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        ((0.78, 0.8, 0.82), Outcome.FASTER),
        ((0.78, 0.8, 0.99), Outcome.AMBIGUOUS),
        ((0.98, 0.985, 0.99), Outcome.SAME),
        ((1.1, 1.2, 1.3), Outcome.SLOWER),
    ],
)
def test_the_ratio_of_rounds_decides_and_is_shown(ratio: tuple[float, float, float], outcome: Outcome) -> None:
    searched = found(OWN, beside_own(*ratio))
    assert outcome_of(searched) is outcome
    record = json.loads(as_line(asked().record(ROW, searched, 0.5)))
    result = Result.of(record)
    assert result.rounds == record["rounds"] == 31
    low, value, high = ratio
    assert result.times_faster == pytest.approx(Interval(1 / value, 1 / high, 1 / low))


def test_a_ratio_to_another_call_decides_nothing() -> None:
    """As PyTorch's own call under the other TF32 flag, of an earlier search."""
    searched = found(OWN, beside_own(1.1, 1.2, 1.3, own="torch/default[tf32=1]"))
    assert outcome_of(searched) is Outcome.FASTER
    assert searched.times_faster == pytest.approx(Interval(2.0, 99 / 51, 101 / 49))
    assert Result.of(asked().record(ROW, searched, 0.5)).rounds is None


def elsewhere() -> Findings:
    """What is said of a GPU that is not in the machine: the first may need 1 GB and more, which is not allowed."""
    sizes = ((1 << 40, "a/large"), (1 << 20, "a/b"), (0, "a/c"))
    rows = [
        Finding(replace(OWN.candidate, backend=name[:1], algorithm=name[2:], workspace_bytes=size))
        for size, name in sizes
    ]
    return Findings(ROW.problem, profile("h200"), POLICY, Mode.HEURISTIC, choose(rows, None, POLICY), (), None)


def test_where_nothing_ran_the_first_that_is_allowed_stands_there_with_its_workspace() -> None:
    result = Result.of(json.loads(as_line(asked().record(ROW, elsewhere(), 0.5))))
    assert (result.first, result.workspace) == ("a/b", "1.05 MB")
    measured = Result.of(asked().record(ROW, found(OWN), 0.5))
    assert (measured.first, measured.workspace) == (None, None)


def test_a_row_without_a_time_says_why() -> None:
    unmeasured = Finding(OWN.candidate, note="was not timed: a call takes 3 s")
    cases = {
        found(unmeasured): "was not timed: a call takes 3 s",
        found(None, finding("a/b", 1, 2, 3)): "PyTorch's own call is not among the candidates",
        found(None): "no candidate can compute it here",
        elsewhere(): ("NVIDIA H200 is not in this machine, so nothing ran; the first candidate should be the fastest"),
    }
    for searched, remark in cases.items():
        assert Result.of(asked().record(ROW, searched, 0.5)).remark == remark
    assert Result.of(asked().record(ROW, found(OWN), 0.5)).remark is None


def asked(**policy: object) -> Asked:
    return Asked("mine", CPU, "quick", Policy(**policy))  # type: ignore[arg-type]


def test_a_record_comes_back_from_a_file() -> None:
    record = asked().record(ROW, found(OWN, finding("a/b", 49, 50, 51, error=3e-8)), 0.5)
    read = json.loads(as_line(record))
    result = Result.of(read)
    assert result == Result.of(record)
    assert (result.name, result.problem, result.choice, result.baseline) == (
        "one",
        ROW.problem.key,
        "a/b",
        OWN.candidate.id,
    )
    assert (result.error, result.torch_error) == (3e-8, 1e-7)
    assert result.limit_us == pytest.approx(ROW.problem.bytes / 100)
    assert result.share == pytest.approx(ROW.problem.bytes / 100 / 50)
    assert result.time_us("a/b") == Interval(50, 49, 51)
    assert key_of(read) == key_of(record) == asked().key(ROW)


def test_the_fastest_of_those_that_are_called_alike_and_may_be_chosen() -> None:
    others = [finding("a/b", 49, 50, 51), finding("a/wrong", 9, 10, 11, error=1e-2), finding("a/c", 59, 60, 61)]
    record = Asked("", CPU, "quick", POLICY).record(ROW, found(OWN, *others), 1.0)
    result = Result.of(json.loads(as_line(record)))
    times_us = [result.time_us(name) for name in ("a/*", "a/wrong", "*", "a/w*", "a/b*", "b/*")]
    assert [each and each.value for each in times_us] == [50, 10, 50, None, 50, None]
    measured = [result.measured_like(name) for name in ("a/wrong", "a/w*", "b/*", "a")]
    assert measured == [["a/wrong"], ["a/wrong"], [], []], "whether or not it may be chosen"


def test_what_is_not_finite_comes_back_too() -> None:
    wide = finding("torch/default", float("-inf"), 10.0, float("inf"), error=float("nan"))
    result = Result.of(json.loads(as_line(asked().record(ROW, found(wide), 0.5))))
    assert result.time_us("torch/default") == Interval(10.0, 0.0, float("inf"))
    assert result.torch_error != result.torch_error


def test_keys_tell_records_apart() -> None:
    keys = {
        asked().key(ROW), asked(max_error=3.0).key(ROW), asked(deterministic=True).key(ROW),
        asked().key(Row("two", ROW.text)), asked().key(Row("one", "mb2ic8ih9oc8kh3")),
        Asked("mine", CPU, "full", Policy()).key(ROW),
    }  # fmt: skip
    assert len(keys) == 6
    assert key_of(asked().failure(ROW, RuntimeError("no memory"))) is None
    assert key_of({"benchmark": "another"}) is None


def test_a_summary() -> None:
    searches = [found(OWN, finding("a/b", 49, 50, 51)), found(OWN), found(OWN, finding("a/b", 50, 90, 130))]
    results = [Result.of(asked().record(Row(f"{index}", ROW.text), each, 0.1)) for index, each in enumerate(searches)]
    results.append(Result.of(asked().failure(ROW, RuntimeError("no memory"))))
    summary = Summary.of(results)
    assert summary.outcomes == {Outcome.FASTER: 1, Outcome.SAME: 1, Outcome.SLOWER: 0, Outcome.AMBIGUOUS: 1}
    assert (summary.failed, summary.not_measured) == (1, 0)
    assert summary.times_faster is not None
    assert summary.times_faster.value == pytest.approx(2 ** (1 / 3))
    assert " (uncertain: 1 ambiguous row counts as measured); worst" in str(summary)
    assert "ambiguous row" not in str(Summary.of(results[:2]))
    assert str(summary).endswith("worst 1.000, PyTorch's own call. 1 failed.")
    assert Summary.of([]).to_json()["times_faster"] is None


def test_a_record_of_an_earlier_version_is_the_same_row() -> None:
    one = replace(CPU, threads=1)
    now = Asked("mine", one, "quick", Policy())
    record = now.failure(ROW, ValueError("of another kind")) | {"failure": None}
    assert record["device"] == "a cpu, 1 thread"
    assert key_of(record) == key_of(record | {"device": one.key}) == now.key(ROW)
