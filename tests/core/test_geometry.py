"""One spatial dimension against counting by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem
from problem_space import problems

axes = st.builds(
    Axis,
    size=st.integers(1, 12),
    taps=st.integers(1, 5),
    stride=st.integers(1, 5),
    pad=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    dilation=st.integers(1, 4),
).filter(lambda axis: axis.out > 0)


def reads(axis: Axis) -> list[tuple[int, int, int]]:
    """Each pair of output position and tap with the input position that they meet, padding left out."""
    triples = [
        (position, tap, position * axis.stride + tap * axis.dilation - axis.pad[0])
        for position in range(axis.out)
        for tap in range(axis.taps)
    ]
    return [triple for triple in triples if 0 <= triple[-1] < axis.size]


@given(axes)
def test_what_meets_is_what_counting_gives(axis: Axis) -> None:
    outputs, taps, inputs = (set(each) for each in zip(*reads(axis), strict=True)) if reads(axis) else ((), (), ())
    assert axis.products() == len(reads(axis))
    assert (axis.outputs_met(), axis.taps_met(), axis.touched()) == (len(outputs), len(taps), len(inputs))


@given(axes)
def test_the_last_window_fits_and_no_other_would(axis: Axis) -> None:
    padded = axis.size + sum(axis.pad)
    assert (axis.out - 1) * axis.stride + axis.reach <= padded < axis.out * axis.stride + axis.reach


@pytest.mark.parametrize(
    ("axis", "out"),
    [
        (Axis(14, 3, 1, (1, 1), 1), 14),
        (Axis(224, 7, 2, (3, 3), 1), 112),
        (Axis(9, 3, 1, (2, 2), 2), 9),
        (Axis(5, 4, 1, (1, 2), 1), 5),
        (Axis(3, 5, 1, (0, 0), 1), -1),
    ],
)
def test_known_sizes(axis: Axis, out: int) -> None:
    assert axis.out == out


@given(problems())
def test_macs_are_the_product_over_dimensions(problem: ConvProblem) -> None:
    pairs = 1
    for axis in problem.axes:
        pairs *= len(reads(axis))
    assert problem.flops == 2 * problem.n * problem.k * (problem.c // problem.groups) * pairs


def test_a_filter_of_any_size_is_counted_at_once() -> None:
    axis = Axis(10**15, 10**15, 1, (0, 0), 1)
    assert axis.products() == 10**15
    assert axis.touched() == 10**15
    assert axis.taps_met() == 10**15
    assert axis.outputs_met() == 1
