"""What our own kernels offer for the GPU at hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from backends.triton_interpreted.cases import listed
from convwright.backends.triton.gemm.algorithms import algorithms_to_be_named
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem


def candidates(kernel: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that is offered by one that serves ``problem``: it refuses nothing but what a policy has to name."""
    offers, named = listed(kernel, problem, device), {each.id for each in algorithms_to_be_named(kernel, problem.dtype)}
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found, offers
    assert found == [offer for offer in offers if offer.id not in named], offers
    return found


def by_turns(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All combinations but of the last, each with one of those: every kernel has to be compiled."""
    *others, last = options
    return [(*each, last[place % len(last)]) for place, each in enumerate(product(*others))]
