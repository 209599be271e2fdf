"""An integer program: columns with costs, rows that bound sums of columns, and its cheapest solution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from typing import Any
from zlib import crc32

from convwright.errors import BackendError, Refused

_OUT_OF_TIME, _INFEASIBLE = 1, 2  # scipy's status codes
# Networks of a thousand nodes take a few seconds. After this time the best plan so far is used.
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True)
class Solution:
    """The cheapest point found, None if time ran out before any, and a lower bound of all costs."""

    values: tuple[float, ...] | None
    bound: float


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The cheapest point with fractional columns: its cost, and for each column its value and, if that is 0, the least
    cost of raising it by one."""

    cost: float
    values: tuple[float, ...]
    reduced_costs: tuple[float, ...]


@dataclass(slots=True)
class IntegerProgram:
    """An integer program by its columns, each 0 or 1 unless it is an ``amount``, and its rows."""

    unit: float  # the most that a name adds to a cost
    purpose: str = "planning a network"  # named in the error if scipy is not installed
    costs: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    most: dict[int, float] = field(default_factory=dict)

    def column(self, cost: float = 0.0, name: str | None = None) -> int:
        # Repeated layers cost the same, so many plans do. Each name adds up to a tenth of a nanosecond, so that one
        # plan is cheapest in every version of the solver. Below the solver's tolerance, the order of rows and columns,
        # which only names determine, still decides.
        self.costs.append(cost if name is None else cost + self.unit * crc32(name.encode()) / 2**32)
        return len(self.costs) - 1

    def amount(self, most: float = 1.0, cost: float = 0.0) -> int:
        """A column for any number from 0 to ``most``."""
        self.most[self.column(cost)] = most
        return len(self.costs) - 1

    def row(self, plus: Iterable[int], minus: Iterable[int], *, lower: float = -inf, upper: float = inf) -> None:
        """Bound the sum of the columns ``plus`` minus the columns ``minus``."""
        for factor, columns in ((1.0, plus), (-1.0, minus)):
            for column in columns:
                self._factor(column, factor)
        self._end_row(lower, upper)

    def weighted_row(self, factors: Mapping[int, float], *, lower: float = -inf, upper: float = inf) -> None:
        """Bound the sum of columns, each multiplied by its factor."""
        for column, factor in factors.items():
            self._factor(column, factor)
        self._end_row(lower, upper)

    def _factor(self, column: int, factor: float) -> None:
        self.rows.append(len(self.lower))
        self.columns.append(column)
        self.factors.append(factor)

    def _end_row(self, lower: float, upper: float) -> None:
        self.lower.append(lower)
        self.upper.append(upper)

    def optimum(self) -> frozenset[int] | None:
        """The columns that are 1 in the cheapest solution; None if there is none."""
        if not self.costs:  # scipy refuses an empty program
            return None if any(least > 0 for least in self.lower) else frozenset()
        found = self._searched([cost * 1000 for cost in self.costs])  # in nanoseconds: its tolerances are absolute
        if found.status == _INFEASIBLE:
            return None
        if not found.success and (found.status != _OUT_OF_TIME or found.x is None):
            raise BackendError(f"scipy finds no plan of the network: {found.message}")
        return frozenset(column for column in range(len(self.costs)) if found.x[column] > 0.5)

    def solved(self, *, gap: float = 0.0, limit_s: float = _LONGEST_S) -> Solution | None:
        """The cheapest point, or one within the relative ``gap``; None if there is none."""
        found = self._searched(self.costs, gap=gap, limit_s=limit_s)
        if found.status == _INFEASIBLE:
            return None
        if not found.success and found.status != _OUT_OF_TIME:
            raise BackendError(f"scipy ends without an answer: {found.message}")
        bound = -inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
        return Solution(None if found.x is None else tuple(map(float, found.x)), bound)

    def relaxed(self) -> Relaxation | None:
        """The cheapest point with fractional columns; None if there is none."""
        optimize, matrix = self._scipy("scipy.optimize"), self._matrix()
        rows = range(len(self.lower))
        equal = [row for row in rows if self.lower[row] == self.upper[row]]
        above = [row for row in rows if -inf < self.lower[row] != self.upper[row]]
        below = [row for row in rows if inf > self.upper[row] != self.lower[row]]
        stacked = self._scipy("scipy.sparse").vstack([matrix[below], -matrix[above]])
        bounds = [(0.0, self.most.get(column, 1.0)) for column in range(len(self.costs))]
        limits = [*(self.upper[row] for row in below), *(-self.lower[row] for row in above)]
        found = optimize.linprog(
            self.costs,
            A_ub=stacked if limits else None,
            b_ub=limits or None,
            A_eq=matrix[equal] if equal else None,
            b_eq=[self.lower[row] for row in equal] or None,
            bounds=bounds,
            method="highs",
        )
        if found.status == _INFEASIBLE:
            return None
        if not found.success:
            raise BackendError(f"scipy ends without an answer: {found.message}")
        reduced = tuple(map(float, found.lower.marginals))
        return Relaxation(float(found.fun), tuple(map(float, found.x)), reduced)

    def _searched(self, costs: list[float], *, gap: float = 0.0, limit_s: float = _LONGEST_S) -> Any:
        optimize, count = self._scipy("scipy.optimize"), len(costs)
        return optimize.milp(
            costs,
            # Flows follow from the options, but HiGHS solves hard networks twice as fast with integer flows.
            integrality=[column not in self.most for column in range(count)],
            bounds=optimize.Bounds(0, [self.most.get(column, 1.0) for column in range(count)]),
            constraints=optimize.LinearConstraint(self._matrix(), self.lower, self.upper),
            options={"mip_rel_gap": gap, "time_limit": limit_s},
        )

    def _matrix(self) -> Any:
        shape = len(self.lower), len(self.costs)
        return self._scipy("scipy.sparse").csr_array((self.factors, (self.rows, self.columns)), shape=shape)

    def _scipy(self, module: str) -> Any:
        try:
            return import_module(module)
        except ImportError as error:
            raise Refused(f"{self.purpose} needs scipy: pip install 'convwright[engine]'") from error
