"""Choose the candidates of a problem to measure: at least one of each algorithm, and others at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

# A candidate whose physical minimum is this many times the best known time teaches a predictor nothing beyond physics.
SLOWER = 5.0
# One in this many candidates may be a chain of rewrites around another problem's.
_FOR_A_REWRITE = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """A candidate to measure. ``broken`` is the error if it was not compiled. ``first`` candidates represent their
    algorithms and are measured however slow they are."""

    candidate: Candidate
    fingerprint: str
    first: bool
    broken: str | None = None


def is_hopeless(candidate: Candidate, device: DeviceFacts, best_us: float) -> bool:
    """Whether a candidate's physical minimum is several times the best time."""
    return (least_us(candidate, device) or 0.0) > SLOWER * best_us


def worth_measuring(
    problem: Problem, device: DeviceFacts, policy: Policy, *, most: int, random: Random
) -> list[Listed]:
    """At most ``most`` candidates: PyTorch's own call, then those expected to be fast.

    Half are the best of the most promising algorithms. The rest is random: alternately one of the other algorithms, and
    one of all other candidates, since configurations differ as much as algorithms do.
    """
    direct = _allowed(listing.candidates(listing.direct(problem, device, policy)), policy)
    chains = _chains(problem, device, policy, max(1, most // _FOR_A_REWRITE), random)
    best_us = _least_expected_us(direct, device)
    first, others = list[Candidate](), list[Candidate]()
    known = set[str]()
    for candidate in by_promise(direct, device):
        (others if candidate.family in known else first).append(candidate)
        known.add(candidate.family)
    others = [each for each in (*others, *chains) if best_us is None or not is_hopeless(each, device, best_us)]
    own, rest = [each for each in first if is_torch(each)], [each for each in first if not is_torch(each)]
    likely, unlikely = rest[: most // 2], rest[most // 2 :]
    random.shuffle(unlikely)
    chosen = [*own, *likely, *_in_turn(unlikely, _mixed(others, random))][: max(most, len(own))]
    chosen.sort(key=lambda each: (not is_torch(each) or each.inner is not None, _expected_us(each, device) or 0.0))
    return [Listed(each, listing.fingerprint(each, device), each in first) for each in chosen]


def _mixed(listed: Sequence[Candidate], random: Random) -> list[Candidate]:
    """In random order, alternating between our kernels and others: libraries have more candidates, and each is less
    informative."""
    kernels, others = ([each for each in listed if each.leaf.compiles is compiles] for compiles in (True, False))
    random.shuffle(kernels)
    random.shuffle(others)
    return _in_turn(kernels, others)


def _chains(problem: Problem, device: DeviceFacts, policy: Policy, most: int, random: Random) -> list[Candidate]:
    """Some chains of rewrites around candidates of a few inner problems; listing all would take several times as long
    as the rest."""
    inner = listing.inner_problems(problem, device)
    some = set(random.sample(inner, min(most, len(inner))))

    def promising(problem: Problem) -> Sequence[Candidate]:
        if problem not in some:
            return ()
        return listing.first_of_each(listing.candidates(listing.direct(problem, device, policy)), policy)

    return _allowed(listing.candidates(listing.rewritten(problem, device, policy, promising)), policy)


def _in_turn(some: Iterable[Candidate], others: Iterable[Candidate]) -> list[Candidate]:
    return [each for pair in zip_longest(some, others) for each in pair if each is not None]


def _allowed(listed: Sequence[Candidate], policy: Policy) -> list[Candidate]:
    return [each for each in listed if is_torch(each) or listing.objection(each, policy) is None]


def _least_expected_us(listed: Sequence[Candidate], device: DeviceFacts) -> float | None:
    """The least of the backends' estimates; None if there are none."""
    predictions = (ESTIMATES.predict(candidate, device) for candidate in listed)
    return min((each.time_us.value for each in predictions if each is not None), default=None)


def _expected_us(candidate: Candidate, device: DeviceFacts) -> float | None:
    prediction = ESTIMATES.predict(candidate, device)
    return least_us(candidate, device) if prediction is None else prediction.time_us.value
