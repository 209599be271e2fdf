"""The candidate that was asked for by name."""

from __future__ import annotations

from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, Refused
from convwright.rewrites import REWRITES
from convwright.tuning import listing
from convwright.tuning.search import baseline_of


def named(algorithm: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The candidate whose id is ``algorithm``, or the first whose id without its configuration is."""
    algorithm = listing.spelled(algorithm, problem)
    offers = listing.of_family(algorithm, problem, device, policy)
    candidates = listing.candidates(offers)
    exact = [c for c in candidates if c.id == algorithm]
    family = [c for c in candidates if c.id.partition("[")[0] == algorithm]
    if exact or family:
        own = baseline_of(family, policy)
        return exact[0] if exact else own or family[0]
    for refusal in listing.refusals(offers):
        if _is_of(algorithm, refusal.id):
            raise Refused(f"{algorithm} cannot compute {problem.key}: {refusal.reason}")
    if (reason := _reason_elsewhere(algorithm, problem, device, policy)) is not None:
        raise Refused(f"{algorithm} cannot compute {problem.key}: {reason}")
    raise BadInput(_unknown(algorithm, problem, device, policy))


def _unknown(algorithm: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> str:
    """Which part of a name stands for nothing, and what stands there for this problem."""
    name, around, _ = algorithm.partition("(")
    if not around:
        everything = listing.candidates(listing.direct(problem, device, policy))
        return f"no algorithm here is called {algorithm!r}; for this problem there are {listing.names(everything)}"
    if name not in (each.name for each in REWRITES):
        return f"no rewrite is called {name!r}; there are {', '.join(sorted(each.name for each in REWRITES))}"
    inside = next(listing.inside(algorithm, problem, device), None)
    if inside is None:
        forms = ", ".join(listing.forms(name, problem, device))
        return f"{algorithm!r} is none of the forms of {name}; for this problem there are {forms}"
    step, inner = inside
    return _unknown(inner, step.inner, device, policy)


def _reason_elsewhere(algorithm: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> str | None:
    """Why an algorithm of another direction cannot serve; None where no direction has one of that name."""
    if "(" in algorithm or problem.dtype.narrow:
        return None  # rewrites are asked about in any direction, and narrow dtypes have but one
    for direction in (each for each in Direction if each is not problem.direction):
        for offer in listing.of_family(algorithm, problem.asking(direction), device, policy):
            if _is_of(algorithm, offer.id):
                return offer.reason if isinstance(offer, Refusal) else f"computes {direction}, not {problem.direction}"
    return None


def _is_of(algorithm: str, refused: str) -> bool:
    """Whether ``refused`` is the algorithm, its family, or a rewrite that stands first in it.

    >>> _is_of("cudnn/gemm", "cudnn/gemm[math=tf32]"), _is_of("relayout(nhwc, torch/default)", "relayout(nhwc)")
    (True, True)
    """
    family = refused.partition("[")[0]
    return algorithm in (refused, family) or algorithm.startswith((f"{family}(", f"{refused.removesuffix(')')}, "))
