"""Findings and a policy → the winner, and for each other one the reason why it lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.error_rule import error_objection
from convwright.core.finding import Finding, Measurement
from convwright.core.policy import Objective, Policy, Weights

# A candidate must beat PyTorch's own call by more than a tie, or that call is what runs.
TIE = 0.02


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row's outcome. ``eager_us`` is what an eager call takes; ``reason`` is a sentence's end."""

    finding: Finding
    eager_us: float | None
    reason: str


def objection(finding: Finding, baseline: Finding | None, policy: Policy) -> str | None:
    """Why this finding may not be chosen, whatever its time."""
    candidate = finding.candidate
    if finding.failure is not None:
        return finding.failure
    if baseline is not None and is_torch(candidate) and candidate != baseline.candidate:
        return f"is PyTorch with its TF32 flag {dict(candidate.config)['tf32']}, which is not so at this call"
    allowed = policy.objection(
        workspace_bytes=finding.measurement.workspace_bytes if finding.measurement else candidate.workspace_bytes,
        arithmetic=candidate.arithmetic,
        deterministic=candidate.deterministic,
    )
    if allowed is not None:
        return allowed
    if finding.measurement is None:
        return finding.note or "was not measured"
    if finding is baseline or baseline is None or baseline.measurement is None:
        return None
    if not finding.measurement.errors:
        return "was timed, but its error was not looked at, since faster ones are right"
    return error_objection(finding.measurement.errors, baseline.measurement.errors, policy.max_error)


def choose(findings: Sequence[Finding], baseline: Finding | None, policy: Policy) -> tuple[Verdict, ...]:
    """All findings, the winner first, then by what an eager call takes; the disallowed last."""
    weights_change = policy.weights is Weights.CHANGING

    def cost(measurement: Measurement) -> float:
        time_us = measurement.eager_us(weights_change=weights_change)
        return float(measurement.workspace_bytes) if policy.objective is Objective.WORKSPACE else time_us

    objections = {finding.candidate.id: objection(finding, baseline, policy) for finding in findings}
    allowed = [f for f in findings if objections[f.candidate.id] is None and f.measurement is not None]
    allowed.sort(key=lambda f: cost(f.measurement) if f.measurement else float("inf"))
    if baseline in allowed and _ties(allowed[0], baseline, cost):
        allowed.remove(baseline)
        allowed.insert(0, baseline)
    ranked = [*allowed, *(f for f in findings if f not in allowed)]
    times = {
        f.candidate.id: f.measurement.eager_us(weights_change=weights_change)
        for f in ranked
        if f.measurement is not None
    }
    winner = allowed[0] if allowed else None
    return tuple(
        Verdict(f, times.get(f.candidate.id), objections[f.candidate.id] or _why(f, winner, baseline, times))
        for f in ranked
    )


def is_torch(candidate: Candidate) -> bool:
    """True for PyTorch's own call."""
    return candidate.backend == "torch"


def _ties(best: Finding, baseline: Finding | None, cost: object) -> bool:
    if baseline is None or best is baseline or not callable(cost):
        return False
    return bool(cost(best.measurement) >= (1 - TIE) * cost(baseline.measurement))


def _why(finding: Finding, winner: Finding | None, baseline: Finding | None, times: dict[str, float]) -> str:
    if winner is None:
        return "none is allowed"
    time, best = times[finding.candidate.id], times[winner.candidate.id]
    if finding is not winner:
        return f"{time / best:.2f}x the winner's time"
    if finding is baseline or baseline is None or baseline.measurement is None:
        return "the winner: no allowed candidate is faster than PyTorch's own call by more than a tie"
    return f"the winner: {times[baseline.candidate.id] / best:.2f}x as fast as PyTorch's own call"
