"""What users write in place of a number or a name."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

import pytest

from convwright.errors import BadInput
from convwright.naming import check_above_0, is_above_0, one_of, singular
from convwright.settings import Mode


@pytest.mark.parametrize("given", [1, 0.5, Fraction(1, 3), 10**400, inf])
def test_numbers_above_0(given: object) -> None:
    assert is_above_0(given)


@pytest.mark.parametrize("given", [0, -1, -inf, nan, Fraction(-1, 2), True, "1", None, 1j])
def test_what_is_none(given: object) -> None:
    assert not is_above_0(given)


@pytest.mark.parametrize(
    ("given", "told"),
    [(True, "True"), (inf, "inf"), (nan, "nan"), (-2.5, "-2.5"), (Fraction(-1, 2), "Fraction(-1, 2)"), ("1", "'1'")],
)
def test_what_is_no_amount_is_told_as_it_was_given(given: object, told: str) -> None:
    with pytest.raises(BadInput) as error:
        check_above_0("--budget", given)
    assert str(error.value) == f"--budget takes a finite number above 0, got {told}"


def test_one_of_all_but_one() -> None:
    assert one_of(Mode, "mode", "full", but=Mode.OFF) is Mode.FULL
    there = "heuristic, predict, predict-top, quick, full"
    with pytest.raises(BadInput, match=f"^mode must be one of {there}, got 'off'$"):
        one_of(Mode, "mode", "off", but=Mode.OFF)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("1 problems on a CPU, 1 threads, 1 suggestions", "1 problem on a CPU, 1 thread, 1 suggestion"),
        ("21 problems, 1,1 threads", "21 problems, 1,1 threads"),
        ("1 of 2 problems", "1 of 2 problems"),
    ],
)
def test_a_count_of_one_is_singular(said: str, meant: str) -> None:
    assert singular(said) == meant
