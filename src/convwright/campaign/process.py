"""A child process of a campaign, which is replaced for the next task if it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convwright.campaign import child
from convwright.campaign.child import Start
from convwright.errors import BackendError
from convwright.tuning.workers import Abandoned, TaskFailed, Worker, WorkerDied, WorkerNotStarted

# Loading libraries and running each once takes seconds, and minutes from a cold disk.
_MOST_BEGINNING_S = 300.0


class Process:
    """Asks one child after another. Once it ``ends``, no other is started; once it ``is_over``, answers are no longer
    waited for. Both end a wait with ``Abandoned``."""

    def __init__(
        self, start: Start, environment: Mapping[str, str], ends: Callable[[], bool], is_over: Callable[[], bool]
    ) -> None:
        self._start, self._environment, self._ends, self._is_over = start, environment, ends, is_over
        self._worker: Worker | None = None

    def ask(self, task: str, *arguments: Any, patience_s: float) -> Any:
        """The answer. A task may raise ``WorkerDied`` or ``TaskFailed``; if no child can be started, this raises
        ``BackendError``."""
        worker = self.started()
        try:
            return worker.ask(task, *arguments, patience_s=patience_s, is_over=self._is_over)
        except TaskFailed:
            if not worker.is_alive:
                self.end()
            raise
        except BaseException:
            self.end()
            raise

    def started(self) -> Worker:
        """The child, started and initialised."""
        if self._worker is None:
            try:
                worker = Worker(environment=self._environment, command=child.COMMAND, is_over=self._ends)
            except WorkerNotStarted as error:
                if self._ends():
                    raise Abandoned from error
                raise BackendError(f"the process that measures {error}") from error
            try:
                worker.ask("begin", self._start, patience_s=_MOST_BEGINNING_S, is_over=self._ends)
            except (WorkerDied, TaskFailed) as error:
                worker.end()
                verb = "" if isinstance(error, WorkerDied) else "could not begin: "
                raise BackendError(f"the process that measures {verb}{error}") from error
            except BaseException:
                worker.end()
                raise
            self._worker = worker
        return self._worker

    @property
    def is_alive(self) -> bool:
        """Whether the child that did the latest task can do another."""
        return self._worker is not None and self._worker.is_alive

    def end(self) -> None:
        """End the child, if there is one."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None
