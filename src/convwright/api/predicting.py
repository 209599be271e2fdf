"""``predict``: the predicted time of each candidate of a problem, also for a device that is not in this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from convwright.api.posing import problem
from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import IntOrTuple
from convwright.core.window import AnyPadding
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.notebook import html
from convwright.option_names import DirectionName
from convwright.prediction.breakdown import Breakdown, breakdown
from convwright.prediction.models import Served, served
from convwright.prediction.predicted_choice import Predicted, PredictedVerdict, choose_predicted
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.predicting import everything, own_of
from convwright.tuning.search import resolved
from convwright.tuning.session import using
from convwright.uncompiled import uncompiled


@dataclass(frozen=True, slots=True, repr=False)
class Predictions:
    """The predictions for one problem on one device: rows ranked with reasons, and refusals.

    ``model`` is the model that made them.
    """

    problem: Any  # a Problem; the caller knows its kind
    device: DeviceFacts
    policy: Policy
    verdicts: tuple[PredictedVerdict, ...]
    refusals: tuple[Refusal, ...]
    model: Served = field(hash=False)

    @property
    def choice(self) -> PredictedVerdict | None:
        """The row that is predicted to be the best; None if no candidate is allowed."""
        return next((verdict for verdict in self.verdicts if verdict.won), None)

    def explained(self, candidate: Candidate | None = None) -> Breakdown:
        """The parts of a candidate's predicted time; by default those of the choice."""
        rows = [verdict.predicted for verdict in self.verdicts]
        if candidate is None:
            if self.choice is None:
                raise BadInput(f"nothing is predicted for {self.problem.key}, so there is nothing to explain")
            candidate = self.choice.predicted.candidate
        us = next((row.us for row in rows if row.candidate == candidate), None)
        return breakdown(candidate, self.device, self.model.times, us)

    def called(self, algorithm: str) -> Candidate:
        """The candidate with this id, or the best one with this id apart from its configuration."""
        candidates = [verdict.predicted.candidate for verdict in self.verdicts]
        found = next((each for each in candidates if each.id == algorithm), None)
        found = found or next((each for each in candidates if each.family == algorithm), None)
        if found is None:
            there = listing.names(candidates)
            raise BadInput(f"no candidate here is called {algorithm!r}; for this problem there are {there}")
        return found

    def __repr__(self) -> str:
        won = "nothing" if self.choice is None else self.choice.predicted.candidate.id
        return f"<Predictions: {self.problem.key} on {self.device.label}: {won} of {len(self.verdicts)} candidates>"

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> dict[str, Any]:
        """Everything, as data."""
        return {
            "problem": self.problem.key,
            "device": self.device.label,
            "objective": self.policy.objective,
            "model": {
                "origin": self.model.origin,
                "rows": None if self.model.times is None else self.model.times.rows,
                "error": None if self.model.times is None else self.model.times.error.to_json(),
            },
            "choice": None if self.choice is None else self.choice.predicted.candidate.id,
            "candidates": [_row(verdict) for verdict in self.verdicts],
            "refusals": [{"id": refusal.id, "reason": refusal.reason} for refusal in self.refusals],
        }


@uncompiled()
def predict(
    what: Problem | str | Tensor | nn.Module,
    weight: Tensor | Sequence[int] | None = None,
    *,
    stride: IntOrTuple = 1,
    padding: AnyPadding = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    direction: Direction | DirectionName | None = None,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
    model: Path | str | None = None,
    store: Store | Path | str | None = None,
) -> Predictions:
    """The predicted time of each candidate of a problem on a device, and the predicted choice. Nothing runs.

    ``what`` and the arguments after it are those of ``problem``: a problem of any kind, its text, an input and its
    ``weight``, or an ``nn.Conv…`` and the shape of its input. The device need not be in this machine ("h200"). Each row
    has the time of one call with bounds that hold nine of ten measured times, the memory of a call, the energy if the
    model knows it, and whether the candidate is like those that the model has learned from (``in_domain``).

    The model is the file ``model``, or the one that ``learn`` has put beside the ``store`` for this device, or one that
    comes with this package. Without a model, times follow from the device's data sheet, with wide bounds.

    >>> found = predict("mb32ic64ih56oc64kh3ph1 dt:fp16", device="h200")
    >>> found.choice.won, found.choice.predicted.prediction.in_domain
    (True, True)
    """
    check_policy(policy)
    posed = problem(what, weight, stride=stride, padding=padding, dilation=dilation, groups=groups, direction=direction)
    facts = device_facts(device)
    asked = resolved(policy or Policy(), posed, facts)
    with using(store) as kept:
        chosen = served(facts, kept.path, model)
    rows, refusals = everything(posed, facts, asked, chosen.predictor)
    rows = [replace(row, objection=row.objection or _does_not_fit(row, facts)) for row in rows]
    verdicts = choose_predicted(rows, own_of(rows), asked)
    return Predictions(posed, facts, asked, verdicts, tuple(refusals), chosen)


def _does_not_fit(row: Predicted, device: DeviceFacts) -> str | None:
    """Why a candidate needs more memory than the device has; None if it does not, or if either is unknown."""
    needed, there = row.memory_bytes, device.memory_bytes
    if needed is None or there is None or needed <= there:
        return None
    return f"needs {needed / 1e9:,.1f} GB of memory, and {device.name} has {there / 1e9:,.1f} GB"


def _row(verdict: PredictedVerdict) -> dict[str, Any]:
    row = verdict.predicted
    return {
        "id": row.candidate.id,
        "arithmetic": row.candidate.arithmetic,
        "predicted": None if row.prediction is None else row.prediction.to_json(),
        "workspace_bytes": row.candidate.workspace_bytes,
        "memory_bytes": row.memory_bytes,
        "allowed": verdict.allowed,
        "reason": verdict.reason,
    }
