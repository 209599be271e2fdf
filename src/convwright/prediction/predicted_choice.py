"""Predictions and a policy → the winner, and the reason why each other candidate lost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from convwright.core.candidate import Candidate
from convwright.core.finding import Interval
from convwright.core.host_costs import objection_of_host
from convwright.core.policy import Objective, Policy
from convwright.core.predictor import Prediction
from convwright.core.record import Record
from convwright.measuring.compare import TIE

_OUTSIDE = "is outside of what the model has learned, so PyTorch's own call is kept"
_ROUNDS = "may round sums of some products, and without a run its error is not known"
_NOTHING = "no time can be predicted"
_NO_ENERGY = "no energy can be predicted"
# How many candidates mode predict-top runs beside PyTorch's own call.
MOST_RUN = 3


@dataclass(frozen=True, slots=True)
class Predicted(Record):
    """A candidate with the prediction for one call: its time, including packing if weights change, its energy, and its
    memory: operands, result and workspace. ``objection`` says why the policy forbids it."""

    candidate: Candidate
    prediction: Prediction | None
    memory_bytes: int | None
    objection: str | None = None

    @property
    def us(self) -> float:
        """The predicted time; infinite if there is none."""
        return inf if self.prediction is None else self.prediction.time_us.value


@dataclass(frozen=True, slots=True)
class PredictedVerdict(Record):
    """One row's outcome, like a ``Verdict`` of a measured row."""

    predicted: Predicted
    reason: str
    allowed: bool
    won: bool


def choose_predicted(
    rows: Sequence[Predicted],
    own: Predicted | None,
    policy: Policy,
    *,
    extra_us: Callable[[Candidate], float] | None = None,
    careful: bool = False,
) -> tuple[PredictedVerdict, ...]:
    """All rows: the winner, then the allowed ones by cost, then the others.

    PyTorch's own call wins unless another is predicted to be better by more than a tie. ``careful`` replaces it by
    nothing outside the model's domain. ``extra_us`` gives a candidate's additional host time, which an eager call
    compares with the time saved.
    """

    def objection(row: Predicted) -> str | None:
        if row.objection is not None:
            return row.objection
        if row.prediction is None:
            return _NOTHING
        if policy.objective is Objective.ENERGY and row.prediction.energy_mj is None:
            return _NO_ENERGY
        if own is None or row is own:
            return None
        if row.candidate.leaf.rounds_sums:
            return _ROUNDS
        if careful and not row.prediction.in_domain:
            return _OUTSIDE
        return None if extra_us is None else objection_of_host(own.us - row.us, extra_us(row.candidate))

    objections = [objection(row) for row in rows]
    allowed = [row for row, reason in zip(rows, objections, strict=True) if reason is None]
    allowed.sort(key=lambda row: _cost(row, policy))
    best = _best(allowed, own if own in allowed else None, policy)
    if best is not None:
        allowed.remove(best)
        allowed.insert(0, best)
    others = [(row, reason) for row, reason in zip(rows, objections, strict=True) if reason is not None]
    others.sort(key=lambda pair: pair[0].us)
    kept = [PredictedVerdict(row, _why(row, best, own, policy), allowed=True, won=row is best) for row in allowed]
    return (*kept, *(PredictedVerdict(row, str(reason), allowed=False, won=False) for row, reason in others))


def worth_running(verdicts: Sequence[PredictedVerdict], policy: Policy, most: int = MOST_RUN) -> list[Candidate]:
    """The candidates that may be fastest, likeliest first: those whose intervals overlap the best one's, at most
    ``most``."""
    rows = [verdict.predicted for verdict in verdicts if verdict.allowed]
    rows.sort(key=lambda row: _cost(row, policy))
    if not rows or rows[0].prediction is None:
        return []
    bound = rows[0].prediction.time_us.high
    near = [row for row in rows if row.prediction is not None and row.prediction.time_us.low <= bound]
    return [row.candidate for row in near[:most]]


def _best(allowed: Sequence[Predicted], own: Predicted | None, policy: Policy) -> Predicted | None:
    if not allowed:
        return None
    best = allowed[0]
    if policy.objective is Objective.TIME_THEN_WORKSPACE:
        tied = [row for row in allowed if row.us <= (1 + TIE) * best.us]
        best = min(tied, key=_workspace)
    if own is None or policy.objective is Objective.WORKSPACE:
        return best
    return best if _cost(best, policy) < (1 - TIE) * _cost(own, policy) else own


def _cost(row: Predicted, policy: Policy) -> float:
    """The quantity that the policy minimises."""
    if policy.objective is Objective.WORKSPACE:
        return _workspace(row)
    energy: Interval | None = None if row.prediction is None else row.prediction.energy_mj
    return energy.value if policy.objective is Objective.ENERGY and energy is not None else row.us


def _workspace(row: Predicted) -> float:
    return inf if row.candidate.workspace_bytes is None else row.candidate.workspace_bytes


def _why(row: Predicted, best: Predicted | None, own: Predicted | None, policy: Policy) -> str:
    assert best is not None
    if policy.objective is Objective.WORKSPACE:
        needed = row.candidate.workspace_bytes
        needs = "needs an unknown workspace" if needed is None else f"needs {needed:,} bytes of workspace"
        return "the winner: nothing allowed needs less workspace" if row is best else needs
    by_energy = policy.objective is Objective.ENERGY
    what, least = "energy" if by_energy else "time", _cost(best, policy)
    if row is not best:
        return f"is predicted to take {_cost(row, policy) / least:.2f}x the winner's {what}" if least else _NOTHING
    if row is own:
        better = "need less energy" if by_energy else "be faster"
        return f"the winner: nothing allowed is predicted to {better} by more than a tie"
    if own is None or (by_energy and (own.prediction is None or own.prediction.energy_mj is None)):
        return "the winner by prediction"
    if by_energy:
        return f"the winner by prediction, {least / _cost(own, policy):.2f}x the energy of PyTorch's own call"
    return f"the winner by prediction, {own.us / row.us:.2f}x as fast as PyTorch's own call"
