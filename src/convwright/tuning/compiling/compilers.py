"""Kernels compiled by workers."""

from __future__ import annotations

from collections.abc import Callable

from convwright.backends.registry import backend
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Compiles
from convwright.tuning.workers import Abandoned, TaskFailed, Worker, WorkerDied, WorkerNotStarted, WorkerPool

MOST_COMPILING_S = 300.0


def elsewhere(candidate: Candidate) -> bool:
    """Whether what compiles a candidate can do so in another process."""
    return isinstance(backend(candidate.leaf.backend), Compiles)


_loaded: set[str] = set()


def load(name: str) -> None:
    """Load what kernels of a backend are built with into this process, and into each compiler that is started."""
    member = backend(name)
    if name not in _loaded and isinstance(member, Compiles):
        _loaded.add(name)
        member.load_compiler()


def loaded() -> list[str]:
    """The backends whose kernels have been built here."""
    return sorted(_loaded)


def _prepared(worker: Worker) -> None:
    worker.ask("load", loaded())


class Compilers:
    """At most so many processes that compile. Nobody waits for one any more once ``is_over``."""

    def __init__(
        self, most: int, *, niceness: int = 0, idle_s: float = 20.0, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self.workers = WorkerPool(most, niceness=niceness, idle_s=idle_s, prepare=_prepared)
        self._is_over = is_over

    def start(self, count: int) -> None:
        if not self._is_over():
            self.workers.start(count)

    def compile(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        """Where its backend can, compile a candidate. What the compiler died of is told: it is not to be tried here.

        A process that cannot be had, or not now, is no reason: then building the candidate compiles it, as it does what
        a compiler has refused, and says why.
        """
        if not elsewhere(candidate):
            return None
        try:
            self.workers.ask("compile", candidate, device, patience_s=MOST_COMPILING_S, is_over=self._is_over)
        except WorkerDied as died:
            return f"its compiler {died}"
        except (WorkerNotStarted, TaskFailed, Abandoned):
            pass
        return None
