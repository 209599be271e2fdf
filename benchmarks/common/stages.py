"""Processes of their own for the stages of a benchmark, so that what one knows the other learns from the store alone.

A stage runs the same script with the same options and ``--stage NAME``. It is asked a line of JSON at a time, and
answers each with one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Self, TextIO

from convwright.errors import ConvwrightError, first_line
from convwright.tuning.process import end_in_words

Answer = dict[str, Any]
_LEAVE_S = 20.0


class Stage:
    """One process, started when it is first asked, and again where it has ended."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, *sys.argv, "--stage", name]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[str] | None = None
        self._heard: SimpleQueue[str] | None = None

    def start(self) -> None:
        """Start it before it is asked, or without asking."""
        self._running()

    def ask(self, question: Answer, *, patience_s: float = 600.0) -> Answer:
        """What it answers; {"failure": why} where it raises, dies, or says nothing for too long."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError:
            pass  # it has ended, and the answer says so
        if not select.select([process.stdout], [], [], patience_s)[0]:
            self.end()
            return {"failure": f"it gave no answer within {patience_s:.0f} s"}
        line = process.stdout.readline()
        if line:
            answer: Answer = json.loads(line)
            return answer
        code = process.wait()
        self._process = None
        return {"failure": f"its process {end_in_words(code)}"}

    def hear(self, *, patience_s: float) -> Answer | None:
        """The next that it tells without being asked; None where it tells nothing for so long, or no more."""
        if self._heard is None:
            self._heard = SimpleQueue()
            Thread(target=_hear, args=(self._running(), self._heard), daemon=True).start()
        try:
            line = self._heard.get(timeout=max(patience_s, 0.0))
        except Empty:
            return None
        if not line:
            self._heard.put(line)  # it has ended, whoever else wants to hear of it
        return json.loads(line) if line else None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Where nobody asks any more it ends by itself, with all that it has started; one that does not is killed."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=_LEAVE_S)
            self.end()


def _hear(process: subprocess.Popen[str], heard: SimpleQueue[str]) -> None:
    """Each line that a process writes, and an empty one behind the last."""
    assert process.stdout is not None
    with suppress(ValueError):  # somebody has closed it
        for line in process.stdout:
            heard.put(line)
    heard.put("")


def answers() -> TextIO:
    """Where a stage's process writes its answers, a line each."""
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    return told


def tell(answer: Answer, told: TextIO) -> None:
    print(json.dumps(answer), file=told, flush=True)


def serve(answer: Callable[[Answer], Answer]) -> None:
    """Answer until nobody asks any more; in the process of a stage."""
    told = answers()
    for line in sys.stdin:
        ends = False
        try:
            said = answer(json.loads(line))
        except Exception as error:
            said = {"failure": f"{type(error).__name__}: {first_line(error)}"}
            # What else was raised may have left the device unusable, which a new process is not.
            ends = not isinstance(error, ConvwrightError)
        tell(said, told)
        if ends:
            return
