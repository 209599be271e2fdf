"""Compiling beside the caller, since one kernel takes longer to compile than a quick search may take as a whole.

A search that a call is waiting for passes over what has still to be compiled, and has it compiled here, in threads and
processes of its own, once searches have been quiet for a while: what compiles disturbs what is timed. When everything
that a problem wanted is ready, it is said so, and the problem can be searched again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, sleep

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import first_line
from convwright.measuring.disturbances.background import processors
from convwright.shortage import is_shortage, shortage
from convwright.tuning import listing
from convwright.tuning.compiling.compilers import Compilers
from convwright.tuning.keeping.recall import magnitude, permission

# So many of a problem's candidates are compiled beside quick searches under one permission, the most promising ones.
_MOST = 4
# At once no more than a few of the machine's processors compile, and only while those have nothing else to do.
_AT_ONCE, _NICENESS = max(1, min(4, processors() // 4)), 10
_QUIET_S = 0.5
_POLL_S = 0.05
BEING_COMPILED = "is being compiled beside, and will be tried at a later call"
_NOT_COMPILED = f"was not compiled: {_MOST} others promised more"
_NO_THREAD = "was not compiled for want of a thread: "

# A candidate on a device, and what came of building it: None as long as nobody knows, a failure in words, or "".
Came = dict[Candidate, str | None]
Question = tuple[ConvProblem, str]


def is_for_now(reason: str) -> bool:
    """Whether what a candidate has to wait for may be there at a later call."""
    return reason == BEING_COMPILED or reason.startswith(_NO_THREAD)


class Beside:
    """What is compiled for whom. ``then`` is told of a problem when all that was wanted for it is ready."""

    def __init__(self, then: Callable[[ConvProblem], None], *, quiet_s: float = _QUIET_S) -> None:
        self._then, self._quiet_s = then, quiet_s
        self._came: dict[Question, Came] = {}
        self._wanted: dict[tuple[Question, str], int] = {}  # how many, by permission
        self._changing = threading.Lock()
        self._searches, self._searched_s = 0, 0.0
        self._waiting: deque[tuple[Candidate, DeviceFacts]] = deque()
        self._builders: set[threading.Thread] = set()
        self._compilers = Compilers(_AT_ONCE, niceness=_NICENESS, is_over=_is_over)

    def under(self, policy: Policy) -> Under:
        """What a search with this policy is told, which has its own few compiled: others may not be allowed by it."""
        return Under(self, permission(policy, magnitude(policy.max_workspace_bytes or 0)))

    def is_built(self, candidate: Candidate, device: DeviceFacts) -> bool:
        """Whether a candidate can be built in no time, since it was compiled here."""
        return self._of(candidate.problem, device).get(candidate) == ""

    def reason_to_wait(self, candidate: Candidate, device: DeviceFacts, permitted: str) -> str | None:
        """Why a candidate is not to be built now, or None where it is compiled, for whomever; of the first few that are
        asked for under a permission it soon will be."""
        question = _question(candidate.problem, device)
        with self._changing:
            came = self._came.setdefault(question, {})
            if candidate in came:
                known = came[candidate]
                return BEING_COMPILED if known is None else known or None
            wanted = self._wanted.get((question, permitted), 0)
            if wanted >= _MOST:
                return _NOT_COMPILED
            self._builders = {builder for builder in self._builders if builder.is_alive()}
            if len(self._builders) < _AT_ONCE:
                # Not a daemon: one that is inside of a compiler when the interpreter ends takes the process with it.
                builder = threading.Thread(target=self._build_all, name="convwright-beside", daemon=False)
                try:
                    builder.start()
                except RuntimeError as error:
                    return f"{_NO_THREAD}{error}"
                self._builders.add(builder)
            self._wanted[question, permitted] = wanted + 1
            came[candidate] = None
            self._waiting.append((candidate, device))
        return BEING_COMPILED

    def is_waited_for(self, problem: ConvProblem, device: DeviceFacts) -> bool:
        """Whether something is still to be compiled for a problem."""
        return self._missing(problem, device) > 0

    def unfinished(self) -> list[ConvProblem]:
        """The problems for which something is still to be compiled."""
        return [problem for (problem, _), came in list(self._came.items()) if None in came.values()]

    def wait_for(self, problem: ConvProblem, device: DeviceFacts, patience_s: float) -> bool:
        """Wait until all that was wanted for a problem is ready, ahead of what others wait for, or for so long; whether
        more is ready then."""
        question, until_s = _question(problem, device), perf_counter() + patience_s
        with self._changing:
            waiting = sorted(self._waiting, key=lambda each: _question(each[0].problem, each[1]) != question)
            self._waiting = deque(waiting)
        before = self._missing(problem, device)
        while (left := self._missing(problem, device)) and perf_counter() < until_s and not _is_over():
            sleep(_POLL_S)
        return left < before

    def wait(self) -> None:
        """Until nothing is being compiled any more."""
        for builder in list(self._builders):
            builder.join()

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Inside, and for a while afterwards, nothing new is compiled."""
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1
            self._searched_s = perf_counter()

    def _missing(self, problem: ConvProblem, device: DeviceFacts) -> int:
        return list(self._of(problem, device).values()).count(None)

    def _of(self, problem: ConvProblem, device: DeviceFacts) -> Came:
        return self._came.get(_question(problem, device), {})

    def _build_all(self) -> None:
        """Until nothing waits any more, or the process has ended but for this thread."""
        while not _is_over():
            if self._searches or perf_counter() < self._searched_s + self._quiet_s:
                sleep(_POLL_S)
                continue
            with self._changing:
                if not self._waiting:
                    self._builders.discard(threading.current_thread())
                    return
                candidate, device = self._waiting.popleft()
            self._build(candidate, device)

    def _build(self, candidate: Candidate, device: DeviceFacts) -> None:
        try:
            died = self._compilers.compile(candidate.leaf, device)
            if _is_over():
                return
            if died is None:
                listing.build(candidate, device)
            end = "" if died is None else f"failed: {died}"
        except BaseException as error:  # compilers have no common one, and nobody else is there to hear of it
            end = shortage(error) if is_shortage(error) else f"failed: {first_line(error)}"
        came = self._of(candidate.problem, device)
        with self._changing:
            came[candidate] = end
            is_last = None not in came.values()
        if is_last:
            self._then(candidate.problem)


@dataclass(frozen=True, slots=True)
class Under:
    """What is compiled, for searches under one permission."""

    beside: Beside
    permitted: str

    def is_built(self, candidate: Candidate, device: DeviceFacts) -> bool:
        return self.beside.is_built(candidate, device)

    def reason_to_wait(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        return self.beside.reason_to_wait(candidate, device, self.permitted)


def _is_over() -> bool:
    return not threading.main_thread().is_alive()


def _question(problem: ConvProblem, device: DeviceFacts) -> Question:
    return problem, str(device.torch_name)
