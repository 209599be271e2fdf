"""Compiling for a long search before anything is timed, several kernels at once: those of the problem itself and of the
problems inside rewrites, which would otherwise each wait for a compiler in the midst of a search of its own.

What is compiled once can be built again in a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from threading import Event

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.forking import in_child
from convwright.tuning import listing
from convwright.tuning.compiling.compilers import Compilers, elsewhere, load, processors
from convwright.tuning.prediction import by_promise
from convwright.tuning.search import Search

# The share of the budget within which a kernel may be begun, and the least budget that has time for several.
_SHARE = 0.25
_LONG_US = 1e6
_MOST_AT_ONCE = min(8, processors())
# So many of each problem inside a rewrite.
_MOST_INSIDE = 8
_NO_TIME = "was not compiled: others promised more"
_interrupted = Event()


def _renew() -> None:
    """In a child that was forked off while another thread was at it."""
    global _interrupted
    _interrupted = Event()
    _compilers.cache_clear()


in_child(_renew)


class Ahead:
    """What was compiled before a search, which leaves alone what was not."""

    def __init__(self, came: Mapping[Candidate, str | None]) -> None:
        self._came = came  # of each that was begun what its compiler died of, or None

    def is_built(self, candidate: Candidate, device: DeviceFacts) -> bool:
        return self._came.get(candidate.leaf, "") is None

    def reason_to_wait(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        return self._came.get(candidate.leaf, _NO_TIME)


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
    return Ahead(_compiled(kernels, search))


def worth_compiling(search: Search, direct: Iterable[Candidate], most_chains: int | None = None) -> list[Candidate]:
    """What a search has compiled as long as there is time, in that order."""
    return list(dict.fromkeys(_by_turns(search, direct, most_chains)))


@cache
def _compilers() -> Compilers:
    return Compilers(_MOST_AT_ONCE, is_over=_interrupted.is_set)


def _by_turns(search: Search, direct: Iterable[Candidate], most_chains: int | None) -> Iterator[Candidate]:
    """The first two of the problem itself and one of each inside, then the next two and the next of each, …"""
    own = _promising(search, direct)
    queues = [own[::2], own[1::2]]
    for inner in listing.inner_problems(search.problem, search.device)[:most_chains]:
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


def _compiled(leaves: list[Candidate], search: Search) -> dict[Candidate, str | None]:
    """What came of those that were begun, as they are only while there is time."""

    def begin(leaf: Candidate) -> None:
        if not search.budget.has(1 - _SHARE):
            return
        came[leaf] = _compilers().compile(leaf, search.device)
        if came[leaf] is None and not (search.isolate or _interrupted.is_set()):
            with suppress(Exception):  # compilers have no common one, and the look that follows says what was raised
                listing.build(leaf, search.device)

    came: dict[Candidate, str | None] = {}
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(leaves)), "convwright-ahead") as threads, _told_of_interrupts():
        try:
            for done, _ in enumerate(threads.map(begin, leaves), start=1):
                search.progress("compiling", done, len(leaves))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return came


@contextmanager
def _told_of_interrupts() -> Iterator[None]:
    """Nobody waits for a compiler any more behind an exception that is raised inside."""
    try:
        yield
    except BaseException:
        _interrupted.set()
        raise
