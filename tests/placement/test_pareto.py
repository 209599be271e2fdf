"""The curve of two objectives: its ends are the least of each, and no point beats another."""

from __future__ import annotations

import pytest

from convwright.errors import BadInput
from convwright.placement import pareto
from placement.instances import brute_force, random_instance


@pytest.mark.parametrize(("seed", "first", "second"), [(3, "makespan", "energy"), (2, "cost", "makespan")])
def test_a_curve(seed: int, first: str, second: str) -> None:
    given = random_instance(seed, streams=False, once=True, tight=False)
    curve = pareto(*given, first, second, points=4)
    figures = [(each.figure(first), each.figure(second)) for each in curve]  # type: ignore[arg-type]
    assert 2 <= len(curve) <= 4
    assert figures == sorted(figures)
    assert [other for _, other in figures] == sorted((other for _, other in figures), reverse=True)
    assert figures[0][0] == pytest.approx(brute_force(given, first))
    assert figures[-1][1] == pytest.approx(brute_force(given, second))
    for one, other in figures:
        assert brute_force(given, first, {second: other * (1 + 1e-5)}) == pytest.approx(one, rel=1e-5)


def test_a_curve_of_one_objective_is_none() -> None:
    given = random_instance(1, streams=False, once=True)
    with pytest.raises(BadInput, match=r"^a curve is of two objectives, got 'cost' twice$"):
        pareto(*given, "cost", "cost")
    with pytest.raises(BadInput, match=r"^points must be a whole number of at least 2, got 1$"):
        pareto(*given, "cost", "energy", points=1)
