"""How long threads of this process were ready to run but had no core, if the system counts it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from time import perf_counter_ns

from convwright.forking import in_child

_TASKS = Path("/proc/self/task")  # exists on Linux
# Above this share of waiting time, a process's times say more about others than about itself. On a quiet machine it is
# below 0.01. Beside another process with as many threads as cores, calls were either undisturbed, below 0.05, or took
# 24 ms instead of 35 µs, all of it waiting (two cores of an AMD EPYC).
MOST_WAITING = 0.2

# The oldest threads, which include those that compute. Their files stay open: reading one takes 1 µs, opening it 8.
_MOST_THREADS = 128
_files: dict[str, int] = {}
_reading = threading.Lock()

Waited = dict[str, int]


class Waiting:
    """Reports how long threads had to wait since the last check."""

    def __init__(self) -> None:
        self._first = self._last = self._look()

    def share(self) -> float | None:
        """The waiting share of the thread that waited longest since the last check; None if not counted."""
        before, self._last = self._last, self._look()
        return _share(before, self._last)

    def whole_share(self) -> float | None:
        """The same since creation."""
        return _share(self._first, self._look())

    def _look(self) -> tuple[Waited, int]:
        return waited_ns(), now_ns()


def _share(before: tuple[Waited, int], after: tuple[Waited, int]) -> float | None:
    (earlier, begun_ns), (waited, ended_ns) = before, after
    if not waited:
        return None
    longest_ns = max(each_ns - earlier.get(thread, 0) for thread, each_ns in waited.items())
    return min(longest_ns / max(ended_ns - begun_ns, 1), 1.0)


def now_ns() -> int:
    return perf_counter_ns()


def waited_ns() -> Waited:
    """How long each thread has waited since it started; empty if not counted."""
    try:
        threads = os.listdir(_TASKS)[:_MOST_THREADS]
    except OSError:
        return {}
    with _reading:
        for ended in _files.keys() - threads:
            _close(ended)
        waited = {thread: _read_ns(thread) for thread in threads}
    return {thread: each_ns for thread, each_ns in waited.items() if each_ns is not None}


def _read_ns(thread: str) -> int | None:
    try:
        if thread not in _files:
            _files[thread] = os.open(_TASKS / thread / "schedstat", os.O_RDONLY)
        return int(os.pread(_files[thread], 64, 0).split()[1])
    except (OSError, IndexError, ValueError):  # the thread has ended, or the system does not count
        _close(thread)
        return None


def _close(thread: str) -> None:
    if thread in _files:
        os.close(_files.pop(thread))


def _forget() -> None:
    """Drop open files in a forked process, which has threads of its own."""
    global _reading
    _reading = threading.Lock()
    for thread in list(_files):
        _close(thread)


in_child(_forget)
