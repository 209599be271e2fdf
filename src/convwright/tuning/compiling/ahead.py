"""Compiling for a long search before anything is timed, several kernels at once: those of the problem itself and of the
problems inside rewrites, which would otherwise each wait for a compiler in the midst of a search of its own.

What is compiled once can be built again in a millisecond.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, main_thread
from time import perf_counter

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.forking import in_child
from convwright.tuning import listing
from convwright.tuning.compiling.compilers import Compilers, elsewhere, load, processors
from convwright.tuning.prediction import by_promise
from convwright.tuning.search import Search

# Shares of the budget within which a kernel may be begun, and has to have ended; the least that has time for several.
_SHARE, _WAITED = 0.25, 0.4
_LONG_US = 1e6
_MOST_AT_ONCE = min(8, processors())
# So many of the problem's own come between one of each problem inside a rewrite and the next of each; and so many of
# one of those.
_OWN, _MOST_INSIDE = 4, 8
_NO_TIME = "was not compiled: others promised more"
_TOO_LATE = "was not compiled in time"
_interrupted = Event()
# A kernel, and what its compiler died of or None; an error; or that a thread has nothing more to do.
_Ended = tuple[Candidate, str | None] | BaseException | None


def _renew() -> None:
    """In a child that was forked off while another thread was at it."""
    global _interrupted
    _interrupted = Event()
    _compilers.cache_clear()


in_child(_renew)


class Ahead:
    """What was compiled before a search, which leaves alone what was not, be it only too ``late``."""

    def __init__(self, came: Mapping[Candidate, str | None], late: Collection[Candidate] = ()) -> None:
        self._came = came  # of each that was begun and has ended what its compiler died of, or None
        self._late = late

    def is_built(self, candidate: Candidate, device: DeviceFacts) -> bool:
        return self._came.get(candidate.leaf, "") is None

    def reason_to_wait(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        return self._came.get(candidate.leaf, _TOO_LATE if candidate.leaf in self._late else _NO_TIME)


def is_long(search: Search) -> bool:
    """Whether there is time to compile several kernels before a search."""
    return search.budget.total_us >= _LONG_US


def compile_ahead(search: Search, direct: Iterable[Candidate], most_chains: int | None) -> Ahead:
    """Compile what promises most of the problem's ``direct`` candidates and of problems inside rewrites, by turns.

    What cannot be compiled is counted in: building it fails soon, and says why.
    """
    kernels = worth_compiling(search, direct, most_chains)
    if not kernels:
        return Ahead({})
    search.progress("compiling", 0, len(kernels))
    _interrupted.clear()
    with search.budget.paused(), _told_of_interrupts():  # what is loaded is no cost of this problem
        for name in {kernel.leaf.backend for kernel in kernels}:
            load(name)
        _compilers().start(len(kernels))
    return _compiled(kernels, search)


def worth_compiling(search: Search, direct: Iterable[Candidate], most_chains: int | None = None) -> list[Candidate]:
    """What a search has compiled as long as there is time, in that order."""
    return list(dict.fromkeys(_by_turns(search, direct, most_chains)))


@cache
def _compilers() -> Compilers:
    return Compilers(_MOST_AT_ONCE, is_over=_is_over)


def _is_over() -> bool:
    """Whether nobody waits for what is compiled."""
    return _interrupted.is_set() or not main_thread().is_alive()


def _by_turns(search: Search, direct: Iterable[Candidate], most_chains: int | None) -> Iterator[Candidate]:
    """The first few of the problem itself and one of each inside, then the next few and the next of each, …

    Where kernels compute the problem with its epilogue, nothing is gained by the same kernels with less of it.
    """
    own = _promising(search, direct)
    queues = [own[place::_OWN] for place in range(_OWN)]
    for inner in listing.inner_problems(search.problem, search.device)[:most_chains]:
        if own and inner.epilogue != search.problem.epilogue:
            continue
        listed = listing.candidates(listing.direct(inner, search.device, search.policy))
        queues.append(_promising(replace(search, problem=inner), listed)[:_MOST_INSIDE])
    return (candidate for turn in zip_longest(*queues) for candidate in turn if candidate is not None)


def _promising(search: Search, listed: Iterable[Candidate]) -> list[Candidate]:
    """What has to be compiled, is allowed and did not fail before, the most promising first."""
    kernels = [c for c in listed if c.compiles and elsewhere(c) and listing.objection(c, search.policy) is None]
    if not kernels:
        return []
    known = search.recall().known(kernels)
    failed = {id_ for id_, finding in known.items() if finding.failure is not None}
    return by_promise([kernel for kernel in kernels if kernel.id not in failed], search.device)


def _compiled(leaves: list[Candidate], search: Search) -> Ahead:
    """What came of those that were begun in time. Those that do not end in time are compiled to their end beside the
    search, which does not try them."""
    waiting, taking, ended, is_late = deque(leaves), Lock(), SimpleQueue[_Ended](), Event()
    begun: list[Candidate] = []
    left_us = search.budget.left_us - (1 - _WAITED) * search.budget.total_us
    until_s = perf_counter() + max(left_us, 0.0) / 1e6

    def work() -> None:
        try:
            while not is_late.is_set() and search.budget.has(1 - _SHARE):
                with taking:
                    if not waiting:
                        break
                    leaf = waiting.popleft()
                    begun.append(leaf)
                died = _compilers().compile(leaf, search.device)
                if died is None and not (search.isolate or is_late.is_set() or _is_over()):
                    with suppress(Exception):  # compilers have no common one, and the look that follows says it again
                        listing.build(leaf, search.device)
                ended.put((leaf, died))
        except BaseException as error:
            ended.put(error)
        ended.put(None)

    came: dict[Candidate, str | None] = {}
    try:
        with _told_of_interrupts():
            working = _begun(work, min(_MOST_AT_ONCE, len(leaves)))
            while working:
                try:
                    each = ended.get(timeout=max(until_s - perf_counter(), 0.0))
                except Empty:
                    break
                if isinstance(each, BaseException):
                    raise each
                if each is None:
                    working -= 1
                    continue
                came[each[0]] = each[1]
                search.progress("compiling", len(came), len(leaves))
    finally:
        is_late.set()
    return Ahead(came, late=[leaf for leaf in begun if leaf not in came])


def _begun(work: Callable[[], None], count: int) -> int:
    """How many threads could be had."""
    for begun in range(count):
        try:
            # Not a daemon: one that is inside of a compiler when the interpreter ends takes the process with it.
            Thread(target=work, name="convwright-ahead", daemon=False).start()
        except RuntimeError:
            return begun
    return count


@contextmanager
def _told_of_interrupts() -> Iterator[None]:
    """Nobody waits for a compiler any more behind an exception that is raised inside."""
    try:
        yield
    except BaseException:
        _interrupted.set()
        raise
