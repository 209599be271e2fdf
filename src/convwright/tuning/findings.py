"""The result of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from convwright.core.candidate import Refusal
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval, PairedRatio
from convwright.core.limits import limits, too_large
from convwright.core.policy import Policy, Weights
from convwright.measuring.kernels import Kernel
from convwright.naming import singular
from convwright.notebook import html
from convwright.prediction.predicted_choice import Predicted
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.choose import Verdict


@dataclass(frozen=True, slots=True, repr=False)
class Findings:
    """Everything known of one problem on one device: rows ranked with reasons, and refusals.

    ``kernels`` lists the kernels that each measured candidate launches, by its id, if requested. ``predictions`` holds
    a model's prediction for each candidate, by its id, if the choice rests on predictions. If the search
    ``tolerates_load``, ratios of rounds decide where times are unstable.
    """

    problem: Any  # a Problem; the caller knows its kind
    device: DeviceFacts
    policy: Policy
    mode: Mode
    verdicts: tuple[Verdict, ...]
    refusals: tuple[Refusal, ...]
    baseline: Finding | None
    kernels: Mapping[str, tuple[Kernel, ...] | None] | None = field(default=None, hash=False)
    predictions: Mapping[str, Predicted] | None = field(default=None, hash=False)
    tolerates_load: bool = False

    @property
    def choice(self) -> Finding | None:
        """The winner; None if nothing is allowed, or nothing was measured."""
        return next((verdict.finding for verdict in self.verdicts if verdict.won), None)

    @property
    def paired(self) -> PairedRatio | None:
        """The choice's time divided by the time of PyTorch's own call, from rounds in which both ran. None if there
        were no such rounds."""
        chosen = self.choice.measurement if self.choice is not None else None
        if chosen is None or chosen.paired is None or self.baseline is None:
            return None
        return chosen.paired if chosen.paired.own == self.baseline.candidate.id else None

    @property
    def times_faster(self) -> Interval | None:
        """The time of PyTorch's own call divided by the choice's: by ``paired`` where that is known, else with the
        widest interval that both times allow; None where a time is unknown."""
        base, best = self.baseline, self.choice
        if base is None or best is None or base.measurement is None or best.measurement is None:
            return None
        if best.candidate == base.candidate:
            return Interval(1.0, 1.0, 1.0)
        changing = self.policy.weights is Weights.CHANGING
        if self.paired is not None:
            ratio = self.paired.of_call(weights_change=changing)
            return Interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
        own, ours = (each.call_us(weights_change=changing) for each in (base.measurement, best.measurement))
        most = own.high / ours.low if ours.low > 0 else inf
        return Interval(own.value / ours.value, max(own.low, 0.0) / ours.high, most)

    @property
    def unstable(self) -> str | None:
        """Why disturbances leave the fastest candidate open, with a remedy; None if it is clear."""
        chosen = [self.choice] if self.choice is not None else [verdict.finding for verdict in self.verdicts]
        rows = chosen if self.baseline is None else [*chosen, self.baseline]
        return next((finding.unstable for finding in rows if finding.unstable is not None), None)

    @property
    def undecided(self) -> str | None:
        """``unstable``, unless ratios of rounds decide."""
        return None if self.tolerates_load else self.unstable

    def __repr__(self) -> str:
        won = self.choice.candidate.id if self.choice else "nothing"
        of = f"{won} of {len(self.verdicts)} candidates"
        return singular(f"<Findings: {self.problem.key} on {self.device.key}: {of}>")

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> dict[str, Any]:
        """Everything, as data."""
        return {
            "problem": self.problem.key,
            "device": self.device.label,
            "mode": self.mode,
            "objective": self.policy.objective,
            "choice": self.choice.candidate.id if self.choice else None,
            "baseline": self.baseline.candidate.id if self.baseline else None,
            "unstable": self.unstable,
            "tolerates_load": self.tolerates_load,
            "too_large": too_large(self.problem, self.device),
            "candidates": [
                _row(verdict, self.device, self.policy) | self._predicted(verdict) for verdict in self.verdicts
            ],
            "refusals": [{"id": refusal.id, "reason": refusal.reason} for refusal in self.refusals],
            **({} if self.kernels is None else {"kernels": _launches(self.kernels)}),
        }

    def _predicted(self, verdict: Verdict) -> dict[str, Any]:
        """The prediction of a row, if the choice rests on predictions."""
        if self.predictions is None:
            return {}
        known = self.predictions.get(verdict.finding.candidate.id)
        prediction = None if known is None else known.prediction
        return {"predicted": None if prediction is None else prediction.to_json()}


def _launches(kernels: Mapping[str, tuple[Kernel, ...] | None]) -> dict[str, Any]:
    return {
        name: None if launched is None else [kernel.to_json() for kernel in launched]
        for name, launched in kernels.items()
    }


def _row(verdict: Verdict, device: DeviceFacts, policy: Policy) -> dict[str, Any]:
    candidate, measurement = verdict.finding.candidate, verdict.finding.measurement
    bound = limits(candidate, device)
    return {
        "id": candidate.id,
        "arithmetic": candidate.arithmetic,
        "workspace_bytes": measurement.workspace_bytes if measurement else candidate.workspace_bytes,
        "workspace_is_bound": measurement is None and candidate.workspace_is_bound,
        "deterministic": candidate.deterministic,
        "range_limited": candidate.range_limited,
        "rounds_sums": candidate.leaf.rounds_sums,
        "estimated_us": candidate.estimated_us,
        "source": candidate.source,
        "bytes_limit_us": bound.bytes_us,
        "arithmetic_limit_us": bound.arithmetic_us,
        "call_us": verdict.call_us,
        "remembered": verdict.finding.remembered,
        "permitted": listing.objection(candidate, policy) is None,  # measured or not
        "allowed": verdict.allowed,
        "reason": verdict.reason,
        "measurement": measurement.to_json() if measurement else None,
    }
