"""The table of each suite in fp32, forward, with TF32 off, made of whichever records of `suite_choices.py` have it."""

from __future__ import annotations

from typing import Any

from pages import choices
from pages.records import Lines

from convwright import suites
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem


def table(lines: Lines) -> str:
    return choices.table([line for line in lines if _of_a_suite(line)])


def _of_a_suite(line: dict[str, Any]) -> bool:
    if line["suite"] not in suites.names() or line["tf32"] is not False:
        return False
    return ConvProblem.parse(line["problem"]).direction is Direction.FORWARD
