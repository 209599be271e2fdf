"""The joint choice within a memory limit: the live bytes at each moment are rows of its program.

Options run in the order of their nodes, and a copy right before its first reader. Each option runs at one moment, its
copies at the moment before. Only moments at which a choice exceeded the limit get rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate, product

from convwright.graph.choice import ChoiceProblem, Copy, JointChoice, Option, Place
from convwright.graph.joint_choice import Choosing, exclusive

ARENA, OUTSIDE = False, True  # whether a buffer is outside of the arena
# Sizes are in units of the largest one divided by this: the solver's tolerances are absolute.
_UNITS = 1000
# How many moments get rows at once: each further search takes longer than a few more rows.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Storage:
    """``buffers`` names the buffer of each place; other places take no memory. ``nbytes`` are their sizes. ``turns`` is
    the order of nodes."""

    buffers: Mapping[Place, str]
    nbytes: Mapping[str, int]
    turns: Mapping[str, int]

    def moment(self, option: Option) -> int:
        """The moment when an option runs."""
        return 2 * max(self.turns[node] for node in option.covers) + 1

    def made_by(self, option: Option) -> tuple[Place, ...]:
        """The places in buffers that an option writes, except those in the memory of its inputs, as for views."""
        read = {self.buffers.get(place) for place in option.reads}
        return tuple(place for place in option.writes if self.buffers.get(place) not in {None, *read})

    def overwritten_by(self, option: Option) -> tuple[str, ...]:
        """The buffers that an option may overwrite, if it is their last reader; it takes at most one."""
        if option.footprint.outside:
            return ()
        places = (place for place in option.footprint.overwrites if place in self.buffers)
        return tuple(sorted({self.buffers[place] for place in places}))

    @property
    def end(self) -> int:
        """The moment after all options, when outputs are copied."""
        return 2 * len(self.turns)


@dataclass(frozen=True, slots=True)
class Need:
    """The peak bytes of a choice in the arena and outside of it, and the moments at or close to each peak, fullest
    first."""

    arena: int
    outside: int
    arena_at: tuple[int, ...]
    outside_at: tuple[int, ...]

    @property
    def fullest(self) -> set[int]:
        return {self.arena_at[0], self.outside_at[0]}

    @property
    def nbytes(self) -> int:
        return self.arena + self.outside


def need(choice: JointChoice, problem: ChoiceProblem, storage: Storage) -> Need:
    """The peak memory of a choice."""
    copied = {(copy.value, copy.target): copy for copy in choice.copies}
    moments = dict.fromkeys(copied, storage.end)
    lives = _Lives(storage)
    for option in choice.options:
        now = storage.moment(option)
        for place in option.reads:
            lives.hold(place, now)
            if place in copied:
                moments[place] = min(moments[place], now - 1)
        for place in storage.made_by(option):
            lives.make(place, now, option.footprint.outside)
    for place, copy in copied.items():
        lives.make(place, moments[place], copy.footprint.outside)
        lives.hold((copy.value, copy.source), moments[place])
    for place in problem.wanted:
        lives.hold(place, storage.end)
    return lives.need(choice.options)


class _Lives:
    """When each buffer is created and held."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._made: dict[str, tuple[int, bool]] = {}
        self._last: dict[str, int] = {}

    def make(self, place: Place, now: int, outside: bool) -> None:
        self.hold(place, now)
        if place in self._storage.buffers:
            buffer = self._storage.buffers[place]
            self._made[buffer] = min(self._made.get(buffer, (now, outside)), (now, outside))

    def hold(self, place: Place, now: int) -> None:
        if place in self._storage.buffers:
            buffer = self._storage.buffers[place]
            self._last[buffer] = max(self._last.get(buffer, now), now)

    def need(self, options: Iterable[Option]) -> Need:
        alive, nbytes = [[0] * (self._storage.end + 2) for _ in (ARENA, OUTSIDE)], self._storage.nbytes
        for buffer, (first, outside) in self._made.items():
            alive[outside][first] += nbytes[buffer]
            alive[outside][self._last[buffer] + 1] -= nbytes[buffer]
        for option in options:
            now, size = self._storage.moment(option), option.footprint.workspace_bytes
            if any(self._ends(buffer, now) for buffer in self._storage.overwritten_by(option)):
                size -= nbytes[self._storage.buffers[option.writes[0]]]
            alive[ARENA][now] += size
            alive[ARENA][now + 1] -= size
        peaks = [_peak(changes) for changes in alive]
        return Need(peaks[0][0], peaks[1][0], peaks[0][1], peaks[1][1])

    def _ends(self, buffer: str, now: int) -> bool:
        """Whether a buffer in the arena is needed for the last time now."""
        first, outside = self._made.get(buffer, (now, OUTSIDE))
        return first < now == self._last[buffer] and outside is ARENA


def _peak(changes: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """The largest running sum, and where the largest ones are."""
    sums = list(accumulate(changes))
    return max(sums), tuple(nlargest(_AT_ONCE, range(len(sums)), key=sums.__getitem__))


def within(problem: ChoiceProblem, storage: Storage, nbytes: int) -> JointChoice | None:
    """The cheapest choice that keeps at most ``nbytes`` alive; None if there is none."""
    return _Limited(problem, storage, nbytes).best()


def least(problem: ChoiceProblem, storage: Storage) -> JointChoice | None:
    """A choice with the least peak memory, whatever it costs; None if nothing covers the network."""
    return _Limited(problem, storage, None).best()


@dataclass(frozen=True, slots=True)
class _Event:
    """A condition of a plan: the columns ``plus`` minus the columns ``minus`` and ``but`` sum to 1 if it holds, and to
    0 or less otherwise."""

    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()
    but: int = 0


class _Limited:
    """The integer program of a choice with rows for memory. Without a limit it minimises memory."""

    def __init__(self, problem: ChoiceProblem, storage: Storage, limit: int | None) -> None:
        self._problem, self._storage, self._limit = problem, storage, limit
        self._choosing = Choosing(problem)
        self._options, self._program = self._choosing.options, self._choosing.program
        self._moments = [storage.moment(option) for option in self._options]
        sizes = *storage.nbytes.values(), *(option.footprint.workspace_bytes for option in self._options)
        self._unit = max(*sizes, 1, 1) / _UNITS
        self._peaks = {outside: self._program.amount(sum(sizes) / self._unit) for outside in (ARENA, OUTSIDE)}
        self._readers = self._by_place(lambda option: option.reads)
        self._writers = self._by_place(storage.made_by)
        self._into, self._from = dict[Place, list[Copy]](), dict[Place, list[Copy]]()
        for copy in self._choosing.copies:
            self._into.setdefault((copy.value, copy.target), []).append(copy)
            self._from.setdefault((copy.value, copy.source), []).append(copy)
        if limit is None:
            self._program.costs = [0.0] * len(self._program.costs)
            for peak in self._peaks.values():
                self._program.costs[peak] = 1.0
        else:
            self._program.row(self._peaks.values(), (), upper=limit / self._unit + 1e-6)

    def _by_place(self, places: Callable[[Option], Iterable[Place]]) -> dict[Place, list[int]]:
        found: dict[Place, list[int]] = {}
        for column, option in enumerate(self._options):
            for place in dict.fromkeys(places(option)):
                found.setdefault(place, []).append(column)
        return found

    def best(self) -> JointChoice | None:
        """The cheapest choice within the limit, or one of least memory."""
        limited = set[int]()
        while (choice := self._choosing.best()) is not None:
            found = need(choice, self._problem, self._storage)
            if self._limit is not None and found.nbytes <= self._limit:
                return choice
            if found.fullest <= limited:
                return choice if self._limit is None else None
            moments = {*found.arena_at, *found.outside_at} - limited
            for moment in sorted(moments):
                self._limit_at(moment)
            limited |= moments
        return None

    def _limit_at(self, moment: int) -> None:
        """Bound the live bytes at a moment, in the arena and outside, by the peaks."""
        by_buffer, by_value = dict[str, list[Place]](), dict[str, list[Place]]()
        for place, buffer in self._storage.buffers.items():
            by_buffer.setdefault(buffer, []).append(place)
            by_value.setdefault(place[0], []).append(place)
        saved, alive = self._saved(moment), dict[tuple[str, bool], int]()
        peaks = {peak: {column: -1.0} for peak, column in self._peaks.items()}
        for (buffer, own), outside in product(by_buffer.items(), (ARENA, OUTSIDE)):
            born = self._written(own, moment, (outside,))
            born += [event for place in own for event in self._copied(place, moment, outside)]
            if not born:
                continue
            held = [event for place in own for event in self._pending(place, moment)]
            alive[buffer, outside] = self._program.amount()
            held += self._held(own, moment, {} if outside else saved)
            self._live([alive[buffer, outside]], own, moment, (outside,), born, held)
            peaks[outside][alive[buffer, outside]] = self._storage.nbytes[buffer] / self._unit
        # A value between its writer and its last reader is alive in some state. Without these rows the relaxed program
        # keeps half of it in each of two states, so that it counts as alive in neither.
        for own in by_value.values():
            buffers = dict.fromkeys(self._storage.buffers[place] for place in own)
            everywhere = [alive[root] for root in product(buffers, (ARENA, OUTSIDE)) if root in alive]
            if len(everywhere) > 1:
                born, held = self._written(own, moment, (ARENA, OUTSIDE)), self._held(own, moment, saved)
                self._live(everywhere, own, moment, (ARENA, OUTSIDE), born, held)
        for column, option in enumerate(self._options):
            if self._moments[column] == moment and option.footprint.workspace_bytes:
                peaks[ARENA][column] = option.footprint.workspace_bytes / self._unit
        for factors in peaks.values():
            self._program.weighted_row(factors, upper=0.0)

    def _live(
        self, alive: Sequence[int], places: Sequence[Place], moment: int, where: Sequence[bool],
        born: Sequence[_Event], held: Sequence[_Event],
    ) -> None:  # fmt: skip
        """Make ``alive`` sum to 1 if a value in ``places`` is born and held, or written at the moment."""
        made, needed = self._any(born), self._any(held)
        if made is not None and needed is not None:
            row = dict.fromkeys(alive, 1.0)
            for factor, columns in ((-1.0, (*made.plus, *needed.plus)), (1.0, (*made.minus, *needed.minus))):
                for column in columns:
                    row[column] = row.get(column, 0.0) + factor
            self._program.weighted_row(row, lower=-1.0 - made.but - needed.but)
        if writing := self._writing(places, where, lambda at: at == moment):
            self._program.row(alive, writing, lower=0.0)

    def _any(self, events: Sequence[_Event]) -> _Event | None:
        """The event that at least one of these holds; None without any. Several events get a column, with one row for
        each event; a row for each pair of birth and holding would say no more."""
        if len(events) <= 1:
            return events[0] if events else None
        some = self._program.amount()
        for event in events:
            self._program.row((some, *event.minus), event.plus, lower=float(-event.but))
        return _Event((some,))

    def _held(self, places: Sequence[Place], moment: int, saved: Mapping[tuple[int, str], int]) -> list[_Event]:
        wanted = [_Event((), but=-1) for place in places if place in self._problem.wanted]
        return [*wanted, *self._reading(places, moment, saved)]

    def _writing(self, places: Sequence[Place], where: Sequence[bool], at: Callable[[int], bool]) -> list[int]:
        columns = dict.fromkeys(column for place in places for column in self._writers.get(place, ()))
        return [
            column for column in columns
            if at(self._moments[column]) and self._options[column].footprint.outside in where
        ]  # fmt: skip

    def _written(self, places: Sequence[Place], moment: int, where: Sequence[bool]) -> list[_Event]:
        """Events: an option has written a value by this moment. At most one option of a plan writes a value."""
        by_value: dict[str, list[Place]] = {}
        for place in places:
            by_value.setdefault(place[0], []).append(place)
        columns = (self._writing(own, where, lambda at: at <= moment) for own in by_value.values())
        return [_Event(tuple(each)) for each in columns if each]

    def _copied(self, place: Place, moment: int, outside: bool) -> Iterator[_Event]:
        """Events: the value has been copied to the place by this moment, for its first reader."""
        for copy in self._into.get(place, ()):
            if copy.footprint.outside is not outside:
                continue
            column = self._choosing.copies[copy]
            for readers in self._exclusive(self._readers.get(place, ())):
                if by_then := [reader for reader in readers if self._moments[reader] - 1 <= moment]:
                    yield _Event((column, *by_then), but=1)
            if place in self._problem.wanted and moment == self._storage.end:
                yield _Event((column,))

    def _pending(self, place: Place, moment: int) -> Iterator[_Event]:
        """Events: the value will be copied from the place now or later."""
        for copy in self._from.get(place, ()):
            column, target = self._choosing.copies[copy], (copy.value, copy.target)
            reading = self._readers.get(target, ())
            before = tuple(reader for reader in reading if self._moments[reader] - 1 < moment)
            for readers in self._exclusive(reading):
                if later := [reader for reader in readers if self._moments[reader] - 1 >= moment]:
                    yield _Event((column, *later), before, but=1)
            if target in self._problem.wanted:
                yield _Event((column,), before)

    def _reading(self, places: Sequence[Place], moment: int, saved: Mapping[tuple[int, str], int]) -> Iterator[_Event]:
        """Events: an option reads one of the places now or later."""
        columns = dict.fromkeys(column for place in places for column in self._readers.get(place, ()))
        buffers = {self._storage.buffers[place] for place in places}
        for readers in self._exclusive(columns):
            if later := tuple(reader for reader in readers if self._moments[reader] >= moment):
                over = tuple(
                    saved[reader, buffer] for reader in later for buffer in buffers if (reader, buffer) in saved
                )
                yield _Event(later, over)

    def _saved(self, moment: int) -> dict[tuple[int, str], int]:
        """A column for each option that runs now and each buffer that it may overwrite; it takes at most one."""
        found: dict[tuple[int, str], int] = {}
        for column, option in enumerate(self._options):
            buffers = self._storage.overwritten_by(option) if self._moments[column] == moment else ()
            own = {(column, buffer): self._program.amount() for buffer in buffers}
            if own:
                self._program.row(own.values(), (column,), upper=0.0)
            found |= own
        return found

    def _exclusive(self, columns: Iterable[int]) -> Iterator[tuple[int, ...]]:
        return exclusive(columns, self._options, self._storage.turns.__getitem__)
