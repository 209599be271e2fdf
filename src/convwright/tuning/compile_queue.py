"""Compile kernels in child processes, in the order of their priority, for all searches of this process.

A search inside a call never waits for a compiler: its kernels are compiled in the background, and it is repeated when
they are ready. Any other search waits for its first kernels and uses those that are ready (``kernels``).
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

# At once: all processors except one, for the search. A compiler takes about 200 MB.
MOST_AT_ONCE = max(1, min(32, processors() - 1))
# In the background only some processors compile, and only while nothing is being timed.
_BACKGROUND, _QUIET_S = max(1, min(4, processors() // 4)), 0.5
_NICENESS = 10
MOST_COMPILING_S = 300.0
_POLL_S = 0.05
NO_THREAD = "was not compiled for want of a thread: "


class Priority(IntEnum):
    """Who needs a kernel: a search that waits for it, later searches, or calls in the background."""

    SEARCH = 0
    NEXT = 1
    BACKGROUND = 2


@dataclass(eq=False, slots=True)
class _Group:
    """The kernels of one background search. ``then`` is called when all are done."""

    subject: object
    then: Callable[[], None]
    missing: int = 0


@dataclass(eq=False, slots=True)
class _Job:
    """One kernel. ``came`` is None until it is done, then "" or the error."""

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
_Home = tuple[str, str]  # a backend's name and the kind of its problems


def _home(candidate: Candidate) -> _Home:
    return candidate.leaf.backend, candidate.leaf.problem.kind


def is_compiled_apart(candidate: Candidate) -> bool:
    """Whether a candidate can be compiled in another process."""
    return isinstance(backend(*_home(candidate)), Compiles)


class CompileQueue:
    """The queue: at most ``most`` kernels compile at once, ``in_background`` of them for calls. Background compilation
    pauses until ``quiet_s`` after the last timing."""

    def __init__(self, *, most: int = MOST_AT_ONCE, quiet_s: float = _QUIET_S) -> None:
        self.most, self.in_background, self.quiet_s = most, _BACKGROUND, quiet_s
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
        """Reset the queue in a forked child, which does not have its parent's threads."""
        groups = {group: None for job in self._jobs.values() if job.came is None for group in job.groups}
        self._lost = [group.then for group in groups]
        self._begin()

    def lost(self) -> list[Callable[[], None]]:
        """Callbacks for a forked child to call: their kernels were being compiled by the parent."""
        lost, self._lost = self._lost, []
        return lost

    def start(self, device: DeviceFacts) -> None:
        """Start compilers for a device, and load into this process what building kernels needs. Each takes half a
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
            with suppress(ImportError):  # the backend then refuses every problem with a reason
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
        """Compile kernels in this order, and also build them in this process if ``loads``. None starts after
        ``until_s``, in seconds of ``perf_counter``.

        ``then`` is called in another thread when all are done. ``subject`` is the problem they are for. Returns an
        error if no thread could be started, so that nothing is compiled.
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
        # A failed compilation may succeed later; but in the background it would be retried forever.
        tried_again = bool(job.came) and priority is not Priority.BACKGROUND
        if tried_again or (loads and not job.is_loaded and job.came == ""):
            job.came, job.is_compiled = None, job.is_compiled and not tried_again
            self._waiting.append(job)
        job.loads = job.loads or loads
        return job

    def came(self, kernel: Candidate, device: DeviceFacts) -> str | None:
        """None while a kernel is not done, "" if it is ready, otherwise the error."""
        job = self._jobs.get(_key(kernel, device))
        return None if job is None else job.came

    def is_wanted(self, kernel: Candidate, device: DeviceFacts) -> bool:
        return _key(kernel, device) in self._jobs

    def wait(self, is_enough: Callable[[], bool], until_s: float) -> bool:
        """Wait until ``is_enough`` is true; False on timeout."""
        with self._changed:
            left_s = min(max(until_s - perf_counter(), 0.0), threading.TIMEOUT_MAX)
            return self._changed.wait_for(is_enough, left_s)

    def missing(self, subject: object) -> int:
        """The number of background kernels still to be compiled for a subject."""
        return sum(any(group.subject == subject for group in job.groups) for job in list(self._jobs.values()))

    def hurry(self, subject: object, patience_s: float) -> bool:
        """Compile a subject's kernels before all others, and wait for up to ``patience_s``; whether any is done."""
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
        """Wait until nothing is being compiled."""
        self.wait(lambda: not self._threads, inf)

    def drop(self, kernels: Iterable[Candidate], device: DeviceFacts) -> None:
        """End a search: its kernels that are not started are not compiled for it."""
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
        """Inside, and for a while afterwards, the background starts no compilation. An interrupt inside cancels all
        waiting."""
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
        """Start as many threads as there is work for; returns an error if there are none."""
        in_background = sum(job.priority is Priority.BACKGROUND for job in self._waiting)
        waiting = len(self._waiting) - max(in_background - self.in_background, 0)
        needed = min(waiting + self._threads, self.most)
        try:
            while self._threads < needed:
                # Not a daemon: a daemon inside a compiler would crash the process when the interpreter ends.
                threading.Thread(target=self._work, name="convwright-compiling", daemon=False).start()
                self._threads += 1
        except RuntimeError as error:
            return None if self._threads else f"{NO_THREAD}{first_line(error)}"
        return None

    def _work(self) -> None:
        """Work until nothing waits, or only this thread of the process is left."""
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
        """The first job of the highest priority; None if that is a background job and must wait."""
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
        """Record a job's result; returns the callbacks of groups that are now complete."""
        if came is None or job.is_dropped:
            self._forget([job])
            return []
        job.is_compiled = True
        if job.loads and not job.is_loaded and not came:
            self._waiting.insert(0, job)  # requested again while it was almost done
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
        """Compile and build a kernel: "" on success, the error, or None if nobody waits any more."""
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
                    pass  # building the kernel then compiles it here, and reports any error
            if job.loads and not (job.is_dropped or _is_over()):
                listing.build(job.kernel, job.device)
                job.is_loaded = True
        except Abandoned:
            return None
        except BaseException as error:  # compilers raise anything, and nobody else would see it
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
