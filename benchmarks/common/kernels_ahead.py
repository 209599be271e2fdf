"""Kernels compiled for many problems at once, ahead of their searches, in processes beside the one that searches.

A search of a second has time to begin eight kernels; what was compiled before is found again on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.compile_queue import Priority, compile_queue
from convwright.tuning.kernels import worth_compiling
from convwright.tuning.search import Search, resolved


def compile_kernels(kernels: Sequence[Candidate], device: DeviceFacts) -> None:
    """All of them, as many at once as there are processors."""
    queue = compile_queue()
    queue.want(kernels, device, Priority.NEXT, loads=False)
    queue.wait(lambda: all(queue.came(kernel, device) is not None for kernel in kernels), inf)


def kernels_of(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> list[Candidate]:
    """What a search of ``problem`` has compiled, the first first."""
    known = resolved(policy, problem, device)
    search = Search(problem, device, known, Mode.FULL, Store.open(None), Budget(1e6))
    return worth_compiling(search, listing.candidates(listing.direct(problem, device, known)))
