"""Findings and a policy → the winner, and the reason why each other candidate lost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from convwright.core.candidate import Candidate
from convwright.core.error_rule import objection_to_errors
from convwright.core.finding import Finding, Interval, Measurement
from convwright.core.host_costs import objection_of_host
from convwright.core.policy import Objective, Policy, Weights
from convwright.core.record import Record
from convwright.measuring.compare import TIE

# How the preferred candidates are described, by objective.
_AHEAD = dict.fromkeys(Objective, "are faster") | {Objective.WORKSPACE: "need no more workspace"}


@dataclass(frozen=True, slots=True)
class Verdict(Record):
    """One row's outcome. ``call_us`` is the device time of a call, including packing if weights change. ``reason`` says
    why it won or lost."""

    finding: Finding
    call_us: float | None
    reason: str
    allowed: bool
    won: bool


def objection(finding: Finding, baseline: Finding | None, policy: Policy) -> str | None:
    """Why this finding may not be chosen, whatever its time; None if it may."""
    candidate = finding.candidate
    if finding.failure is not None:
        return finding.failure
    if baseline is not None and is_torch(candidate) and candidate != baseline.candidate:
        return f"is PyTorch with its TF32 flag {dict(candidate.config)['tf32']}, which is not so at this call"
    allowed = policy.objection(
        workspace_bytes=finding.measurement.workspace_bytes if finding.measurement else candidate.workspace_bytes,
        arithmetic=candidate.arithmetic,
        deterministic=candidate.deterministic,
        workspace_is_bound=finding.measurement is None and candidate.workspace_is_bound,
    )
    if allowed is not None:
        return allowed
    if finding.measurement is None:
        return finding.note or "was not measured"
    if policy.objective is Objective.ENERGY and finding.measurement.energy_mj is None:
        return "its energy was not measured"
    errors = finding.measurement.errors
    if finding is baseline:
        return None
    if not errors:
        return finding.note or f"was timed, but its error was not looked at, since others {_AHEAD[policy.objective]}"
    known = None if baseline is None or baseline.measurement is None else baseline.measurement.errors
    wrong = objection_to_errors(candidate, errors, known, policy)
    return wrong or (finding.measurement.doubt if policy.objective is not Objective.WORKSPACE else None)


@dataclass(frozen=True, slots=True)
class Eager:
    """The rule for eager calls: a choice must be faster on the device by more than ``tie``, and its additional host
    time ``extra_us`` must be small beside the device time that it saves."""

    tie: float = TIE
    extra_us: Callable[[Candidate], float] | None = None

    def objection(self, finding: Finding, baseline: Finding | None, policy: Policy) -> str | None:
        """Why an eager call should not run an allowed candidate that is faster on the device; None if it should."""
        if baseline is None or finding is baseline or policy.objective not in _EAGER:
            return None
        if finding.measurement is None or baseline.measurement is None:
            return None
        ours, own = cost(finding, policy), cost(baseline, policy)
        if not surely_less(ours, own, self.tie):
            return f"is not surely faster than PyTorch's own call by {self.tie:.0%}, as an eager call asks for"
        return objection_of_host(own.value - ours.value, self.extra_us(finding.candidate)) if self.extra_us else None


_EAGER = (Objective.TIME, Objective.TIME_THEN_WORKSPACE)


def choose(
    findings: Sequence[Finding], baseline: Finding | None, policy: Policy, eager: Eager | None = None
) -> tuple[Verdict, ...]:
    """All findings: the winner, then the allowed ones by cost, then the disallowed ones by time.

    PyTorch's own call wins unless another is better by more than a tie, and surely so. Nothing wins if nothing is known
    of PyTorch's own call, for example because its time was unstable and not kept. With ``eager`` the winner is for
    eager calls, without it for captured ones.
    """
    objections = {
        finding.candidate.id: objection(finding, baseline, policy)
        or (None if eager is None else eager.objection(finding, baseline, policy))
        for finding in findings
    }
    times = {f.candidate.id: call_us(f, policy).value for f in findings if f.measurement is not None}
    # A candidate disallowed only because of disturbed times may still be the better one.
    rivals = [
        f for f in findings if f.measurement is not None and objections[f.candidate.id] in (None, f.measurement.doubt)
    ]
    rivals.sort(key=lambda finding: cost(finding, policy).value)
    allowed = [finding for finding in rivals if objections[finding.candidate.id] is None]
    best = _best(allowed, baseline, policy)
    if best is not None:
        allowed.remove(best)
        allowed.insert(0, best)
    others = (finding for finding in findings if finding not in allowed)
    ranked = [*allowed, *sorted(others, key=lambda finding: times.get(finding.candidate.id, inf))]
    return tuple(
        Verdict(
            finding,
            times.get(finding.candidate.id),
            objections[finding.candidate.id]
            or (_why(finding, allowed, rivals, baseline, policy, alone=len(times) == 1) if best else _UNKNOWN),
            allowed=finding in allowed,
            won=best is not None and finding is best,
        )
        for finding in ranked
    )


def call_us(finding: Finding, policy: Policy) -> Interval:
    """Device time of one call of a measured candidate, including packing if weights change."""
    assert finding.measurement is not None
    return finding.measurement.call_us(weights_change=policy.weights is Weights.CHANGING)


def is_torch(candidate: Candidate) -> bool:
    """True for PyTorch's own call. A rewrite around it has another algorithm."""
    return candidate.backend == "torch" and candidate.algorithm == "default"


def cost(finding: Finding, policy: Policy) -> Interval:
    """The quantity of a measured candidate that ``policy`` minimises."""
    assert finding.measurement is not None
    return cost_of(finding.measurement, policy)


def cost_of(measured: Measurement, policy: Policy) -> Interval:
    """The same for a measurement."""
    if policy.objective is Objective.WORKSPACE:
        return _around(measured.workspace_bytes, 0.0)
    if policy.objective is Objective.ENERGY and measured.energy_mj is not None:
        return _around(measured.energy_mj, measured.energy_halfwidth_mj or 0.0)
    return measured.call_us(weights_change=policy.weights is Weights.CHANGING)


def surely_better(best: Finding, baseline: Finding, policy: Policy) -> bool:
    """Whether ``best`` costs less than the baseline by more than a tie, and surely so by half a tie. False if a time is
    unstable."""
    if best is baseline or is_unstable(baseline, policy):
        return False
    return surely_less(cost(best, policy), cost(baseline, policy))


def surely_less(mine: Interval, own: Interval, tie: float = TIE) -> bool:
    """Whether ``mine`` is less than the cost of PyTorch's own call by more than ``tie``, and beyond both intervals by
    half of it. A stricter rule would accept a gain of 3 % only with both times known within 0.5 %.
    """
    return mine.value < (1 - tie) * own.value and mine.high < (1 - tie / 2) * own.low


def is_unstable(finding: Finding, policy: Policy) -> bool:
    """Whether time counts for the policy and other work disturbed the measurement."""
    return policy.objective is not Objective.WORKSPACE and finding.unstable is not None


def _best(allowed: Sequence[Finding], baseline: Finding | None, policy: Policy) -> Finding | None:
    """The winner among allowed findings, which come cheapest first.

    A finding whose cost is too uncertain does not prevent another, surely better one from winning.
    """
    if baseline is not None and baseline.measurement is None and baseline.failure is None:
        return None
    own = next((finding for finding in allowed if finding is baseline), None)
    better = [finding for finding in allowed if own is None or surely_better(finding, own, policy)]
    if not better or policy.objective is not Objective.TIME_THEN_WORKSPACE:
        return better[0] if better else own
    tied = [finding for finding in better if _value(finding, policy) <= (1 + TIE) * _value(better[0], policy)]
    return min(tied, key=_workspace_bytes)


def _value(finding: Finding, policy: Policy) -> float:
    return cost(finding, policy).value


def _workspace_bytes(finding: Finding) -> int:
    assert finding.measurement is not None
    return finding.measurement.workspace_bytes


def _around(value: float, halfwidth: float) -> Interval:
    return Interval(float(value), value - halfwidth, value + halfwidth)


_UNKNOWN = "was timed, but PyTorch's own call was not, which may be faster"
# The quantity compared, where it is not time.
_COUNTED = {Objective.ENERGY: "energy", Objective.WORKSPACE: "workspace"}


def _why(
    finding: Finding,
    allowed: Sequence[Finding],
    rivals: Sequence[Finding],
    baseline: Finding | None,
    policy: Policy,
    *,
    alone: bool,
) -> str:
    """Why an allowed candidate won or lost. ``alone`` says that nothing else was measured."""
    winner = allowed[0]
    if finding is winner:
        if alone and winner is baseline and not is_unstable(winner, policy):
            return "the winner: nothing else was measured"
        return f"the winner{_against_torch(winner, rivals, baseline, policy)}"
    ours, best = _value(finding, policy), _value(winner, policy)
    if policy.objective is Objective.WORKSPACE:
        return f"{ours:,.0f} bytes of workspace, the winner needs {best:,.0f}"
    if policy.objective is Objective.TIME_THEN_WORKSPACE and best / (1 + TIE) <= ours <= (1 + TIE) * best:
        return f"{ours / best:.2f}x the winner's time, a tie, and {_workspace_bytes(finding):,} bytes of workspace"
    unsure = ", but not surely better by more than a tie" if ours < best else ""
    return f"{ours / best:.2f}x the winner's {_COUNTED.get(policy.objective, 'time')}{unsure}"


def _against_torch(winner: Finding, rivals: Sequence[Finding], baseline: Finding | None, policy: Policy) -> str:
    counted = _COUNTED.get(policy.objective)
    if winner is baseline:
        if is_unstable(baseline, policy):
            return ", AMBIGUOUS: its time is unstable, so nothing can be said to be faster"
        rival = next((finding for finding in rivals if may_be_better(finding, baseline, policy)), None)
        if rival is not None:
            return f", AMBIGUOUS: {rival.candidate.id} may be better by more than a tie, but not surely"
        if counted:
            return f": nothing allowed surely needs less {counted} than PyTorch's own call by more than a tie"
        return ": nothing allowed is surely faster than PyTorch's own call by more than a tie"
    if baseline is None and winner.candidate.problem.dtype.narrow:
        return ": PyTorch has no call of its own for this"
    if baseline is None or baseline.measurement is None:
        return ": PyTorch's own call was not measured"
    ours, theirs = _value(winner, policy), _value(baseline, policy)
    if policy.objective is Objective.WORKSPACE:
        return f": {ours:,.0f} bytes of workspace, PyTorch's own call needs {theirs:,.0f}"
    if counted:
        return f": {ours / theirs:.2f}x the {counted} of PyTorch's own call"
    return f": {theirs / ours:.2f}x as fast as PyTorch's own call"


def may_be_better(finding: Finding, baseline: Finding, policy: Policy) -> bool:
    """Whether a candidate may be better by more than a tie, as far as the intervals show."""
    if finding is baseline or _value(finding, policy) >= _value(baseline, policy):
        return False
    return cost(finding, policy).low < (1 - TIE) * cost(baseline, policy).high
