"""A benchmark's table in terminals of any width: which problem a row is of, and how it came out, can always be read."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.report.benchmarks.result import Outcome, Result
from convwright.report.benchmarks.table import print_results, results_data, results_sheet

KEY = ConvProblem.parse("ic64ih56oc64kh3ph1").key
OWN, OURS = "torch/default", "reference/gemm"


def result(name: str, outcome: Outcome, time_us: float) -> Result:
    times_us = {OWN: Interval(1000.0, 999.0, 1001.0), OURS: Interval(time_us, time_us - 1, time_us + 1)}
    ratio = Interval(1000 / time_us, 999 / (time_us + 1), 1001 / (time_us - 1))
    return Result(name, KEY, (), None, OWN, OURS, times_us, ratio, outcome)


RESULTS = [result("layer1", Outcome.FASTER, 500.0), result("layer2", Outcome.AMBIGUOUS, 990.0)]


def printed(width: int, *results: Result) -> list[str]:
    out = StringIO()
    print_results(results or RESULTS, Console(file=out, width=width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 150, 200])
def test_a_row_says_which_problem_it_is_and_its_outcome(width: int) -> None:
    lines = printed(width)
    assert all(len(line) <= width for line in lines[:-1])
    for name, outcome in (("layer1", "faster"), ("layer2", "ambiguous")):
        row = next(line for line in lines if line.startswith(name))
        assert outcome in row
    assert "winner" in lines[0]
    assert all(line.strip() for line in lines)


def test_sentences_break_between_words_in_a_narrow_terminal() -> None:
    shaken = replace(result("layer3", Outcome.AMBIGUOUS, 1000.0), unstable="unstable: 2 rounds: wait")
    wide, narrow = (printed(width, *RESULTS, shaken) for width in (300, 80))
    assert max(map(len, wide)) > 100
    assert max(map(len, narrow)) <= 80
    for sentence in wide[-2:]:
        assert sentence in " ".join(map(str.rstrip, narrow))


def test_what_is_unstable_or_was_not_measured_is_said_below() -> None:
    shaken = replace(result("layer3", Outcome.AMBIGUOUS, 1000.0), unstable="unstable: 2 rounds: wait")
    alike = [Result(f"layer{index}", KEY, (), remark="was not timed: too long") for index in (4, 5)]
    *_, first, second, summary = printed(300, *RESULTS, shaken, *alike)
    assert first == "1 of 5 rows is unstable and not kept (2 rounds): wait."
    assert second == "layer4, layer5: was not timed: too long"
    assert " (uncertain: 2 ambiguous rows count as measured); " in summary


def test_a_ratio_is_shown_with_what_it_rests_on() -> None:
    known = replace(RESULTS[0], rounds=31)
    for width in (120, 200):
        head, row, *_ = printed(width, known)
        assert head.split("  ").count("95 %") == 1
        assert "rounds" in head
        assert "2.00  1.99 to 2.01      31  faster" in row
    (row,) = results_data([known])
    assert (row["rounds"], row["times_faster_low"]) == (31, known.times_faster.low)  # type: ignore[union-attr]
    assert "rounds" not in printed(200, RESULTS[0])[0]


def test_a_limit_that_is_tiny_is_not_nothing() -> None:
    rows = printed(200, replace(RESULTS[0], limit_us=0.0039))
    assert "0.0039" in rows[1]


def test_a_failure_can_be_read_at_40_columns() -> None:
    failed = Result("layer3", KEY, (), "no memory")
    text = " ".join(printed(40, *RESULTS, failed))
    assert "layer3" in text
    assert "failed:" in text


def test_directions_are_shown_where_rows_differ_in_them() -> None:
    assert "direction" not in printed(80)[0]
    gradient = replace(RESULTS[1], problem=KEY.replace("dir:forward", "dir:backward_weight"))
    for width in (60, 80, 200):
        head, first, second, *_ = printed(width, RESULTS[0], gradient)
        assert "direction" in head
        assert "forward" in first
        assert "backward_weight" in second


def test_times_have_room_where_names_are_short() -> None:
    assert "PyTorch µs" in printed(80)[0]
    assert {"500.0", "990.0"} <= set(" ".join(printed(80)).split())


def test_rows_as_data_and_as_markdown() -> None:
    first, second = results_data(RESULTS)
    assert (first["name"], first["winner_us"], first["torch_us"], first["outcome"]) == (
        "layer1", 500.0, 1000.0, "faster",
    )  # fmt: skip
    assert second["times_faster"] == 1000 / 990
    head, rule, *rows = results_sheet(RESULTS, 200).markdown().splitlines()
    assert head.startswith("| name | problem | PyTorch µs | winner |")
    assert "rel. L2" not in head, "it is empty"
    assert rule.count("|") == head.count("|") == rows[0].count("|")
    assert len(rows) == 2
