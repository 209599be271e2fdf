"""Child processes that do named tasks: started, asked with a deadline, and ended. ``worker`` is the child's side.

A compiler written in Python delays all other threads: with one in the same process, PyTorch's MobileNet V3, whose calls
Python enqueues, took 5.3 ms on an H200 instead of 2.8 to 3.5. Eight of Triton's kernels took 4.5 s in one thread and
1.5 s in eight. A crash of a compiler, a candidate or a library ends only the child.

Protocol: a request, the name of a task and its arguments, is pickled to the child's standard input. Messages come back
on a separate pipe, so that output of libraries does not mix with them: READY once, and for each request any number of
PROGRESS and one DONE or FAILED.
"""

from __future__ import annotations

import atexit
import math
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from tempfile import TemporaryFile
from time import perf_counter
from typing import IO, Any

from convwright.errors import BackendError
from convwright.forking import in_child
from convwright.process import end_in_words, search_path

COMMAND = [sys.executable, "-P", "-m", "convwright.tuning.worker"]
# The child's settings: the number of its answer pipe, its niceness, and how long it waits for requests.
BEHAVIOUR = "CONVWRIGHT_WORKER"
READY, PROGRESS, DONE, FAILED = "ready", "progress", "done", "failed"
LENGTH = struct.Struct("!I")  # before each message
MOST_STARTING_S = 60.0
# If a process cannot be started (memory, files or time), none is started for PAUSE_S; each further failure doubles the
# pause, up to the longest.
PAUSE_S, _LONGEST_PAUSE_S = 1.0, 600.0
_POLL_S = 0.2


class WorkerNotStarted(BackendError):
    """No child could be started; the sentence says why."""


class WorkerDied(BackendError):
    """A child ended before it answered, or was ended because it did not answer in time; ``str()`` says how."""


class WorkerHung(WorkerDied):
    """A child was ended because it did not answer in time."""


class TaskFailed(BackendError):
    """The task raised an exception; the sentence is its type and its first line."""


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


def _never() -> bool:
    return False


_started: weakref.WeakSet[Worker] = weakref.WeakSet()
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _let_go() -> None:
    """Close the parent's workers in a forked child, which does not own them."""
    for worker in list(_started):
        worker.let_go()
    _started.clear()
    for pool in list(_pools):
        pool.let_go()


in_child(_let_go)


_process_ends = False


@atexit.register
def _end_all() -> None:
    """End all workers: nobody would read their answers."""
    global _process_ends
    _process_ends = True
    for worker in list(_started):
        worker.kill()


class Worker:
    """One child process, which handles one request at a time. Its standard error is kept."""

    def __init__(
        self,
        *,
        niceness: int = 0,
        idle_s: float = math.inf,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        is_over: Callable[[], bool] = _never,
    ) -> None:
        """Start it and wait until it is ready. It ends itself after ``idle_s`` without a request."""
        command = COMMAND if command is None else command
        if not _is_python(command[0]):
            raise WorkerNotStarted(f"could not be started: {command[0] or 'this program'} is not a Python interpreter")
        self._heard = b""
        with ExitStack() as opened:
            try:
                self._stderr: IO[bytes] = opened.enter_context(TemporaryFile())
                self._reading, writing = os.pipe()
                opened.callback(os.close, self._reading)
                try:
                    behaviour = f"{writing} {niceness} {idle_s}"
                    # The child finds modules where this process does. It has its own process group, so an interrupt of
                    # this process does not reach it. Unbuffered pipes have no lock that a fork could leave held.
                    self._process = subprocess.Popen(
                        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._stderr, bufsize=0,
                        pass_fds=(writing,), process_group=0,
                        env={**os.environ, "PYTHONPATH": search_path(), **(environment or {}), BEHAVIOUR: behaviour},
                    )  # fmt: skip
                finally:
                    os.close(writing)
            except (OSError, RuntimeError) as error:
                raise WorkerNotStarted(f"could not be started: {error}") from error
            self._opened = opened.pop_all()
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN)
        _started.add(self)
        try:
            self._message(MOST_STARTING_S, is_over)
        except (WorkerDied, Abandoned) as end:
            self.end()
            raise WorkerNotStarted(f"could not be started: it {end}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything that it wrote to standard error so far."""
        descriptor = self._stderr.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def ask(
        self,
        task: str,
        *arguments: Any,
        patience_s: float | Callable[[], float] = math.inf,
        hear: Callable[[Any], None] | None = None,
        is_over: Callable[[], bool] = _never,
    ) -> Any:
        """The result of a task. ``hear`` receives the messages of the task. A child that is silent for ``patience_s``
        is ended, and so is one whose answer is no longer needed, as ``is_over`` says."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, and the answer says how
            request = memoryview(pickle.dumps((task, arguments)))
            while request:
                request = request[self._process.stdin.write(request) :]
        while True:
            kind, value = self._message(patience_s() if callable(patience_s) else patience_s, is_over)
            if kind == PROGRESS and hear is not None:
                hear(value)
            elif kind == FAILED:
                said, goes_on = value
                if not goes_on:
                    self.leave(_POLL_S)
                raise TaskFailed(said)
            elif kind == DONE:
                return value

    def _message(self, patience_s: float, is_over: Callable[[], bool]) -> tuple[str, Any]:
        until_s = perf_counter() + patience_s
        while (message := self._parsed()) is None:
            if is_over():
                self.leave(0.0)
                raise Abandoned
            left_s = until_s - perf_counter()
            if left_s <= 0:
                self.leave(0.0)
                raise WorkerHung(f"did not answer within {patience_s:.3g} s")
            if self._poll.poll(min(left_s, _POLL_S) * 1e3):
                more = os.read(self._reading, 1 << 16)
                if not more and _process_ends:
                    raise SystemExit  # ends the asking thread silently
                if not more:
                    raise WorkerDied(self._end())
                self._heard += more
        return message

    def _parsed(self) -> tuple[str, Any] | None:
        """The next message, if it is complete."""
        if len(self._heard) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._heard)[0]
        if len(self._heard) < end:
            return None
        said, self._heard = self._heard[LENGTH.size : end], self._heard[end:]
        message: tuple[str, Any] = pickle.loads(said)
        return message

    def _end(self) -> str:
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.leave(0.0)
            return "closed its pipe"
        said = self.log.strip().splitlines()
        return end_in_words(code) + (f": {said[-1]}" if said and code > 0 else "")

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    def leave(self, patience_s: float) -> None:
        """Send no more requests. It ends by itself, or is ended after ``patience_s``."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=patience_s)
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End it and close its pipes."""
        self._process.kill()
        self.leave(0.0)
        self._opened.close()

    def let_go(self) -> None:
        """Close the pipes of another process's child, which keeps running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._opened.close()
        self._process.returncode = 0  # otherwise it would be waited for when this object is deleted

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def _is_python(executable: str) -> bool:
    """False if Python is embedded in another program, which would be started again."""
    return not getattr(sys, "frozen", False) and os.path.basename(executable).startswith(("python", "pypy"))


class WorkerPool:
    """A limited number of workers, started on demand, which end after ``idle_s`` without a request.

    Threads wait for a free worker. ``prepare`` is called with each new one.
    """

    def __init__(
        self,
        most: int,
        *,
        niceness: int = 0,
        idle_s: float = 20.0,
        prepare: Callable[[Worker], object] = lambda worker: None,
    ) -> None:
        self._most, self._niceness, self._idle_s, self._prepare = most, niceness, idle_s, prepare
        self._places = threading.BoundedSemaphore(most)
        self._idle: list[Worker] = []
        self._pause_s, self._paused_until_s = PAUSE_S, 0.0
        _pools.add(self)

    def let_go(self) -> None:
        """In a forked child: drop these processes and waiting threads, which belong to the parent."""
        self._idle.clear()
        self._places = threading.BoundedSemaphore(self._most)

    @property
    def idle(self) -> tuple[int, ...]:
        """The ids of processes that wait for a request."""
        return tuple(worker.pid for worker in self._idle)

    def start(self, count: int) -> None:
        """Start so many in the background; a request meanwhile takes the first that is ready."""

        def one() -> None:
            if self._places.acquire(blocking=False):
                try:
                    if len(self._idle) < count:
                        self._idle.append(self._new(_never))
                except WorkerNotStarted:
                    pass  # the next request reports it
                finally:
                    self._places.release()

        for _ in range(min(count, self._most) - len(self._idle)):
            with suppress(RuntimeError):  # no thread is available
                threading.Thread(target=one, name="convwright-starting", daemon=True).start()

    def ask(
        self, task: str, *arguments: Any, patience_s: float = math.inf, is_over: Callable[[], bool] = _never
    ) -> Any:
        """The result of a task; raises what ``Worker`` and its ``ask`` raise."""
        with self._places:
            while True:
                worker, is_new = self._one(is_over)
                try:
                    answer = worker.ask(task, *arguments, patience_s=patience_s, is_over=is_over)
                except BaseException as error:
                    worker.end()
                    # A waiting worker may have ended just now, since it was idle.
                    if isinstance(error, WorkerDied) and not is_new and str(error) == end_in_words(0):
                        continue
                    raise
                self._idle.append(worker)
                return answer

    def _one(self, is_over: Callable[[], bool]) -> tuple[Worker, bool]:
        """An idle worker, or a new one; True for a new one."""
        with suppress(IndexError):  # none is idle; another thread may take the last one at any moment
            while True:
                worker = self._idle.pop()
                if worker.is_alive:
                    return worker, False
                worker.end()
        return self._new(is_over), True

    def _new(self, is_over: Callable[[], bool]) -> Worker:
        begun_s = perf_counter()
        if begun_s < self._paused_until_s or is_over():
            raise WorkerNotStarted("could not be started a moment ago")
        try:
            worker = Worker(niceness=self._niceness, idle_s=self._idle_s, is_over=is_over)
            try:
                self._prepare(worker)
            except BackendError:
                worker.end()
                raise
        except BackendError as error:
            if begun_s >= self._paused_until_s and not is_over():  # once for threads that fail at the same time
                self._paused_until_s = perf_counter() + self._pause_s
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            raise WorkerNotStarted(str(error)) from error
        self._pause_s = PAUSE_S
        with suppress(RuntimeError):
            threading.Thread(target=self._bury, args=(worker,), name="convwright-worker", daemon=True).start()
        return worker

    def _bury(self, worker: Worker) -> None:
        """Wait until it has ended and nobody is asking it, then close its pipes."""
        worker.wait()
        with suppress(ValueError):
            self._idle.remove(worker)
            worker.end()
