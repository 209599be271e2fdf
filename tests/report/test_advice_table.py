"""The table of advice: which columns it keeps in a narrow terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from convwright.advising.advice import Advice, LayerAdvice
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.engine.capture.distinct import Posed
from convwright.engine.capture.layers import LayerCall
from convwright.report.tables.advice import print_advice
from convwright.settings import Mode
from convwright.tuning.choose import choose
from convwright.tuning.findings import Findings
from tuning.made import CPU, PROBLEM, finding


def layer(direction: Direction) -> LayerAdvice:
    own = finding("torch/default", 100.0)
    verdicts = choose((own, finding("reference/a-candidate-with-a-long-name", 50.0)), own, Policy())
    problem = replace(PROBLEM, direction=direction)
    found = Findings(problem, CPU, Policy(), Mode.QUICK, verdicts, (), own)
    return LayerAdvice(Posed(problem, (LayerCall("stages.0.a_long_name", problem, False, 3),)), found)


def header_and_rows(width: int, *, backward: bool) -> list[str]:
    directions = list(Direction) if backward else [Direction.FORWARD]
    layers = tuple(map(layer, directions))
    out = StringIO()
    print_advice(
        Advice(CPU, Mode.QUICK, backward, layers, None, None, None, (), (), ()), Console(file=out, width=width)
    )
    return out.getvalue().splitlines()[1:]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_what_rows_are_sorted_by_stays(width: int) -> None:
    header, row, *_ = header_and_rows(width, backward=False)
    assert header.startswith("layers ")
    assert header.split().count("saves") == 1
    assert " 150.0 " in row


@pytest.mark.parametrize("width", [80, 160])
def test_rows_of_a_training_step_show_their_direction(width: int) -> None:
    header, *rows = header_and_rows(width, backward=True)
    assert {"direction", "candidate"} <= set(header.split())
    assert {name for name in map(str, Direction) for row in rows if f" {name} " in row} == set(map(str, Direction))
    assert "direction" not in header_and_rows(width, backward=False)[0]


def test_a_column_without_any_value_is_left_out() -> None:
    header = header_and_rows(160, backward=False)[0]
    assert "now µs" in header
    assert "limit" not in header
