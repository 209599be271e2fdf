"""Kernels compiled for many problems at once, ahead of their searches, in processes beside the one that searches.

A search of a second has time to begin eight kernels; what was compiled before is found again on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.disturbances.background import processors
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.compiling.ahead import worth_compiling
from convwright.tuning.compiling.compilers import Compilers
from convwright.tuning.keeping.store import Store
from convwright.tuning.search import Search, resolved

# What searches and times has cores of its own.
_LEFT_FREE, _NICENESS = 4, 5


def compile_kernels(kernels: Sequence[Candidate], device: DeviceFacts, compilers: Compilers) -> None:
    """All of them, as many at once as there are processors."""
    with ThreadPoolExecutor(max(len(kernels), 1)) as threads:
        list(threads.map(lambda kernel: compilers.compile(kernel, device), kernels))


def kernels_of(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> list[Candidate]:
    """What a search of ``problem`` has compiled, the first first."""
    known = resolved(policy, problem, device)
    search = Search(problem, device, known, Mode.FULL, Store.open(None), Budget(1e6))
    return worth_compiling(search, listing.candidates(listing.direct(problem, device, known)))


def compilers() -> Compilers:
    return Compilers(max(processors() - _LEFT_FREE, 1), niceness=_NICENESS)
