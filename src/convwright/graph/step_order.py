"""Order steps so that little memory is alive at once: what each step needs and uses → an order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

# The most sets of finished steps to visit. Networks of chains and short branches have fewer.
_PATIENCE = 3000


@dataclass(frozen=True, slots=True)
class Task:
    """A step. ``after`` are the numbers of the steps that it waits for, ``uses`` the buffers that it reads or writes.
    It may overwrite one of the buffers ``overwrites`` that no later step uses."""

    after: tuple[int, ...]
    uses: frozenset[str]
    workspace_bytes: int = 0
    overwrites: frozenset[str] = frozenset()


def best_order(
    tasks: Sequence[Task], nbytes: Mapping[str, int], kept: Iterable[str] = (), *, patience: int = _PATIENCE
) -> tuple[int, ...]:
    """The order of the tasks with the least peak memory; the given order unless another is better.

    A buffer lives from its first use to its last, or to the end if it is ``kept``. Buffers not in ``nbytes`` do not
    count. The search is exact unless it reaches ``patience`` sets of tasks; then the best of a few orders is returned.

    >>> wide, other = Task((), frozenset("a")), Task((), frozenset("c"))
    >>> tasks = [wide, other, Task((0,), frozenset("ab")), Task((2, 1), frozenset("bcd"))]
    >>> best_order(tasks, {"a": 8, "b": 1, "c": 4, "d": 1})
    (0, 2, 1, 3)
    """
    walk = _Walk(tasks, nbytes, kept)
    given = tuple(range(len(tasks)))
    best, peak = given, walk.peak(given)
    if peak == walk.least:
        return best
    found, is_exact = walk.search(peak, patience)
    if found is not None:
        return found
    for order in () if is_exact else (walk.frugal(given), walk.frugal(given[::-1])):
        if walk.peak(order) < peak:
            best, peak = order, walk.peak(order)
    return best


class _Walk:
    """Sets of finished tasks, as bits of a number, and what is alive after them."""

    def __init__(self, tasks: Sequence[Task], nbytes: Mapping[str, int], kept: Iterable[str]) -> None:
        self._tasks, self._nbytes, self._kept = tasks, nbytes, frozenset(kept)
        self._users: dict[str, int] = {}
        self._next: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for buffer in task.uses:
                self._users[buffer] = self._users.get(buffer, 0) | 1 << number
            for other in task.after:
                self._next[other].append(number)
        self._uses = [sorted(buffer for buffer in task.uses if buffer in nbytes) for task in tasks]
        self._after = [sum(1 << other for other in set(task.after)) for task in tasks]
        self._ready = [number for number, task in enumerate(tasks) if not task.after]

    @property
    def least(self) -> int:
        """A lower bound: the memory of the task that needs most by itself."""
        found = [0]
        for task, uses in zip(self._tasks, self._uses, strict=True):
            saved = max((self._nbytes[each] for each in uses if each in task.overwrites), default=0)
            found.append(sum(self._nbytes[each] for each in uses) + task.workspace_bytes - saved)
        return max(found)

    def run(self, number: int, done: int, alive: int) -> tuple[int, int]:
        """The bytes that are alive while a task runs, and after it."""
        task, now = self._tasks[number], done | 1 << number
        born = freed = saved = 0
        for buffer in self._uses[number]:
            users, size = self._users[buffer], self._nbytes[buffer]
            if not users & done:
                born += size
            if users | now == now and buffer not in self._kept:
                freed += size
                if buffer in task.overwrites and users & done:
                    saved = max(saved, size)
        return alive + born + task.workspace_bytes - saved, alive + born - freed

    def peak(self, order: Iterable[int]) -> int:
        most = done = alive = 0
        for number in order:
            during, alive = self.run(number, done, alive)
            most, done = max(most, during), done | 1 << number
        return most

    def frugal(self, preference: Sequence[int]) -> tuple[int, ...]:
        """Always the task after which least is alive; of several, the first in ``preference``."""
        rank = {number: place for place, number in enumerate(preference)}
        ready, order, done, alive = list(self._ready), list[int](), 0, 0
        while ready:
            number = min(ready, key=lambda each: (self.run(each, done, alive)[1], rank[each]))
            alive = self.run(number, done, alive)[1]
            done |= 1 << number
            order.append(number)
            ready = self._then(ready, number, done)
        return tuple(order)

    def _then(self, ready: Iterable[int], number: int, done: int) -> list[int]:
        """The tasks that are ready after this one, in the given order."""
        freed = [each for each in self._next[number] if not self._after[each] & ~done]
        return sorted({*ready, *freed} - {number})

    def search(self, below: int, patience: int) -> tuple[tuple[int, ...] | None, bool]:
        """The best order with a peak below ``below``, if any, and whether all orders were covered."""
        whole, seen = (1 << len(self._tasks)) - 1, set[int]()
        # Continue with the set of the lowest peak; of several, with the one of most tasks.
        heap: list[tuple[int, int, tuple[int, ...], int, int, list[int]]] = [(0, 0, (), 0, 0, self._ready)]
        while heap and len(seen) < patience:
            peak, _, order, done, alive, ready = heappop(heap)
            if done == whole:
                return order, True
            if done in seen:
                continue
            seen.add(done)
            ran = [(number, *self.run(number, done, alive)) for number in ready]
            # A task that leaves no more alive than before, and needs no higher peak, can always come first.
            free = [each for each in ran if each[1] <= peak and each[2] <= alive]
            for number, during, after in free[:1] or ran:
                now = done | 1 << number
                if now not in seen and max(peak, during) < below:
                    entry = max(peak, during), -len(order) - 1, (*order, number), now, after
                    heappush(heap, (*entry, self._then(ready, number, now)))
        return None, not heap
