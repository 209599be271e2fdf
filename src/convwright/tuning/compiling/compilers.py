"""Compiling in processes of their own.

A compiler written in Python holds up all other threads: while one compiled beside it, PyTorch's own MobileNet V3 took
5.3 ms on an H200, whose calls are enqueued by Python, and 2.8 to 3.5 in later runs. Eight of Triton's kernels took
4.5 s in one thread and 1.5 s in eight. And what a compiler dies of is no end of the process that asked.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from convwright.backends.registry import backend
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Compiles
from convwright.forking import in_child
from convwright.tuning.compiling.compiler import READY
from convwright.tuning.process import end_in_words, search_path

COMMAND = [sys.executable, "-P", "-m", "convwright.tuning.compiling.compiler"]
MOST_STARTING_S, MOST_COMPILING_S = 60.0, 300.0
# Where a process could not be started, for want of memory or of files or of time, none is for so long, and after each
# further time for twice as long, up to so long.
PAUSE_S, _LONGEST_PAUSE_S = 1.0, 600.0
_POLL_MS = 200


def elsewhere(candidate: Candidate) -> bool:
    """Whether what compiles a candidate can do so in another process."""
    leaf = candidate.leaf
    return isinstance(backend(leaf.backend, leaf.problem.kind), Compiles)


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


_in_use: weakref.WeakSet[Compilers] = weakref.WeakSet()
_started: weakref.WeakSet[_Compiler] = weakref.WeakSet()


def _let_go() -> None:
    _started.clear()
    for compilers in list(_in_use):
        compilers.let_go()


@atexit.register
def _end_all() -> None:
    """What still compiles for a thread that ends with the process: nobody would hear the answer."""
    for compiler in list(_started):
        compiler.end_process()


in_child(_let_go)


class Compilers:
    """At most so many processes, started when they are needed. Threads that ask wait for one that is free.

    Nobody waits any more once ``is_over``.
    """

    def __init__(self, most: int, *, niceness: int = 0, is_over: Callable[[], bool] = lambda: False) -> None:
        self._niceness, self._is_over = niceness, is_over
        self._places = threading.BoundedSemaphore(most)
        self._resting: list[_Compiler] = []
        self._most = most
        self._pause_s, self._paused_until_s = PAUSE_S, 0.0
        _in_use.add(self)

    def let_go(self) -> None:
        """In a child that was forked off: these processes are its parent's, and so are the threads that ask them."""
        while self._resting:
            self._resting.pop().let_go()
        self._places = threading.BoundedSemaphore(self._most)

    def start(self, count: int) -> None:
        """Have so many ready, where that many may be; all at once, since each takes a second to load what it needs."""

        def one() -> None:
            if self._places.acquire(blocking=False):
                try:
                    if len(self._resting) < count and (compiler := self._new()) is not None:
                        self._resting.append(compiler)
                finally:
                    self._places.release()

        missing = min(count, self._most) - len(self._resting)
        threads = [threading.Thread(target=one, name="convwright-compilers", daemon=True) for _ in range(missing)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def compile(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        """Where its backend can, compile a candidate. What the compiler died of is told: it is not to be tried here.

        A process that cannot be had, or not now, is no reason: then building the candidate compiles it, as it does what
        a compiler has refused, and says why.
        """
        if not elsewhere(candidate):
            return None
        request = pickle.dumps((candidate, device))
        with self._places:
            while (compiler := self._one()) is not None:
                if compiler.ask(request, self._is_over):
                    self._resting.append(compiler)
                    return None
                if compiler.end:
                    return compiler.end
        return None

    def _one(self) -> _Compiler | None:
        """One that rests, or a new one, or None where it cannot be started."""
        with suppress(IndexError):  # none rests; another thread may bury the last one at any moment
            while True:
                compiler = self._resting.pop()
                if compiler.is_alive:
                    return compiler
                compiler.kill()
        return self._new()

    def _new(self) -> _Compiler | None:
        begun_s = perf_counter()
        if begun_s < self._paused_until_s or self._is_over() or not _is_python(COMMAND[0]):
            return None
        started = _Compiler.started(self._niceness, self._is_over)
        if started is not None:
            self._pause_s = PAUSE_S
            threading.Thread(target=self._bury, args=(started,), name="convwright-compiler", daemon=True).start()
        elif begun_s >= self._paused_until_s and not self._is_over():  # once for threads that fail at the same time
            self._paused_until_s = perf_counter() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return started

    def _bury(self, compiler: _Compiler) -> None:
        """Wait until it has ended, and if nobody is asking it then, close what belongs to it."""
        compiler.wait()
        with suppress(ValueError):
            self._resting.remove(compiler)
            compiler.kill()


def _is_python(executable: str | None) -> bool:
    """False where Python runs inside of another program, which would be started again."""
    return not getattr(sys, "frozen", False) and os.path.basename(executable or "").startswith(("python", "pypy"))


class _Compiler:
    """One process. ``end`` says what it died of; one that nobody asked for a while ends without that."""

    def __init__(self, process: subprocess.Popen[bytes], answers: int) -> None:
        self.end = ""
        self._process, self._answers = process, answers

    @classmethod
    def started(cls, niceness: int, is_over: Callable[[], bool]) -> _Compiler | None:
        # As this process finds its modules, however it came to.
        environment = {**os.environ, "PYTHONPATH": search_path()}
        ends: tuple[int, ...] = ()
        try:
            ends = reading, writing = os.pipe()
            # In a group of its own: who interrupts this process does not mean that one.
            process = subprocess.Popen(
                [*COMMAND, str(writing), str(niceness), *loaded()], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, pass_fds=(writing,), env=environment, process_group=0,
            )  # fmt: skip
        except (OSError, RuntimeError):
            for end in ends:
                os.close(end)
            return None
        os.close(writing)
        compiler = cls(process, reading)
        _started.add(compiler)
        if compiler._answer(MOST_STARTING_S, is_over) == READY:
            return compiler
        compiler.kill()
        return None

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        self._process.wait()

    def end_process(self) -> None:
        self._process.kill()

    def ask(self, request: bytes, is_over: Callable[[], bool]) -> bool:
        """True where it answered; or else it is no more, and ``end`` says why."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended, and the answer says so
        else:
            if self._answer(MOST_COMPILING_S, is_over):
                return True
        if not is_over():
            self.end = self._ended()
        self.kill()
        return False

    def _answer(self, patience_s: float, is_over: Callable[[], bool]) -> bytes:
        """What it says; nothing where it has ended, or says nothing for too long."""
        until, poll = perf_counter() + patience_s, select.poll()
        poll.register(self._answers, select.POLLIN)
        while not poll.poll(_POLL_MS):
            if is_over() or perf_counter() > until:
                return b""
        return os.read(self._answers, 1)

    def _ended(self) -> str:
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return f"its compiler did not end within {MOST_COMPILING_S:.3g} s"
        return f"its compiler {end_in_words(code)}" if code else ""

    def let_go(self) -> None:
        """Close what leads to a process of somebody else's, which goes on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._answers)
        self._process.returncode = 0  # or else it would be waited for when this is gone

    def kill(self) -> None:
        """End it, where it has not ended, and what belongs to it."""
        self._process.kill()
        self._process.communicate()
        os.close(self._answers)
