"""Compiling for a long search before anything is timed, several kernels at once: those of the problem itself and of the
problems inside rewrites, which would otherwise each wait for a compiler in the midst of a search of its own. Meanwhile
the search looks at what need not be compiled.

What is compiled once can be built again in a millisecond.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import zip_longest
from operator import itemgetter
from queue import Empty, SimpleQueue
from threading import Event, Lock
from time import perf_counter

from convwright.backends.registry import backend
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.tuning import listing
from convwright.tuning.chains import chains
from convwright.tuning.compiling import pool
from convwright.tuning.compiling.compilers import elsewhere, load
from convwright.tuning.prediction import by_promise
from convwright.tuning.search import Search

# Shares of the budget within which a kernel may be begun, has to have ended, and the first of all; the least that has
# time for several. What waits for a compiler comes behind all others, so that waiting takes no time from these.
_SHARE, _WAITED, _WAITED_FOR_ONE = 0.3, 0.45, 0.65
_LONG_US = 1e6
# So many of the problem's own come between one of each problem inside a rewrite and the next of each; and so many of
# one of those.
_OWN, _MOST_INSIDE = 2, 8
NO_TIME = "was not compiled: others promised more"
_TOO_LATE = "was not compiled in time"
# A kernel, and what its compiler died of or None; an error; or that a thread has nothing more to do.
_Ended = tuple[Candidate, str | None] | BaseException | None


class Ahead:
    """Kernels that are compiled, as many at once as may be, while a search looks at what need not be.

    None is begun behind a share of its budget; what is asked for before it has ended is waited for up to another, and
    longer as long as not one is there: a search of two seconds in a new process had none of its kernels, whose
    compilers had been started with it.
    """

    def __init__(self, kernels: Iterable[Candidate], search: Search) -> None:
        self._search = search
        self._waiting, self._taking, self._is_late = deque(kernels), Lock(), Event()
        self._begun: list[Candidate] = []
        self._ended = SimpleQueue[_Ended]()
        self._came: dict[Candidate, str | None] = {}  # of each that has ended what its compiler died of, or None
        self._count, self._working = len(self._waiting), 0
        self._until_s, self._one_until_s = (_moment_s(search, share) for share in (_WAITED, _WAITED_FOR_ONE))

    def begin(self) -> None:
        """Have them compiled in threads of their own, of which each asks a process."""
        self._working = pool.begun(self._work, min(pool.MOST_AT_ONCE, self._count))

    def end(self) -> None:
        """Begin no more. What is at it is compiled to its end, for a later search."""
        self._is_late.set()

    def is_built(self, candidate: Candidate, device: DeviceFacts) -> bool:
        while self._hear(wait=False):
            pass
        return self._came.get(candidate.leaf, "") is None

    def reason_to_wait(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        leaf = candidate.leaf
        while leaf not in self._came and self._may_come(leaf) and self._hear(wait=True):
            self._search.progress("compiling", len(self._came), self._count)
        return self._came.get(leaf, _TOO_LATE if leaf in self._begun else NO_TIME)

    def _may_come(self, leaf: Candidate) -> bool:
        with self._taking:
            return leaf in self._begun or (leaf in self._waiting and self._may_begin())

    def _may_begin(self) -> bool:
        return not self._is_late.is_set() and self._search.budget.has(1 - _SHARE)

    def _hear(self, *, wait: bool) -> bool:
        """One of those that have ended, if there is one, or within the time that there is to wait."""
        if not self._working:
            return False
        until_s = self._until_s if None in self._came.values() else self._one_until_s
        left_s = max(until_s - perf_counter(), 0.0) if wait else 0.0
        try:
            each = self._ended.get(block=left_s > 0, timeout=left_s or None)
        except Empty:
            return False
        if isinstance(each, BaseException):
            raise each
        if each is None:
            self._working -= 1
        else:
            self._came[each[0]] = each[1]
        return True

    def _work(self) -> None:
        search = self._search
        try:
            while self._may_begin():
                with self._taking:
                    if not self._waiting:
                        break
                    leaf = self._waiting.popleft()
                    self._begun.append(leaf)
                died = pool.shared_compilers().compile(leaf, search.device)
                if died is None and not (search.isolate or self._is_late.is_set() or pool.is_over()):
                    with suppress(Exception):  # compilers have no common one, and the look that follows says it again
                        listing.build(leaf, search.device)
                self._ended.put((leaf, died))
        except BaseException as error:
            self._ended.put(error)
        self._ended.put(None)


def _moment_s(search: Search, share: float) -> float:
    """When this share of a budget will have been spent."""
    left_us = search.budget.left_us - (1 - share) * search.budget.total_us
    return perf_counter() + max(left_us, 0.0) / 1e6


def is_long(search: Search) -> bool:
    """Whether there is time to compile several kernels before a search."""
    return search.budget.total_us >= _LONG_US


@contextmanager
def compiling_ahead(search: Search, direct: Iterable[Candidate], most_chains: int | None) -> Iterator[Ahead]:
    """Inside, what promises most of the problem's ``direct`` candidates and of problems inside rewrites is compiled, by
    turns.

    What cannot be compiled is counted in: building it fails soon, and says why.
    """
    kernels = worth_compiling(search, direct, most_chains)
    with pool.told_of_interrupts():
        if kernels:
            with search.budget.paused():  # what is loaded is no cost of this problem
                for name in {kernel.leaf.backend for kernel in kernels}:
                    load(name)
                pool.shared_compilers().start(min(len(kernels), pool.MOST_AT_ONCE))
        ahead = Ahead(kernels, search)
        ahead.begin()
        try:
            yield ahead
        finally:
            ahead.end()


def worth_compiling(search: Search, direct: Iterable[Candidate], most_chains: int | None = None) -> list[Candidate]:
    """What a search has compiled as long as there is time, in that order."""
    return list(dict.fromkeys(_by_turns(search, direct, most_chains)))


def worth_waiting_for(
    search: Search, direct: Sequence[Candidate], most_chains: int | None, *, afresh: bool
) -> list[Candidate]:
    """What a search that has no time for a compiler has compiled ahead of it: where it is made ``afresh``, what was
    fastest before; then what promises most of the problem's own, or of problems inside rewrites where it has none."""
    own = promising(search, direct) or worth_compiling(search, direct, most_chains)
    return list(dict.fromkeys([*(_fastest_before(search, direct) if afresh else ()), *own]))


def _fastest_before(search: Search, direct: Sequence[Candidate]) -> list[Candidate]:
    """The kernels that the store has times of, the fastest first."""
    recall = search.recall()
    found = recall.known([*direct, *recall.beyond(direct)]).values()
    timed = [(each.measurement.device_us.value, each.candidate.leaf) for each in found if each.measurement is not None]
    return [leaf for _, leaf in sorted(timed, key=itemgetter(0)) if leaf.compiles and elsewhere(leaf)]


def _by_turns(search: Search, direct: Iterable[Candidate], most_chains: int | None) -> Iterator[Candidate]:
    """The first few of the problem itself and one of each inside, then the next few and the next of each, …

    By those for parts of a batch nothing is gained but workspace, of which they hardly need any.
    """
    own = promising(search, direct)
    inner = [chain.inner for chain in chains(search.problem, search.device)[0][:most_chains] if not chain.splits]
    inside = [_inside(search, each, own)[:_MOST_INSIDE] for each in inner]
    queues = [*(own[place::_OWN] for place in range(_OWN)), *inside]
    return (candidate for turn in zip_longest(*queues) for candidate in turn if candidate is not None)


def _inside(search: Search, inner: Problem, own: Sequence[Candidate]) -> list[Candidate]:
    """What promises most of a problem inside a rewrite; where that gains little, of other algorithms than the
    problem's own, for which no library is asked."""
    within = replace(search, problem=inner)
    if not _gains_little(inner, search.problem, own):
        return promising(within, listing.candidates(search.offers(inner)))
    known, families = {kernel.algorithm for kernel in own}, {kernel.backend: None for kernel in own}
    members = [backend(name, inner.kind) for name in families]
    offers = [offer for member in members for offer in member.candidates(inner, search.device, search.policy)]
    return [kernel for kernel in promising(within, listing.candidates(offers)) if kernel.algorithm not in known]


def _gains_little(inner: Problem, problem: Problem, own: Sequence[Candidate]) -> bool:
    """Where kernels compute the problem itself with its epilogue and channels last: the same kernels with less of it,
    or in planes."""
    if not (isinstance(problem, ConvProblem) and isinstance(inner, ConvProblem)):
        return False
    in_planes = problem.x.layout is Layout.NHWC and inner.x.layout is Layout.NCHW
    return bool(own) and (in_planes or inner.epilogue != problem.epilogue)


def promising(search: Search, listed: Iterable[Candidate]) -> list[Candidate]:
    """What has to be compiled, is allowed and did not fail before, the most promising first."""
    kernels = [c for c in listed if c.compiles and elsewhere(c) and listing.objection(c, search.policy) is None]
    if not kernels:
        return []
    known = search.recall().known(kernels)
    failed = {id_ for id_, finding in known.items() if finding.failure is not None}
    return by_promise([kernel for kernel in kernels if kernel.id not in failed], search.device)
