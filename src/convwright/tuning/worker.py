"""The child process of ``workers``: ``python -P -m convwright.tuning.worker`` does tasks from a fixed table.

A process that compiles loads no PyTorch, so it starts in half a second.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, cast

from convwright.backends.registry import backend
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Compiles, Explains
from convwright.errors import BackendError, BadInput, ConvwrightError, first_line
from convwright.tuning.workers import BEHAVIOUR, DONE, FAILED, LENGTH, PROGRESS, READY

Say = Callable[[Any], None]
Task = Callable[..., Any]  # takes a Say, then the arguments of the request


def load_compilers(say: Say, homes: Iterable[tuple[str, str]]) -> None:
    """Load the compilers of these backends, each for a kind of problem."""
    for name, kind in homes:
        with suppress(Exception):
            _compiler(name, kind).load_compiler()


def compile_kernel(say: Say, candidate: Candidate, device: DeviceFacts) -> None:
    """Compile a candidate into its backend's cache on disk."""
    with suppress(Exception):  # compilers raise anything; building the candidate later reports the error
        _compiler(candidate.backend, candidate.problem.kind).compile(candidate, device)


def _compiler(name: str, kind: str) -> Compiles:
    member = backend(name, kind)
    assert isinstance(member, Compiles)
    return member


def _measure(say: Say, *asked: Any) -> Any:
    from convwright.tuning.trials.isolation import measure_here

    return measure_here(say, *asked)


@dataclass(frozen=True, slots=True)
class Answer:
    """A workspace, or a refusal, which the library's log may explain, or neither if there is no such algorithm."""

    workspace_bytes: int = 0
    refusal: str | None = None
    is_logged: bool = False
    mistake: str | None = None


def attempt(say: Say, family: str, name: str, problem: Problem, device: DeviceFacts) -> Answer:
    """Ask a library about one of its algorithms. Standard error is its log."""
    member = backend(family, problem.kind)
    assert isinstance(member, Explains)
    try:
        return Answer(member.attempt(problem, name, device))
    except BadInput as mistake:
        return Answer(mistake=str(mistake))
    except ConvwrightError as refused:
        return Answer(refusal=str(refused), is_logged=isinstance(refused, BackendError))


TASKS: Mapping[str, Task] = {
    "load": load_compilers, "compile": compile_kernel, "measure": _measure, "attempt": attempt,
}  # fmt: skip


def serve(tasks: Mapping[str, Task] = TASKS) -> None:
    """Do tasks until no request comes for the idle time given at the start."""
    pipe, niceness, idle_s = os.environ.pop(BEHAVIOUR).split()
    os.nice(int(niceness))
    requests = cast(BufferedReader, sys.stdin.buffer)
    with os.fdopen(int(pipe), "wb") as answers:

        def send(kind: str, value: Any) -> None:
            said = pickle.dumps((kind, value))
            answers.write(LENGTH.pack(len(said)) + said)
            answers.flush()

        def say(value: Any) -> None:
            send(PROGRESS, value)

        send(READY, None)
        patience_s = None if math.isinf(float(idle_s)) else float(idle_s)
        while select.select([requests], [], [], patience_s)[0]:
            if not requests.peek(1):
                return
            try:
                name, arguments = pickle.load(requests)
                result = tasks[name](say, *arguments)
            except Exception as error:
                # Any other error may have left the device unusable; a new process starts clean.
                goes_on = isinstance(error, ConvwrightError)
                send(FAILED, (f"{type(error).__name__}: {first_line(error)}", goes_on))
                if not goes_on:
                    return
            else:
                send(DONE, result)


if __name__ == "__main__":
    from convwright.tuning import worker  # so that answers are pickled with that module's classes

    worker.serve()
