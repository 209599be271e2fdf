"""The candidates of a problem that are worth measuring: of each algorithm at least one, and others at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.prediction.estimates import ESTIMATES
from convwright.prediction.physics import least_us
from convwright.tuning import listing
from convwright.tuning.choose import is_torch
from convwright.tuning.ranking import by_promise

# What needs, at the peak rates of the device, so many times as long as the best that is known, tells a predictor
# nothing that it does not know from physics.
SLOWER = 5.0
# So many times fewer than `most` are added at least whose algorithm has another candidate, or that are rewrites.
_OTHERS = 3


@dataclass(frozen=True, slots=True)
class Listed:
    """A candidate that is to be measured. ``broken`` says why it cannot be: it was not compiled. Of ``first`` ones each
    is the only one of its algorithm: they are measured however slow they are."""

    candidate: Candidate
    fingerprint: str
    first: bool
    broken: str | None = None


def is_hopeless(candidate: Candidate, device: DeviceFacts, best_us: float) -> bool:
    """Whether physics says that a candidate needs several times as long as the best one."""
    return (least_us(candidate, device) or 0.0) > SLOWER * best_us


def worth_measuring(
    problem: Problem, device: DeviceFacts, policy: Policy, *, most: int, random: Random
) -> list[Listed]:
    """About so many candidates: PyTorch's own call first, then what is expected to be fast.

    One of each algorithm is always among them, chains of rewrites aside. Where that leaves few places, some others are
    added all the same: configurations of an algorithm differ as much as algorithms do.
    """
    direct = _allowed(listing.candidates(listing.direct(problem, device, policy)), policy)
    chains = _allowed(listing.candidates(listing.rewritten(problem, device, policy)), policy)
    best_us = _least_expected_us(direct, device)
    first, others = list[Candidate](), list[Candidate]()
    known = set[str]()
    for candidate in by_promise(direct, device):
        (others if candidate.family in known else first).append(candidate)
        known.add(candidate.family)
    others = [each for each in (*others, *chains) if best_us is None or not is_hopeless(each, device, best_us)]
    chosen = [*first, *_mixed(others, random)[: max(most - len(first), most // _OTHERS)]]
    chosen.sort(key=lambda each: (not is_torch(each) or each.inner is not None, _expected_us(each, device) or 0.0))
    return [Listed(each, listing.fingerprint(each, device), each in first) for each in chosen]


def _mixed(listed: Sequence[Candidate], random: Random) -> list[Candidate]:
    """In random order, one of our own kernels and one of the others in turn: libraries have more candidates, and tell
    less of each."""
    kernels, others = ([each for each in listed if each.leaf.compiles is compiles] for compiles in (True, False))
    random.shuffle(kernels)
    random.shuffle(others)
    return [each for pair in zip_longest(kernels, others) for each in pair if each is not None]


def _allowed(listed: Sequence[Candidate], policy: Policy) -> list[Candidate]:
    return [each for each in listed if is_torch(each) or listing.objection(each, policy) is None]


def _least_expected_us(listed: Sequence[Candidate], device: DeviceFacts) -> float | None:
    """The least of the backends' estimates; None where there are none."""
    predictions = (ESTIMATES.predict(candidate, device) for candidate in listed)
    return min((each.time_us.value for each in predictions if each is not None), default=None)


def _expected_us(candidate: Candidate, device: DeviceFacts) -> float | None:
    prediction = ESTIMATES.predict(candidate, device)
    return least_us(candidate, device) if prediction is None else prediction.time_us.value
