"""Winograd's three matrices for filters of 3 taps, exact, built from interpolation points by Toom and Cook's method.

The product of polynomials of degrees m - 1 and 2 is known from its values at m + 2 points. One point may be infinity,
where the value is the leading coefficient. ``result`` and ``filter`` have a row for each point and evaluate, ``data``
interpolates, so for every output i, tap k and input l

    Σ_f result[f, i] · filter[f, k] · data[f, l]  =  1 where l = i + k, else 0

The right side is a correlation, and so is each direction. Each takes m + 2 products instead of 3 m:

    y  = resultᵀ · (data · x  ∘  filter · w)
    dw = filterᵀ · (data · x  ∘  result · dy)
    dx = y of the mirrored filter over dy

The literature calls the three A, G and Bᵀ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Matrix = tuple[tuple[Fraction, ...], ...]

TAPS = 3

# The finite points; infinity comes last. All are sums of few powers of two, so `data` and `result` are exact in
# floating point, and only `filter` has rounded entries. Of all pairs ±a, ±b in eighths, ±5/8 and ±3/2 gave the least
# error for m = 4: 7.7e-7 relative in fp32 (2-D, 64 channels, normal data), against 1.7e-6 for the usual ±1, ±2. For m =
# 2, ±1 gives 2.6e-7 (a direct sum 2.2e-7), and its matrices have only integers and halves.
_POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2)),
}
OUTPUTS = tuple(_POINTS)


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices for ``outputs`` results of a 1-D correlation with 3 taps.

    ``data`` is (outputs + 2) × (outputs + 2), ``filter`` (outputs + 2) × 3, ``result`` (outputs + 2) × outputs.

    >>> [[str(entry) for entry in row] for row in transforms(2).filter]
    [['-1', '0', '0'], ['1/2', '1/2', '1/2'], ['1/2', '-1/2', '1/2'], ['0', '0', '1']]
    """

    data: Matrix
    filter: Matrix
    result: Matrix

    @property
    def points(self) -> int:
        """Products per tile, in one dimension."""
        return len(self.data)

    @property
    def outputs(self) -> int:
        return len(self.result[0])

    def absolute(self) -> Transforms:
        """The same matrices with absolute entries. Applied to magnitudes they bound all intermediate sums."""
        return Transforms(*(_entrywise(abs, matrix) for matrix in (self.data, self.filter, self.result)))

    @property
    def growth(self) -> Fraction:
        """How large intermediate sums can become in one dimension, in units of the largest input times the largest tap.
        Rounding errors are proportional to it, to the power of the dimensions. A direct sum of 3 products has 3.

        >>> [float(transforms(outputs).growth) for outputs in (2, 4)]
        [8.0, 23.745602240896357]
        """
        steps = self.absolute()
        held = [sum(data) * sum(taps) for data, taps in zip(steps.data, steps.filter, strict=True)]
        return max(
            sum((row[i] * most for row, most in zip(steps.result, held, strict=True)), Fraction(0))
            for i in range(self.outputs)
        )


@cache
def transforms(outputs: int) -> Transforms:
    """The matrices of F(``outputs``, 3), for ``outputs`` in ``OUTPUTS``."""
    return interpolating(_POINTS[outputs])


def interpolating(points: Sequence[Fraction]) -> Transforms:
    """The matrices of Lagrange's interpolation at distinct finite ``points``, and at infinity."""
    size = len(points) + 1
    outputs = size - TAPS + 1
    data, taps = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = _evaluate(_with_roots(others), point)
        data.append(_padded(_with_roots(others), size))
        taps.append(tuple(power / scale for power in _powers(point, TAPS)))
    return Transforms(
        data=(*data, _padded(_with_roots(points), size)),
        filter=(*taps, _leading(TAPS)),
        result=(*(_powers(point, outputs) for point in points), _leading(outputs)),
    )


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def mirrored(matrix: Matrix) -> Matrix:
    """The columns in reverse order, since a filter's transform takes the mirrored filter."""
    return tuple(row[::-1] for row in matrix)


def _with_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of Π (z - root), the constant first."""
    coefficients: tuple[Fraction, ...] = (Fraction(1),)
    for root in roots:
        shifted, scaled = (Fraction(0), *coefficients), (*(-root * c for c in coefficients), Fraction(0))
        coefficients = tuple(a + b for a, b in zip(shifted, scaled, strict=True))
    return coefficients


def _evaluate(coefficients: Sequence[Fraction], point: Fraction) -> Fraction:
    powers = _powers(point, len(coefficients))
    return sum((c * power for c, power in zip(coefficients, powers, strict=True)), Fraction(0))


def _powers(point: Fraction, count: int) -> tuple[Fraction, ...]:
    return tuple(point**exponent for exponent in range(count))


def _leading(count: int) -> tuple[Fraction, ...]:
    """Evaluates a polynomial of ``count`` coefficients at infinity."""
    return (*_padded((), count - 1), Fraction(1))


def _padded(coefficients: tuple[Fraction, ...], size: int) -> tuple[Fraction, ...]:
    return coefficients + (Fraction(0),) * (size - len(coefficients))


def _entrywise(function: Callable[[Fraction], Fraction], matrix: Matrix) -> Matrix:
    return tuple(tuple(map(function, row)) for row in matrix)
