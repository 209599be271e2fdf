"""Processes of their own for the stages of a benchmark, so that what one knows the other learns from the store alone.

A stage runs the same script with the same options and ``--stage NAME``, as a worker whose tasks the script names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

from convwright.tuning.worker import Say
from convwright.tuning.worker import serve as serve_tasks
from convwright.tuning.workers import TaskFailed, Worker, WorkerDied

Answer = dict[str, Any]
_LEAVE_S = 20.0


class Stage:
    """One process, started when it is first asked, and again where it has ended."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, *sys.argv, "--stage", name]
        self._environment = environment
        self._worker: Worker | None = None
        self._heard = SimpleQueue[Answer | None]()

    def begin(self, question: Answer) -> None:
        """Ask without waiting: what it says meanwhile is to be heard."""

        def ask() -> None:
            with suppress(OSError):  # it was ended
                self.ask(question, patience_s=float("inf"), hear=self._heard.put)
            self._heard.put(None)

        Thread(target=ask, daemon=True).start()

    def hear(self, *, patience_s: float) -> Answer | None:
        """The next that it says; None where it says nothing for so long, or no more."""
        try:
            said = self._heard.get(timeout=max(patience_s, 0.0))
        except Empty:
            return None
        if said is None:
            self._heard.put(None)  # it has ended, whoever else wants to hear of it
        return said

    def ask(
        self, question: Answer, *, patience_s: float = 600.0, hear: Callable[[Answer], None] | None = None
    ) -> Answer:
        """What it answers; {"failure": why} where it raises, dies, or says nothing for too long."""
        if self._worker is None or not self._worker.is_alive:
            self._worker = Worker(command=self._command, environment=self._environment)
        try:
            answer: Answer = self._worker.ask("answer", question, patience_s=patience_s, hear=hear)
        except TaskFailed as error:
            return {"failure": str(error)}
        except WorkerDied as died:
            self.end()
            return {"failure": f"its process {died}"}
        return answer

    def end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Where nobody asks any more it ends by itself, with all that it has started; one that does not is killed."""
        if self._worker is not None:
            self._worker.leave(_LEAVE_S)
            self.end()


def serve(answer: Callable[[Answer], Answer]) -> None:
    """Answer until nobody asks any more; in the process of a stage."""
    serve_tasks({"answer": lambda say, question: answer(question)})


def serve_saying(answer: Callable[[Say, Answer], Answer]) -> None:
    """The same of what says more than its answer."""
    serve_tasks({"answer": answer})
