"""Kernels that are compiled in the order of their priority by child processes, for every search of this process.

A search inside a call never waits for a compiler: its kernels are compiled in the background, and it is repeated once
they are there. Any other search waits for its first kernels and takes those that have come (``kernels``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from math import inf
from time import perf_counter

from convwright.backends.registry import backend, backends
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Compiles
from convwright.errors import first_line
from convwright.forking import in_child
from convwright.measuring.disturbances.background import processors
from convwright.shortage import is_shortage, shortage
from convwright.tuning import listing
from convwright.tuning.workers import Abandoned, TaskFailed, Worker, WorkerDied, WorkerNotStarted, WorkerPool

# At once: all processors but the one of the search. A compiler takes about 200 MB.
MOST_AT_ONCE = max(1, min(32, processors() - 1))
# In the background a few of the machine's processors compile, and only while nothing is being timed.
_BACKGROUND, _QUIET_S = max(1, min(4, processors() // 4)), 0.5
_NICENESS = 10
MOST_COMPILING_S = 300.0
_POLL_S = 0.05
NO_THREAD = "was not compiled for want of a thread: "


class Priority(IntEnum):
    """Who wants a kernel: a search that waits for it, the searches after it, or calls in the background."""

    SEARCH = 0
    NEXT = 1
    BACKGROUND = 2


@dataclass(eq=False, slots=True)
class _Group:
    """What one search in the background wants. ``then`` is called when all of it has come."""

    subject: object
    then: Callable[[], None]
    missing: int = 0


@dataclass(eq=False, slots=True)
class _Job:
    """One kernel. ``came`` is None until it is there, then "" or what went wrong."""

    kernel: Candidate
    device: DeviceFacts
    priority: Priority
    until_s: float
    loads: bool
    came: str | None = None
    is_compiled: bool = False
    is_loaded: bool = False
    is_dropped: bool = False
    groups: list[_Group] = field(default_factory=list)


_Key = tuple[Candidate, str]
_Home = tuple[str, str]  # a backend by its name and the kind of its problems


def _home(candidate: Candidate) -> _Home:
    return candidate.leaf.backend, candidate.leaf.problem.kind


def is_compiled_apart(candidate: Candidate) -> bool:
    """Whether what compiles a candidate can do so in another process."""
    return isinstance(backend(*_home(candidate)), Compiles)


class CompileQueue:
    """What is compiled for whom: at ``most`` so many kernels at once, and so many ``in_background``, where that goes on
    ``quiet_s`` after something was timed."""

    def __init__(
        self, *, most: int = MOST_AT_ONCE, in_background: int = _BACKGROUND, quiet_s: float = _QUIET_S
    ) -> None:
        self.most, self.in_background, self.quiet_s = most, in_background, quiet_s
        self._workers = WorkerPool(most, niceness=_NICENESS, prepare=self._prepare)
        self._loaded: set[_Home] = set()
        self._lost: list[Callable[[], None]] = []
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._jobs: dict[_Key, _Job] = {}
        self._waiting: list[_Job] = []
        self._threads = self._in_background = self._timing = 0
        self._timed_s = -inf

    def begin_in_child(self) -> None:
        """In a forked child: the threads that compile are its parent's."""
        groups = {group: None for job in self._jobs.values() if job.came is None for group in job.groups}
        self._lost = [group.then for group in groups]
        self._begin()

    def lost(self) -> list[Callable[[], None]]:
        """What a forked child has to call: what the parent was compiling in the background is to be wanted anew."""
        lost, self._lost = self._lost, []
        return lost

    def start(self, device: DeviceFacts) -> None:
        """Have compilers for a device start, and load into this process what kernels are built with: both take half a
        second."""
        if device.kind == "cuda":
            homes = {(member.name, "conv") for member in backends() if isinstance(member, Compiles)}
            self._load(homes, starting=self.most)

    def _load(self, homes: set[_Home], *, starting: int = 0) -> None:
        new, self._loaded = homes - self._loaded, self._loaded | homes
        self._workers.start(starting)
        for name, kind in new:
            member = backend(name, kind)
            assert isinstance(member, Compiles)
            with suppress(ImportError):  # it refuses everything, and says why
                member.load_compiler()

    def _prepare(self, worker: Worker) -> None:
        worker.ask("load", sorted(self._loaded))

    def want(
        self,
        kernels: Iterable[Candidate],
        device: DeviceFacts,
        priority: Priority,
        *,
        loads: bool = True,
        until_s: float = inf,
        subject: object = None,
        then: Callable[[], None] | None = None,
    ) -> str | None:
        """Compile kernels in this order, and build them in this process where ``loads``. None is begun after
        ``until_s``, in seconds of ``perf_counter``.

        ``then`` is called, in another thread, when all of them have come; ``subject`` is what they are for. Returns why
        nothing is compiled where no thread could be started.
        """
        kernels = list(kernels)
        if priority is not Priority.BACKGROUND:
            self._load({_home(kernel) for kernel in kernels})
        with self._changed:
            group = None if then is None else _Group(subject, then)
            jobs = [self._wanted(kernel, device, priority, until_s, loads=loads) for kernel in kernels]
            for job in jobs:
                if group is not None and job.came is None:
                    group.missing += 1
                    job.groups.append(group)
            reason = self._start_threads()
            if reason is not None:
                self._forget(jobs)
            return reason

    def _wanted(
        self, kernel: Candidate, device: DeviceFacts, priority: Priority, until_s: float, *, loads: bool
    ) -> _Job:
        key = _key(kernel, device)
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(kernel, device, priority, until_s, loads)
            self._waiting.append(job)
            return job
        job.priority, job.until_s = min(job.priority, priority), inf if job.groups else until_s
        # What went wrong may go well another time; in the background it would be tried for ever.
        tried_again = bool(job.came) and priority is not Priority.BACKGROUND
        if tried_again or (loads and not job.is_loaded and job.came == ""):
            job.came, job.is_compiled = None, job.is_compiled and not tried_again
            self._waiting.append(job)
        job.loads = job.loads or loads
        return job

    def came(self, kernel: Candidate, device: DeviceFacts) -> str | None:
        """None for what is not there yet, "" for what is, or else what went wrong."""
        job = self._jobs.get(_key(kernel, device))
        return None if job is None else job.came

    def is_wanted(self, kernel: Candidate, device: DeviceFacts) -> bool:
        return _key(kernel, device) in self._jobs

    def wait(self, is_enough: Callable[[], bool], until_s: float) -> bool:
        """Until something has come that is enough; False where it takes too long."""
        with self._changed:
            left_s = min(max(until_s - perf_counter(), 0.0), threading.TIMEOUT_MAX)
            return self._changed.wait_for(is_enough, left_s)

    def missing(self, subject: object) -> int:
        """How many kernels are still to be compiled for a subject in the background."""
        return sum(any(group.subject == subject for group in job.groups) for job in list(self._jobs.values()))

    def hurry(self, subject: object, patience_s: float) -> bool:
        """Compile what is wanted for a subject before all other, and wait for so long; whether anything has come."""
        with self._changed:
            for job in self._jobs.values():
                if any(group.subject == subject for group in job.groups):
                    job.priority = Priority.SEARCH
            before = self.missing(subject)
            self._start_threads()
            self._changed.notify_all()
            self.wait(lambda: not self.missing(subject), perf_counter() + patience_s)
            return self.missing(subject) < before

    def wait_for_all(self) -> None:
        """Until nothing is being compiled any more."""
        self.wait(lambda: not self._threads, inf)

    def drop(self, kernels: Iterable[Candidate], device: DeviceFacts) -> None:
        """A search has ended: what is not begun by now is not compiled for it."""
        with self._changed:
            jobs = [job for kernel in kernels if (job := self._jobs.get(_key(kernel, device))) is not None]
            for job in jobs:
                if job.groups:
                    job.priority = Priority.BACKGROUND
            self._forget([job for job in jobs if job in self._waiting and not job.groups])

    def _forget(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            if job in self._waiting:
                self._waiting.remove(job)
            if job.came is None and self._jobs.get(_key(job.kernel, job.device)) is job:
                del self._jobs[_key(job.kernel, job.device)]

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Inside, and for a while afterwards, the background compiles nothing new. Who is interrupted inside waits for
        nothing any more."""
        with self._changed:
            self._timing += 1
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self._give_up()
            raise
        finally:
            with self._changed:
                self._timing -= 1
                self._timed_s = perf_counter()

    def _give_up(self) -> None:
        with self._changed:
            over = [job for job in self._jobs.values() if job.came is None and not job.groups]
            for job in over:
                job.is_dropped = True
            self._forget(over)

    def _start_threads(self) -> str | None:
        """As many as have something to do; why there is none."""
        in_background = sum(job.priority is Priority.BACKGROUND for job in self._waiting)
        waiting = len(self._waiting) - max(in_background - self.in_background, 0)
        needed = min(waiting + self._threads, self.most)
        try:
            while self._threads < needed:
                # Not a daemon: one inside a compiler when the interpreter ends would take the process with it.
                threading.Thread(target=self._work, name="convwright-compiling", daemon=False).start()
                self._threads += 1
        except RuntimeError as error:
            return None if self._threads else f"{NO_THREAD}{first_line(error)}"
        return None

    def _work(self) -> None:
        """Until nothing waits any more, or the process has ended but for this thread."""
        try:
            while not _is_over() and self._work_once():
                pass
        finally:
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()

    def _work_once(self) -> bool:
        with self._changed:
            job = self._next()
            if job is None:
                return bool(self._waiting) and (self._changed.wait(_POLL_S) or True)
            in_background = job.priority is Priority.BACKGROUND
            self._in_background += in_background
        came = self._done(job)
        with self._changed:
            self._in_background -= in_background
            thens = self._note(job, came)
        for then in thens:
            then()
        return True

    def _next(self) -> _Job | None:
        """The first of the highest priority; none where that is for the background, whose turn it is not."""
        now_s = perf_counter()
        self._forget([job for job in self._waiting if job.until_s < now_s])
        job = min(self._waiting, key=lambda each: each.priority, default=None)
        if job is None:
            return None
        quiet = not self._timing and now_s >= self._timed_s + self.quiet_s
        if job.priority is Priority.BACKGROUND and not (quiet and self._in_background < self.in_background):
            return None
        self._waiting.remove(job)
        return job

    def _note(self, job: _Job, came: str | None) -> list[Callable[[], None]]:
        """What a job has come to, and who has all that was wanted by that."""
        if came is None or job.is_dropped:
            self._forget([job])
            return []
        job.is_compiled = True
        if job.loads and not job.is_loaded and not came:
            self._waiting.insert(0, job)  # that was asked for when it was nearly done
            return []
        job.came = came
        done = []
        for group in job.groups:
            group.missing -= 1
            if not group.missing:
                done.append(group.then)
        job.groups.clear()
        self._changed.notify_all()
        return done

    def _done(self, job: _Job) -> str | None:
        """Compile a kernel, and build it: "", what went wrong, or None where nobody waited for it."""
        try:
            if not job.is_compiled:
                self._load({_home(job.kernel)})
                try:
                    self._workers.ask(
                        "compile", job.kernel, job.device, patience_s=MOST_COMPILING_S,
                        is_over=lambda: job.is_dropped or _is_over(),
                    )  # fmt: skip
                except WorkerDied as died:
                    return f"its compiler {died}"
                except (WorkerNotStarted, TaskFailed):
                    pass  # then building the kernel compiles it, and says what is wrong with it
            if job.loads and not (job.is_dropped or _is_over()):
                listing.build(job.kernel, job.device)
                job.is_loaded = True
        except Abandoned:
            return None
        except BaseException as error:  # compilers have no common one, and nobody else is there to hear of it
            return shortage(error) if is_shortage(error) else f"failed: {first_line(error)}"
        return None if job.is_dropped or _is_over() else ""


def _is_over() -> bool:
    return not threading.main_thread().is_alive()


def _key(kernel: Candidate, device: DeviceFacts) -> _Key:
    return kernel, device.torch_name or device.key


@cache
def compile_queue() -> CompileQueue:
    """The queue of this process."""
    return CompileQueue()


def _begin_in_child() -> None:
    if compile_queue.cache_info().currsize:
        compile_queue().begin_in_child()


in_child(_begin_in_child)
