"""The integer program of a placement: a column for each way on each instance of its device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf

from convwright.graph.integer_program import IntegerProgram, Relaxation
from convwright.placement.placed import Instance, Placed, latency_weights
from convwright.placement.question import Objective, Question
from convwright.placement.ways import Way

# The solver's tolerances are absolute, so objectives are scaled to about this size.
_SIZE = 1000.0
# Jobs are counted that take more than a half, a third, … of what there is. Without these rows the solver does not prove
# in 30 s that 41 jobs, two of which fit on a device, do not fit on 20; with them it needs 0.4 s.
_COUNTED = (1, 2, 3)
_EXACTLY = 1e-6  # as exact as the solver
# What takes less than this share of an instance counts as this much. With shares of a millionth, HiGHS (scipy 1.17)
# calls placements impossible that are not.
_LEAST_SHARE = 1e-5


@dataclass(frozen=True, slots=True)
class Found:
    """The best placement found, None if time ran out before any, and a bound of the objective."""

    placed: tuple[Placed, ...] | None
    bound: float


class PlacementProgram:
    """The program of a question. ``cells`` maps each way on each instance to its column."""

    def __init__(self, question: Question, ways: Mapping[str, tuple[Way, ...]]) -> None:
        self._question, self._ways = question, ways
        self.program = IntegerProgram(0.0, purpose="a placement")
        self._scale = _scale(question, ways)
        self._counts = {device.name: device.count for device in question.devices}
        self.cells: dict[tuple[Way, Instance], int] = {}
        self._by_instance: dict[Instance, dict[Way, int]] = {}
        self._add_choices()
        self._held = self._add_streams()
        self._add_deadlines()
        self._makespan: int | None = None
        for objective, limit in question.at_most:
            self._limit(objective, limit)
        self._add_objective()

    def found(self, *, gap: float, limit_s: float) -> Found | None:
        """The solution; None if there is none."""
        solution = self.program.solved(gap=gap, limit_s=limit_s)
        if solution is None:
            return None
        placed = None if solution.values is None else self._placed(solution.values)
        return Found(placed, solution.bound * self._scale / _SIZE)

    def relaxed(self) -> tuple[Relaxation, float] | None:
        """The relaxed program, and its bound of the objective."""
        relaxed = self.program.relaxed()
        return None if relaxed is None else (relaxed, relaxed.cost * self._scale / _SIZE)

    def look_below(self, value: float, relaxed: Relaxation) -> None:
        """Remove columns that no placement with an objective up to ``value`` uses."""
        room = value * _SIZE / self._scale - relaxed.cost + 1e-6 * _SIZE
        for column in self.cells.values():
            if relaxed.reduced_costs[column] > room:
                self.program.most[column] = 0.0
        if self._makespan is not None:
            self._end_by(value)

    def _add_choices(self) -> None:
        """One way for each job, on as many instances as the way has."""
        # Equal devices are numbered by their first jobs, which leaves one of all placements that differ only in these
        # numbers: the first n jobs use at most n devices.
        reached = dict.fromkeys(self._counts, 0)
        for job in _order(self._ways):
            choices: list[int] = []
            widest: dict[str, int] = {}
            for way in self._ways[job]:
                widest[way.device] = max(widest.get(way.device, 0), way.instances)
            for name, width in widest.items():
                reached[name] = min(self._counts[name], reached[name] + width)
            for way in self._ways[job]:
                columns = [self._cell(way, number) for number in range(reached[way.device])]
                if way.instances == 1:
                    choices += columns
                else:
                    choices.append(self.program.column())
                    self.program.weighted_row(
                        {**dict.fromkeys(columns, 1.0), choices[-1]: -float(way.instances)}, lower=0, upper=0
                    )
            self.program.row(choices, (), lower=1, upper=1)

    def _cell(self, way: Way, number: int) -> int:
        column = self.cells[way, (way.device, number)] = self.program.column()
        self._by_instance.setdefault((way.device, number), {})[way] = column
        return column

    def _on(self, instance: Instance, *, streams: bool) -> dict[Way, int]:
        ways = self._by_instance.get(instance, {})
        return {way: column for way, column in ways.items() if bool(way.share) is streams}

    @property
    def _instances(self) -> Iterator[Instance]:
        for name, count in self._counts.items():
            for number in range(count):
                yield name, number

    def _add_streams(self) -> dict[Instance, int]:
        """Streams share an instance's time and memory, without one-off jobs. Returns the columns of such instances."""
        memory = {device.name: float(device.memory_bytes) for device in self._question.devices}
        most, held = self._question.utilisation, dict[Instance, int]()
        for instance in self._instances:
            streams, others = self._on(instance, streams=True), self._on(instance, streams=False)
            if not streams:
                continue
            column = held[instance] = self.program.column()
            for each in streams.values():
                self.program.row([each], [column], upper=0)
            for each in others.values():
                self.program.row([each, column], (), upper=1)
            self._capacity({each: way.share / most for way, each in streams.items()}, column)
            self._capacity({each: way.memory_bytes / memory[instance[0]] for way, each in streams.items()}, column)
        return held

    def _capacity(self, parts: Mapping[int, float], of: int) -> None:
        parts = {column: max(part, _LEAST_SHARE) for column, part in parts.items()}
        self.program.weighted_row({**parts, of: -1.0}, upper=0)
        for counted in _counted(parts):
            self.program.weighted_row({**counted, of: -1.0}, upper=0)

    def _add_deadlines(self) -> None:
        """By each deadline, all jobs with it or an earlier one are done."""
        deadlines = {
            job.name: job.deadline_s for job in self._question.jobs if job.deadline_s is not None and not job.is_stream
        }
        for instance in self._instances if deadlines else ():
            ways = self._on(instance, streams=False)
            for deadline in sorted({deadlines[way.job] for way in ways if way.job in deadlines}):
                due = {
                    column: way.busy_s / deadline
                    for way, column in ways.items()
                    if deadlines.get(way.job, inf) <= deadline
                }
                for parts in (due, *_counted(due)):
                    if _most(ways, parts) > 1:
                        self.program.weighted_row(parts, upper=1)

    def _loads(self) -> Iterator[tuple[Instance, dict[int, float]]]:
        for instance in self._instances:
            ways = self._on(instance, streams=False)
            if ways:
                yield instance, {column: way.busy_s for way, column in ways.items()}

    def _sums(self, objective: Objective) -> dict[int, float]:
        """What each column adds to an objective that is a sum."""
        found: dict[int, float] = {}
        weights = latency_weights(self._question)
        for (way, _), column in self.cells.items():
            if objective is Objective.ENERGY:
                part = way.energy_j
            elif objective is Objective.COST:
                part = way.cost
            else:
                part = None if way.latency_s is None else way.latency_s * weights[way.job]
            found[column] = (part or 0.0) / way.instances
        if objective is Objective.COST:
            prices = {device.name: device.price_per_hour or 0.0 for device in self._question.devices}
            for (name, _), column in self._held.items():
                found[column] = prices[name] * self._question.period_s / 3600
        return found

    def _limit(self, objective: Objective, limit: float) -> None:
        if objective is Objective.MAKESPAN:
            self._end_by(limit)
        else:
            parts = {column: part / limit for column, part in self._sums(objective).items()}
            self.program.weighted_row(parts, upper=1)

    def _end_by(self, limit: float) -> None:
        """All one-off jobs are done by ``limit``. Excluding half instances for streams and half jobs that take longer
        makes the relaxed program tighter."""
        for instance, load in self._loads():
            held = {self._held[instance]: 1.0} if instance in self._held else {}
            self.program.weighted_row({column: part / limit for column, part in load.items()} | held, upper=1)
            for column, part in load.items():
                if part > limit * (1 + 1e-9):
                    self.program.most[column] = 0.0

    def _add_objective(self) -> None:
        if self._question.objective is Objective.MAKESPAN:
            self._makespan = self.program.amount(inf, _SIZE)
            for _, load in self._loads():
                scaled = {column: part / self._scale for column, part in load.items()}
                self.program.weighted_row({**scaled, self._makespan: -1.0}, upper=0)
        else:
            for column, part in self._sums(self._question.objective).items():
                self.program.costs[column] = part * _SIZE / self._scale

    def _placed(self, values: tuple[float, ...]) -> tuple[Placed, ...]:
        numbers: dict[Way, list[int]] = {}
        for (way, (_, number)), column in self.cells.items():
            if values[column] > 0.5:
                numbers.setdefault(way, []).append(number)
        order = {job.name: place for place, job in enumerate(self._question.jobs)}
        found = (Placed(way, tuple(of)) for way, of in numbers.items())
        return tuple(sorted(found, key=lambda each: order[each.way.job]))


def _order(ways: Mapping[str, tuple[Way, ...]]) -> list[str]:
    """Streams first, then the longest jobs: equal devices are numbered in this order."""

    def size(job: str) -> tuple[bool, float, str]:
        return not ways[job][0].share, -min(max(way.busy_s, way.share) for way in ways[job]), job

    return sorted(ways, key=size)


def _most(ways: Mapping[Way, int], parts: Mapping[int, float]) -> float:
    """The largest possible sum of columns if each job has one way."""
    most: dict[str, float] = {}
    for way, column in ways.items():
        most[way.job] = max(most.get(way.job, 0.0), parts.get(column, 0.0))
    return sum(most.values())


def _counted(parts: Mapping[int, float]) -> Iterator[dict[int, float]]:
    """Parts whose sum is at most 1 if the sum of ``parts`` is: at most ``most`` columns have more than a share of
    1 / (most + 1) each, and a column with more than n such shares counts as n of them."""
    for most in _COUNTED:
        shares = {column: ceil((most + 1) * part - _EXACTLY) - 1 for column, part in parts.items()}
        if counted := {column: share / most for column, share in shares.items() if share > 0}:
            yield counted


def _scale(question: Question, ways: Mapping[str, tuple[Way, ...]]) -> float:
    """A rough value of the objective."""

    def least(parts: Iterable[float | None]) -> float:
        return min(part or 0.0 for part in parts)

    if question.objective is Objective.MAKESPAN:
        times = [min(way.busy_s for way in each) for each in ways.values() if not each[0].share]
        return max(*times, sum(times) / question.instance_count) if times else 1.0
    if question.objective is Objective.ENERGY:
        size = sum(least(way.energy_j for way in each) for each in ways.values())
    elif question.objective is Objective.LATENCY:
        weights = latency_weights(question)
        size = sum(weights.get(job, 0.0) * least(way.latency_s for way in each) for job, each in ways.items())
    else:
        prices = {device.name: device.price_per_hour or 0.0 for device in question.devices}
        hours = question.period_s / 3600
        shares = (
            least((way.cost or 0.0) + way.instances * way.share * prices[way.device] * hours for way in each)
            for each in ways.values()
        )
        size = sum(shares)
    return size or 1.0
