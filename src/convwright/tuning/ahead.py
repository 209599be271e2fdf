"""Compiling for a long search before anything is timed, several kernels at once: those of the problem itself and of the
problems inside rewrites, which would otherwise each wait for a compiler in the midst of a search of its own.

A compiler is outside of Python some of the time. On two cores two threads compiled eleven of Triton's kernels in 2.4 s,
where one took 5.1; on sixteen, eight threads compiled eight in 1.5 s, where one took 4.5. What is compiled once can be
built again in a millisecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.tuning import listing
from convwright.tuning.prediction import by_promise
from convwright.tuning.search import Search

# The share of the budget within which a kernel may be begun, and the least budget that has time for several.
_SHARE = 0.25
_LONG_US = 1e6
_MOST_AT_ONCE = 8


class Ahead:
    """What was compiled before a search. What was not is left alone by the searches of problems inside rewrites."""

    def __init__(self, leaves: Iterable[Candidate]) -> None:
        self._leaves = frozenset(leaves)

    def is_built(self, candidate: Candidate, device: DeviceFacts) -> bool:
        return candidate.leaf in self._leaves

    def reason_to_wait(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        return None if self.is_built(candidate, device) else "was not compiled: others promised more, for the time"


def is_long(search: Search) -> bool:
    """Whether there is time to compile several kernels before a search. What runs in another process is built there."""
    return not search.isolate and search.budget.total_us >= _LONG_US


def compile_ahead(search: Search, direct: Iterable[Candidate], most_chains: int | None) -> Ahead:
    """Compile what promises most of the problem's ``direct`` candidates and of problems inside rewrites, by turns.

    What cannot be compiled is counted in: building it fails soon, and says why.
    """
    leaves = list(dict.fromkeys(_by_turns(search, direct, most_chains)))
    if leaves:
        search.progress("compiling", 0, len(leaves))
    return Ahead(_compiled(leaves, search.device, lambda: search.budget.has(1 - _SHARE)))


def _by_turns(search: Search, direct: Iterable[Candidate], most_chains: int | None) -> Iterator[Candidate]:
    """The first of each problem, then the second of each, …"""
    queues = [_worth_compiling(search, direct)]
    for inner in listing.inner_problems(search.problem, search.device)[:most_chains]:
        listed = listing.candidates(listing.direct(inner, search.device, search.policy))
        queues.append(_worth_compiling(replace(search, problem=inner), listed))
    return (candidate for turn in zip_longest(*queues) for candidate in turn if candidate is not None)


def _worth_compiling(search: Search, listed: Iterable[Candidate]) -> list[Candidate]:
    """What has to be compiled, is allowed and did not fail before, the most promising first."""
    kernels = [c for c in listed if c.compiles and listing.objection(c, search.policy) is None]
    if not kernels:
        return []
    known = search.recall().known(kernels)
    failed = {id_ for id_, finding in known.items() if finding.failure is not None}
    return by_promise([kernel for kernel in kernels if kernel.id not in failed], search.device)


def _compiled(leaves: list[Candidate], device: DeviceFacts, goes_on: Callable[[], bool]) -> list[Candidate]:
    """Those that were compiled while it ``goes_on``; each is begun only then."""

    def is_compiled(leaf: Candidate) -> bool:
        if not goes_on():
            return False
        with suppress(Exception):  # compilers have no common one, and the look that follows says what this one raised
            listing.build(leaf, device)
        return True

    if not leaves:
        return []
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, os.cpu_count() or 1, len(leaves)), "convwright-ahead") as threads:
        return [leaf for leaf, compiled in zip(leaves, threads.map(is_compiled, leaves), strict=True) if compiled]
