"""List every way to compute a problem: each backend's offers, and rewrites around the most promising."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import cast

from convwright.backends import registry
from convwright.backends.registry import backend, backends
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.kinds.problem import Problem
from convwright.core.plan import (
    Backend,
    Brief,
    Configurable,
    FingerprintsCandidates,
    OnlyHere,
    Overwrites,
    Packs,
    Plan,
    Selective,
)
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.rewrites.rewrite import wrap_plan
from convwright.tuning.chains import Chain, Step, chains, steps

# These backends use weights as they are or reorder them; oneDNN packs them into a format of its own.
_PACKS_NOTHING, _PACKS = ("torch", "cudnn"), ("onednn",)

Promising = Callable[[Problem], Sequence[Candidate]]
Against = Callable[[Chain], str | None]


def direct(problem: Problem, device: DeviceFacts, policy: Policy) -> list[Offer]:
    """What the backends offer and refuse, in the registry's order."""
    return [offer for member in backends(problem.kind) for offer in member.candidates(problem, device, policy)]


def briefly(problem: Problem, device: DeviceFacts, policy: Policy) -> list[Offer]:
    """The same, but only the most promising of backends that would take long to list all."""
    return [
        offer
        for member in backends(problem.kind)
        for offer in (member.briefly if isinstance(member, Brief) else member.candidates)(problem, device, policy)
    ]


def tiny(device: DeviceFacts) -> ConvProblem:
    """A tiny problem that every backend supports, for one-time setup."""
    return ConvProblem.of((1, 8, 8, 8), (8, 8, 3, 3), layout="nhwc", dtype="fp16" if device.kind == "cuda" else "fp32")


@lru_cache
def load(device: DeviceFacts) -> None:
    """Import what backends need to list candidates, so that the first problem is not charged for it."""
    direct(tiny(device), device, Policy())


def of_family(algorithm: str, problem: Problem, device: DeviceFacts, policy: Policy) -> list[Offer]:
    """Offers that may be called ``algorithm``: of one backend, or of rewrites around any."""
    if "(" in algorithm:
        exact = with_id(algorithm, problem, device, policy)
        return [exact] if exact is not None else rewritten(problem, device, policy)
    member = _backend_of(algorithm, problem)
    if member is None:
        return []
    offers = list(member.candidates(problem, device, policy))
    if isinstance(member, Configurable) and all(offer.id.partition("[")[0] != algorithm for offer in offers):
        configured = member.configured(algorithm, problem, device, policy)
        return [*offers, configured] if configured is not None and configured not in offers else offers
    return offers


def member_of(candidate: Candidate) -> Backend:
    """The backend of a candidate that is not a rewrite."""
    problem: Problem = candidate.problem
    return backend(candidate.backend, problem.kind)


def _backend_of(algorithm: str, problem: Problem) -> Backend | None:
    """The backend that a name begins with; None if there is none."""
    family = algorithm.partition("/")[0]
    return backend(family, problem.kind) if family in registry.names(problem.kind) else None


def spelled(algorithm: str, problem: Problem) -> str:
    """The canonical name of an algorithm, if its backend knows aliases."""
    member = _backend_of(algorithm, problem)
    return member.spelled(algorithm, problem) if isinstance(member, Configurable) else algorithm


def spaced(algorithm: str) -> str:
    """A name with the spaces of ids.

    >>> spaced("relayout(nhwc,pad-c( 4,  cudnn/engine-48[k2=1,k13=2] ))")
    'relayout(nhwc, pad-c(4, cudnn/engine-48[k2=1,k13=2]))'
    """
    bare = re.sub(r"\s+", "", algorithm)
    return re.sub(r",(?![^\[]*\])", ", ", bare)


def variants(candidate: Candidate, device: DeviceFacts, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
    """Configurations close to a candidate's, if its backend has more than it lists."""
    member = member_of(candidate) if candidate.inner is None else None
    return member.variants(candidate, device, goes_on) if isinstance(member, Configurable) else iter(())


def with_id(id_: str, problem: Problem, device: DeviceFacts, policy: Policy) -> Candidate | None:
    """The candidate with this id, including any rewrites around it; None if there is none."""
    if "(" not in id_:
        return next((c for c in candidates(_called(id_, problem, device, policy)) if c.id == id_), None)
    for step, inner_id in inside(id_, problem, device):
        inner = with_id(inner_id, step.inner, device, policy)
        if inner is not None:
            return step.rewrite.wrap(problem, step.arguments, inner)
    return None


def inside(id_: str, problem: Problem, device: DeviceFacts) -> Iterator[tuple[Step, str]]:
    """The outermost rewrite of an id applied to ``problem``, in each possible form, and the id inside it."""
    for step in steps(problem, device, (id_.partition("(")[0],)):
        if isinstance(step, Refusal):
            continue
        start = _start(step)
        if id_.startswith(start) and id_.endswith(")"):
            yield step, id_[len(start) : -1]


def forms(name: str, problem: Problem, device: DeviceFacts) -> tuple[list[str], list[Refusal]]:
    """The forms in which the rewrite ``name`` can wrap ``problem``, and refusals for the others."""
    found = list(steps(problem, device, (name,)))
    return [f"{_start(s)}…)" for s in found if isinstance(s, Step)], [s for s in found if isinstance(s, Refusal)]


def _start(step: Step) -> str:
    return f"{step.rewrite.name}(" + "".join(f"{value}, " for _, value in step.arguments)


def _called(id_: str, problem: Problem, device: DeviceFacts, policy: Policy) -> list[Offer]:
    """Offers that include the candidate with this id, if it exists; few others if a backend can tell."""
    member = _backend_of(id_, problem)
    if member is None:
        return []
    if isinstance(member, Selective):
        return list(member.called(id_, problem, device, policy))
    configured = member.configured(id_, problem, device, policy) if isinstance(member, Configurable) else None
    return list(member.candidates(problem, device, policy)) if configured is None else [configured]


def rewritten(
    problem: Problem,
    device: DeviceFacts,
    policy: Policy,
    promising: Promising | None = None,
    against: Against = lambda chain: None,
) -> list[Offer]:
    """Chains of one or two rewrites around the candidates that ``promising`` names for their inner problem. A chain
    with a reason ``against`` it is refused, and its inner problem is not listed.

    The default, when nothing was measured, is the first candidate of each backend.
    """
    promising = promising or (lambda inner: first_of_each(candidates(direct(inner, device, policy)), policy))
    possible, refused = chains(problem, device)
    found: list[Offer] = [*refused]
    for chain in possible:
        if reason := against(chain):
            found.append(Refusal("".join(map(_start, chain.steps)) + "…" + ")" * len(chain.steps), reason))
        else:
            found += [chain.wrap(candidate) for candidate in promising(chain.inner)]
    return found


def inner_problems(problem: Problem, device: DeviceFacts) -> list[Problem]:
    """The problems that chains of rewrites turn ``problem`` into."""
    return [chain.inner for chain in chains(problem, device)[0]]


def first_of_each(listed: Sequence[Candidate], policy: Policy) -> list[Candidate]:
    """For each backend, the first candidate that the policy allows."""
    allowed = [candidate for candidate in listed if objection(candidate, policy) is None]
    return list({candidate.backend: candidate for candidate in reversed(allowed)}.values())[::-1]


def build(candidate: Candidate, device: DeviceFacts) -> Plan:
    """Build a candidate, with its rewrites, into a plan."""
    return wrap_plan(candidate, lambda leaf: member_of(leaf).build(leaf, device))


def overwrites(candidate: Candidate) -> frozenset[str]:
    """The roles of operands that a candidate may overwrite with its output."""
    member = None if candidate.inner is not None else member_of(candidate)
    return member.overwrites(candidate) if isinstance(member, Overwrites) else frozenset()


def packed_bytes(candidate: Candidate) -> int | None:
    """The size of a candidate's packed weight, before it is built; None if its backend does not say, or if it reads no
    weight."""
    leaf, spec = candidate.leaf, candidate.leaf.problem.operands.get(Role.W)
    if spec is None:
        return None
    member = member_of(leaf)
    if isinstance(member, Packs):
        packed = member.packed_bytes(leaf)
        return spec.nbytes if packed is None else packed
    return int(spec.nbytes) if leaf.backend in _PACKS_NOTHING and leaf.algorithm not in _PACKS else None


def only_here(candidate: Candidate) -> str | None:
    """Why only this process can run a candidate; None if others can."""
    member = member_of(candidate.leaf)
    return member.only_here if isinstance(member, OnlyHere) else None


def fingerprints(device: DeviceFacts, kind: str = "conv") -> list[str]:
    """Fingerprints of all backends for a kind of problem. A changed one means other results are possible."""
    return [f"{member.name} ({member.fingerprint(device)})" for member in backends(kind)]


def fingerprint(candidate: Candidate, device: DeviceFacts) -> str:
    """The fingerprint that must match for a finding about this candidate to count."""
    member = member_of(candidate.leaf)
    if _fingerprints_candidates(type(member)):
        return cast(FingerprintsCandidates, member).fingerprint_of(candidate.leaf, device)
    return member.fingerprint(device)


@cache
def _fingerprints_candidates(backend_type: type) -> bool:
    """Whether a backend gives candidates their own fingerprints. Cached: looking for methods takes 10 µs."""
    return issubclass(backend_type, FingerprintsCandidates)


def names(listed: Iterable[Candidate]) -> str:
    """Candidate names without configurations, for the end of a sentence."""
    return ", ".join(sorted({candidate.family for candidate in listed})) or "none without a rewrite"


def candidates(offers: Iterable[Offer]) -> list[Candidate]:
    return [offer for offer in offers if isinstance(offer, Candidate)]


def refusals(offers: Iterable[Offer]) -> list[Refusal]:
    return [offer for offer in offers if isinstance(offer, Refusal)]


def spread(listed: Sequence[Candidate]) -> list[Candidate]:
    """The first of each backend, then the second of each, and so on: each lists its most promising first."""
    ranks: dict[str, int] = {}
    keyed = []
    for position, candidate in enumerate(listed):
        kind = f"{candidate.leaf.backend} {candidate.depth}"
        ranks[kind] = ranks.get(kind, -1) + 1
        keyed.append((ranks[kind], position, candidate))
    return [candidate for _, _, candidate in sorted(keyed, key=lambda entry: entry[:2])]


def objection(candidate: Candidate, policy: Policy) -> str | None:
    """Why ``policy`` forbids a candidate, judged before it runs; None if it allows it."""
    return policy.objection(
        workspace_bytes=candidate.workspace_bytes,
        arithmetic=candidate.arithmetic,
        deterministic=candidate.deterministic,
        workspace_is_bound=candidate.workspace_is_bound,
    )
