"""A process as others can recognise it later, and whether it is still alive."""

from __future__ import annotations

import os
import platform
import signal
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A number alone says little: it is given again. ``boot`` and ``started`` are None where the system tells neither.

    ``started`` is in clock ticks since the machine booted.
    """

    host: str
    boot: str | None
    pid: int
    started: str | None

    def is_alive(self) -> bool | None:
        """Whether it still runs; None where that cannot be known from here."""
        here = this_process()
        if self == here:
            return True
        if self.host != here.host:
            return None
        if self.boot != here.boot:
            return False
        if self.started is None:
            return False if _is_unused(self.pid) else None
        return _started(self.pid) == self.started


def this_process() -> Process:
    """The process that asks; a forked child is another one than its parent."""
    return _described(os.getpid())


def search_path() -> str:
    """Where this process finds modules, as a PYTHONPATH of those that it starts with ``-P``: what lies in the folder
    that a user is in must not stand in a library's place."""
    return os.pathsep.join(os.path.abspath(place) for place in sys.path)


def end_in_words(code: int) -> str:
    """How a process ended that was waited for, as its exit status tells.

    >>> end_in_words(3), end_in_words(-11)
    ('ended with code 3', 'died of SIGSEGV')
    """
    if code >= 0:
        return f"ended with code {code}"
    known = -code in map(int, signal.Signals)
    return f"died of {signal.Signals(-code).name if known else f'signal {-code}'}"


@lru_cache(maxsize=1)
def _described(pid: int) -> Process:
    return Process(platform.node(), _boot(), pid, _started(pid))


def _boot() -> str | None:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When a process started; None where there is none of that number, or only its remains, or no /proc."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything. Behind it are the state and, twentieth, the start.
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _is_unused(pid: int) -> bool:
    """True where no process has this number. One that has it may be another by now."""
    if sys.platform == "win32":
        return False  # there os.kill does not ask: it ends the process, or interrupts the console
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
