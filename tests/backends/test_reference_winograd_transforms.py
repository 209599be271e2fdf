"""Winograd's matrices in exact arithmetic, and how they cut a dimension into tiles."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convwright.backends.reference.minimal_filtering.tiles import TiledAxis
from convwright.backends.reference.minimal_filtering.transforms import (
    OUTPUTS,
    TAPS,
    Matrix,
    Transforms,
    interpolating,
    mirrored,
    transforms,
    transposed,
)

fractions = st.fractions(min_value=-9, max_value=9, max_denominator=9)
USUAL_POINTS = tuple(map(Fraction, (0, 1, -1, 2, -2)))


def apply(matrix: Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


def assert_correlates(made: Transforms) -> None:
    """The identity that all three directions follow from, term by term."""
    rows = [*zip(made.result, made.filter, made.data, strict=True)]
    for i, k, position in product(range(made.outputs), range(TAPS), range(made.points)):
        total = sum((result[i] * taps[k] * data[position] for result, taps, data in rows), Fraction(0))
        assert total == (position == i + k)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_the_products_at_the_points_make_a_correlation(outputs: int) -> None:
    made = transforms(outputs)
    assert (made.outputs, made.points) == (outputs, outputs + TAPS - 1)
    assert_correlates(made)


@pytest.mark.slow
@given(points=st.lists(fractions, min_size=2, max_size=6, unique=True))
def test_any_points_do(points: list[Fraction]) -> None:
    assert_correlates(interpolating(points))


@given(outputs=st.sampled_from(OUTPUTS), data=st.data())
def test_all_three_directions_are_exact(outputs: int, data: st.DataObject) -> None:
    made = transforms(outputs)
    x, w, dy = (
        data.draw(st.lists(fractions, min_size=size, max_size=size)) for size in (made.points, TAPS, made.outputs)
    )
    points = apply(made.data, x)

    def met(other: list[Fraction]) -> list[Fraction]:
        return [a * b for a, b in zip(points, other, strict=True)]

    y = [sum((w[k] * x[i + k] for k in range(TAPS)), Fraction(0)) for i in range(outputs)]
    dw = [sum((dy[i] * x[i + k] for i in range(outputs)), Fraction(0)) for k in range(TAPS)]
    assert apply(transposed(made.result), met(apply(made.filter, w))) == y
    assert apply(transposed(made.filter), met(apply(made.result, dy))) == dw
    assert apply(transposed(made.result), met(apply(mirrored(made.filter), w[::-1]))) == y


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_only_the_filter_s_matrix_is_rounded(outputs: int) -> None:
    made = transforms(outputs)
    for row in (*made.data, *made.result):
        for entry in row:
            assert entry.denominator & (entry.denominator - 1) == 0
            assert abs(entry.numerator) < 2**11, (
                "takes more than the 24 bits of fp32 when multiplied by a half type's 11"
            )


def test_f2_is_the_usual_one_in_integers_and_halves() -> None:
    made = transforms(2)
    assert made.data == ((-1, 0, 1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1))
    assert made.result == ((1, 0), (1, 1), (1, -1), (0, 1))
    assert {entry.denominator for row in made.filter for entry in row} == {1, 2}


def test_growth_is_what_the_definition_says() -> None:
    # By hand for m = 2: the points hold at most 2·1, 2·3/2, 2·3/2 and 2·1; an output adds three of them.
    assert transforms(2).growth == 2 + 3 + 3
    assert transforms(4).growth < interpolating(USUAL_POINTS).growth / 2 == 24


@given(
    outputs=st.sampled_from(OUTPUTS),
    size=st.integers(1, 40),
    dilation=st.integers(1, 5),
    low=st.integers(-4, 4),
    high=st.integers(-4, 4),
)
def test_every_result_lies_in_one_tile_that_reads_what_it_needs(
    outputs: int, size: int, dilation: int, low: int, high: int
) -> None:
    results = size + low + high - (TAPS - 1) * dilation
    if results < 1 or low + size < 1 or high + size < 1:
        return
    axis = TiledAxis(outputs, size, low, results, dilation)
    seen = []
    for piece in axis.pieces():
        for place, (tile, output, phase) in enumerate(product(*map(range, piece.shape))):
            tile, output = tile + piece.tile, output + piece.output
            assert tile < axis.tiles
            assert output < outputs
            assert phase < axis.phases
            result = (tile * outputs + output) * dilation + phase
            assert result == piece.start + place
            assert result + (TAPS - 1) * dilation < axis.length
            seen.append(result)
    assert seen == [*range(results)]
    needed = {result + tap * dilation - low for result in seen for tap in range(TAPS)} & {*range(size)}
    elements = product(range(axis.tiles * outputs + TAPS - 1), range(axis.phases))
    read = {element * dilation + phase - low for element, phase in elements}
    assert read & {*axis.used} == needed <= {*axis.used}
    # Neither a tile nor a phase more than results need.
    assert (axis.tiles - 1) * outputs * dilation < results
