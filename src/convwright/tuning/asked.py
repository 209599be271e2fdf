"""Look up a candidate by name."""

from __future__ import annotations

from dataclasses import replace
from re import fullmatch
from sys import maxsize

from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput, Refused
from convwright.rewrites import REWRITES
from convwright.tuning import listing
from convwright.tuning.search import baseline_of, resolved

# Names of arithmetics in algorithm names; "acc16" is short for summing fp16 in fp16.
_ARITHMETICS = {"acc16", *Arithmetic}
# At most so many configurations are listed in a message.
_SHOWN = 6


def permitted(algorithm: str, problem: Problem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The candidate called ``algorithm``, if ``policy`` allows it. What the policy leaves open forbids nothing."""
    is_limited = policy.max_workspace_bytes is not None
    asked = policy if is_limited else replace(policy, max_workspace_bytes=maxsize)
    candidate = known = named(algorithm, problem, device, resolved(asked, problem, device))
    if is_limited and candidate.workspace_bytes is None:
        known = replace(candidate, workspace_bytes=listing.build(candidate, device).workspace_bytes)
    if (reason := listing.objection(known, asked)) is None:
        return candidate
    raise Refused(f"the policy forbids {candidate.id}, which {reason}: change the policy, or name another algorithm")


def named(algorithm: str, problem: Problem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The candidate with the id ``algorithm``; else the first one whose id without its configuration matches; else the
    first in another arithmetic: triton/implicit-gemm computes fp32 as triton/implicit-gemm-3xtf32. If several match,
    the first that ``policy`` allows."""
    algorithm = listing.spaced(algorithm)
    if "(" in algorithm:
        return _rewritten(algorithm, problem, device, policy)
    algorithm = listing.spelled(algorithm, problem)
    offers = listing.of_family(algorithm, problem, device, policy)
    candidates = listing.candidates(offers)
    exact = [c for c in candidates if c.id == algorithm]
    family = [c for c in candidates if c.family == algorithm]
    kinds = [c for c in candidates if "[" not in algorithm and _is_kind_of(c.id, algorithm)]
    if matching := exact or family or kinds:
        first = baseline_of([] if exact else family, policy) or matching[0]
        return next((c for c in [first, *matching] if listing.objection(c, policy) is None), first)
    refused = listing.refusals(offers)
    about = [refusal for refusal in refused if _is_about(refusal, algorithm)]
    about.sort(key=lambda refusal: refusal.id != algorithm)  # an exact match first
    for refusal in about or [refusal for refusal in refused if _is_kind_of(refusal.id, algorithm)]:
        raise Refused(f"{algorithm} cannot compute {problem.key}: {refusal.reason}")
    if (reason := _reason_if_absent(algorithm, problem, device, policy)) is not None:
        raise Refused(f"{algorithm} cannot compute {problem.key}: {reason}")
    if configurations := _configurations(algorithm, candidates):
        raise BadInput(f"{algorithm!r} is not a configuration here; for this problem there are {configurations}")
    raise unknown(algorithm, problem, device, policy)


def unknown(algorithm: str, problem: Problem, device: DeviceFacts, policy: Policy) -> BadInput:
    """The error for an unknown name."""
    there = listing.names(listing.candidates(listing.direct(problem, device, policy)))
    return BadInput(f"no algorithm here is called {algorithm!r}; for this problem there are {there}")


def _configurations(algorithm: str, candidates: list[Candidate]) -> str:
    """The configurations that this algorithm does have, as text; empty if none."""
    name, configured, _ = algorithm.partition("[")
    others = [candidate.id for candidate in candidates if configured and candidate.family == name]
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return ", ".join(others[:_SHOWN]) + more


def _is_kind_of(offered: str, asked: str) -> bool:
    """Whether an id names the requested algorithm, possibly with an arithmetic in its name.

    >>> _is_kind_of("triton/gemm-3xtf32-packed[bm=64]", "triton/gemm"), _is_kind_of("cudnn/fft-tiling", "cudnn/fft")
    (True, False)
    """
    name = offered.partition("[")[0]
    arithmetic = name.removeprefix(f"{asked.partition('[')[0]}-").removesuffix("-packed")
    return arithmetic != name.removesuffix("-packed") and arithmetic in _ARITHMETICS


def is_called(offered: str, asked: str) -> bool:
    """Whether an id names the requested algorithm in any configuration and arithmetic."""
    return offered.partition("[")[0] == asked.partition("[")[0] or _is_kind_of(offered, asked)


def _is_about(offer: Offer, algorithm: str) -> bool:
    """Whether an offer is the named one or one of its configurations, or refuses a group that contains it."""
    refused = isinstance(offer, Refusal) and offer.id == algorithm.partition("[")[0]
    return refused or algorithm in (offer.id, offer.id.partition("[")[0])


def _rewritten(algorithm: str, problem: Problem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The outermost rewrite in a name, applied to the candidate that the rest names for the inner problem."""
    name = algorithm.partition("(")[0]
    written = {each.name: each.written for each in REWRITES if each.kind == problem.kind}
    if name not in written:
        raise BadInput(f"no rewrite is called {name!r}; there are {', '.join(sorted(written))}")
    for step, inner in listing.inside(algorithm, problem, device):
        try:
            return step.rewrite.wrap(problem, step.arguments, named(inner, step.inner, device, policy))
        except Refused as refused:
            raise Refused(f"{algorithm} cannot compute {problem.key}: inside it, {refused}") from None
        except BadInput as error:
            raise BadInput(f"inside {algorithm.removesuffix(f'{inner})')}…): {error}") from None
    forms, refusals = listing.forms(name, problem, device)
    for refusal in refusals:
        if algorithm.startswith((f"{refusal.id}(", f"{refusal.id.removesuffix(')')}, ")):
            raise Refused(f"{algorithm} cannot compute {problem.key}: {refusal.reason}")
    here = f"{name} has no such form; its forms here are {', '.join(forms)}"
    if not fullmatch(rf"{name}\({written[name]}[^ ].*\)", algorithm):
        raise BadInput(f"no algorithm here is called {algorithm!r}: {here}")
    raise Refused(f"{algorithm} cannot compute {problem.key}: {here}")


def _reason_if_absent(algorithm: str, problem: Problem, device: DeviceFacts, policy: Policy) -> str | None:
    """Why an algorithm of another direction cannot serve; None if no direction has an algorithm of that name."""
    if not isinstance(problem, ConvProblem) or problem.dtype.narrow:
        return None  # these kinds have only one direction
    if any(spec.overlaps_itself for spec in (problem.x, problem.w)):
        problem = problem.in_layout(Layout.NCHW)  # an overlapping tensor cannot be an output
    there: dict[Direction, Offer] = {}
    for direction in (each for each in Direction if each is not problem.direction):
        for offer in listing.of_family(algorithm, problem.asking(direction), device, policy):
            if _is_about(offer, algorithm) or _is_kind_of(offer.id, algorithm):
                there.setdefault(direction, offer)
    for direction, offer in there.items():
        computes = f"computes {direction}, not {problem.direction}"
        if isinstance(offer, Candidate):
            return computes
        if len(there) == 1:
            return f"{computes}, and refuses that as well: {offer.reason}"
    return next((offer.reason for offer in there.values() if isinstance(offer, Refusal)), None)
