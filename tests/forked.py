"""Work that is done in forked children: what this process has loaded is not loaded again."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, TextIO

PATIENCE_S = 20.0


def in_child(work: Callable[[], object]) -> str:
    """What ``work`` gives in a forked child, or how the child ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        gc.freeze()  # the child must not collect what earlier tests have left
        faulthandler.register(signal.SIGUSR1, file=writing)
        try:
            said = f"{work()}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode()[:4000])
            os._exit(0)
    os.close(writing)
    until = time.monotonic() + PATIENCE_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGUSR1)
            time.sleep(0.5)  # for it to say where it is
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.set_blocking(reading, False)  # a child of the child may hold the other end
            with os.fdopen(reading) as said_there:
                return f"still there after {PATIENCE_S} s, at\n{said_there.read()}"
        time.sleep(0.01)
    with os.fdopen(reading) as said_there:
        return said_there.read() or f"ended with status {ended[1]}"


class Forked:
    """A forked child with pipes to it, as much of ``subprocess.Popen`` as tests and workers use."""

    stdin: Any

    def __init__(self, work: Callable[[], object], files: Mapping[int, int], kept: Collection[int] = ()) -> None:
        """``files`` take the place of the child's standard files, by number. It keeps these and those in ``kept``."""
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            self.pid = os.fork()
        if self.pid == 0:
            try:
                _begin(files, kept)
                work()
                sys.stdout.flush()
                os._exit(0)
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(1)

    def poll(self) -> int | None:
        if self.returncode is None:
            with suppress(ChildProcessError):  # another thread hears of its end
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked child", timeout)
            time.sleep(0.005)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _begin(files: Mapping[int, int], kept: Collection[int]) -> None:
    """In the child: its own standard files and process group, and nothing else of the parent's."""
    gc.freeze()  # the child must not collect what earlier tests have left
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
    for place, file in files.items():
        os.dup2(file, place)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) not in kept:
            with suppress(OSError):  # the listing itself
                os.close(int(name))
    sys.stdin, sys.stdout, sys.stderr = (open(place, mode) for place, mode in enumerate("rww"))  # noqa: SIM115


class Program(Forked):
    """A program that is run in a forked child as ``python -c`` would run it, with pipes to it and from it."""

    stdin: TextIO
    stdout: TextIO

    def __init__(self, program: str, *arguments: str) -> None:
        def work() -> None:
            sys.argv = ["-c", *arguments]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(program, vars(main))

        reading, its_writing = os.pipe()
        its_reading, writing = os.pipe()
        super().__init__(work, {0: its_reading, 1: its_writing})
        os.close(its_reading)
        os.close(its_writing)
        self.stdin, self.stdout = os.fdopen(writing, "w"), os.fdopen(reading)

    def communicate(self, said: str = "") -> str:
        """Say the last, and hear all until it has ended."""
        with suppress(BrokenPipeError):
            self.stdin.write(said)
            self.stdin.close()
        with self.stdout:
            heard = self.stdout.read()
        self.wait()
        return heard
