"""Candidates that end their process, and a backend whose compiler does so or writes down where it was.

A process that compiles loads no PyTorch, so nothing here may.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from ast import literal_eval
from collections.abc import Callable, Iterator
from pathlib import Path

from convwright.core.candidate import Candidate, Offer, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

SERVE = "import sys; sys.path[:0] = {paths}; from tuning.fatal import serve_fatal; serve_fatal()"


def kernel(what: object) -> Candidate:
    problem = ConvProblem.of((2, 4, 8, 8), (4, 4, 3, 3), padding=1)
    return Candidate(problem, "fatal", str(what), (), Arithmetic.FP32, 0, True, Source.RULE, compiles=True)


def written(path: Path) -> tuple[int, int]:
    """The process that compiled, and how nice it is."""
    process, niceness = literal_eval(path.read_text())
    return process, niceness


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _segmentation_fault() -> None:
    ctypes.string_at(0)


def _hang() -> None:
    time.sleep(600)


def _exit() -> None:
    os._exit(3)


RUINOUS: dict[str, Callable[[], None]] = {
    "killed": _killed, "segfault": _segmentation_fault, "hangs": _hang, "exits": _exit, "fine": lambda: None,
}  # fmt: skip


class Fatal:
    """A backend whose compiler writes down where it was, or dies."""

    name = "fatal"

    def fingerprint(self, device: DeviceFacts) -> str:
        return "1"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        return iter(())

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        raise AssertionError("a test names what it compiles, and runs nothing of it")

    def load_compiler(self) -> None: ...

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None:
        if candidate.algorithm in RUINOUS:
            RUINOUS[candidate.algorithm]()
        elif candidate.algorithm == "refused":
            print("out of registers", flush=True)
            raise ValueError("out of registers")
        else:
            Path(candidate.algorithm).write_text(repr((os.getpid(), os.getpriority(os.PRIO_PROCESS, 0))))


def serve_fatal() -> None:
    """What a process that compiles does."""
    from convwright.backends.registry import BACKENDS
    from convwright.tuning.worker import serve

    BACKENDS["fatal"] = "tuning.fatal:Fatal"
    serve()
