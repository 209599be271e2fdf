"""Findings and a policy → the winner, and for each other one the reason why it lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convwright.core.candidate import Candidate
from convwright.core.error_rule import absolute_objection, error_objection
from convwright.core.finding import Finding, Interval
from convwright.core.policy import Objective, Policy, Weights

# A candidate must beat PyTorch's own call by more than a tie, or that call is what runs.
TIE = 0.02


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row's outcome. ``eager_us`` is what an eager call takes; ``reason`` says why it won or lost."""

    finding: Finding
    eager_us: float | None
    reason: str
    allowed: bool
    won: bool


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
    errors = finding.measurement.errors
    if finding is baseline:
        return None
    if not errors:
        return "was timed, but its error was not looked at, since faster ones are right"
    if baseline is None or baseline.measurement is None:
        return absolute_objection(candidate.problem, candidate.arithmetic, errors, policy)
    return error_objection(candidate.problem, errors, baseline.measurement.errors, policy)


def choose(findings: Sequence[Finding], baseline: Finding | None, policy: Policy) -> tuple[Verdict, ...]:
    """All findings, the winner first, then by what an eager call takes; the disallowed last.

    PyTorch's own call wins unless another is surely faster by more than a tie.
    """
    objections = {finding.candidate.id: objection(finding, baseline, policy) for finding in findings}
    times = {f.candidate.id: eager_us(f, policy) for f in findings if f.measurement is not None}
    allowed = [finding for finding in findings if objections[finding.candidate.id] is None]
    allowed.sort(key=lambda finding: _cost(finding, policy).value)
    if baseline in allowed and not _surely_better(allowed[0], baseline, policy):
        allowed.remove(baseline)
        allowed.insert(0, baseline)
    ranked = [*allowed, *sorted((f for f in findings if f not in allowed), key=lambda f: _order(times, f))]
    return tuple(
        Verdict(
            finding,
            times[finding.candidate.id].value if finding.candidate.id in times else None,
            objections[finding.candidate.id] or _why(finding, allowed[0], baseline, times),
            allowed=finding in allowed,
            won=finding in allowed[:1],
        )
        for finding in ranked
    )


def eager_us(finding: Finding, policy: Policy) -> Interval:
    """What an eager call of a measured candidate takes under ``policy``."""
    assert finding.measurement is not None
    return finding.measurement.eager_us(weights_change=policy.weights is Weights.CHANGING)


def device_us(finding: Finding, policy: Policy) -> Interval:
    """What a call takes of the device alone, as inside a captured graph, with packing where weights change."""
    assert finding.measurement is not None
    return replace(finding.measurement, host_us=None).eager_us(weights_change=policy.weights is Weights.CHANGING)


def is_torch(candidate: Candidate) -> bool:
    """True for PyTorch's own call."""
    return candidate.backend == "torch" and candidate.algorithm == "default"


def _cost(finding: Finding, policy: Policy) -> Interval:
    assert finding.measurement is not None
    if policy.objective is Objective.WORKSPACE:
        nbytes = float(finding.measurement.workspace_bytes)
        return Interval(nbytes, nbytes, nbytes)
    if policy.objective is Objective.DEVICE_TIME:
        return device_us(finding, policy)
    return eager_us(finding, policy)


def _surely_better(best: Finding, baseline: Finding, policy: Policy) -> bool:
    return best is not baseline and _cost(best, policy).high < (1 - TIE) * _cost(baseline, policy).low


def _order(times: dict[str, Interval], finding: Finding) -> float:
    time_us = times.get(finding.candidate.id)
    return float("inf") if time_us is None else time_us.value


def _why(finding: Finding, winner: Finding, baseline: Finding | None, times: dict[str, Interval]) -> str:
    time_us, best_us = times[finding.candidate.id].value, times[winner.candidate.id].value
    if finding is not winner:
        return f"{time_us / best_us:.2f}x the winner's time"
    if finding is baseline or baseline is None or baseline.measurement is None:
        return "the winner: nothing allowed is surely faster than PyTorch's own call by more than a tie"
    return f"the winner: {times[baseline.candidate.id].value / best_us:.2f}x as fast as PyTorch's own call"
