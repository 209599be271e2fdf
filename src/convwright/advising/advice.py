"""Possible gains in a model, for each layer and for the whole, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from convwright.advising.optimized import Optimized
from convwright.advising.suggestion import Suggestion
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval
from convwright.core.limits import limits
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.engine.capture.distinct import Posed
from convwright.measuring.compare import Outcome, Verdict
from convwright.naming import singular
from convwright.notebook import html, text
from convwright.settings import Mode
from convwright.tuning.choose import call_us
from convwright.tuning.findings import Findings


@dataclass(frozen=True, slots=True, repr=False)
class LayerAdvice:
    """One distinct problem of a model: the time of PyTorch's own call, and of the best candidate.

    Times are device times of one call, including packing if weights change; None if nothing ran. ``paired`` compares
    the choice with PyTorch's own call in a second measurement, side by side. It decides whether the choice is faster,
    and by how much.
    """

    posed: Posed
    findings: Findings
    paired: Verdict | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.posed.names

    @property
    def problem(self) -> ConvProblem:
        return self.posed.problem

    @property
    def calls(self) -> int:
        """The number of calls in one run of the model."""
        return self.posed.calls

    @property
    def now_us(self) -> Interval | None:
        """The time of PyTorch's own call."""
        return _time(self.findings.baseline, self.findings.policy)

    @property
    def best_us(self) -> Interval | None:
        """The time of the policy's choice: if it was paired, the ratio times PyTorch's own time."""
        if self.paired is None or self.now_us is None:
            return _time(self.findings.choice, self.findings.policy)
        return self.now_us if self.is_torch else self.now_us.times(self.paired.ratio)

    @property
    def candidate(self) -> Candidate | None:
        """The policy's choice; if nothing was measured, the backend's most promising candidate."""
        if self.is_torch and self.findings.baseline is not None and self.findings.choice is not None:
            return self.findings.baseline.candidate
        if self.findings.choice is not None:
            return self.findings.choice.candidate
        return next((verdict.finding.candidate for verdict in self.findings.verdicts), None)

    @property
    def is_torch(self) -> bool:
        """Whether PyTorch's own call stays: it was chosen, nothing was chosen, or the choice was not faster side by
        side."""
        if self.paired is not None and self.paired.outcome is not Outcome.FAST:
            return True
        return self.findings.choice is None or self.findings.choice is self.findings.baseline

    @property
    def limit_us(self) -> float | None:
        """The least time that bandwidth and the candidate's arithmetic allow; None if the device's rates are
        unknown."""
        return None if self.candidate is None else limits(self.candidate, self.findings.device).limit_us

    @property
    def unstable(self) -> str | None:
        """Why other work on the machine makes these times unreliable, with a remedy; None if it does not, or if ratios
        of rounds decide."""
        return self.findings.undecided

    @property
    def speedup(self) -> float | None:
        if self.now_us is None or self.best_us is None:
            return None
        return self.now_us.value / self.best_us.value

    @property
    def gain_us(self) -> float | None:
        """The time that the choice saves in one run of the model."""
        if self.now_us is None or self.best_us is None:
            return None
        return (self.now_us.value - self.best_us.value) * self.calls

    def __repr__(self) -> str:
        return f"<LayerAdvice: {', '.join(self.names)}: {self.findings!r}>"

    def to_json(self) -> dict[str, Any]:
        return {
            "layers": list(self.names),
            "problem": self.problem.key,
            "calls": self.calls,
            "now_us": _interval(self.now_us),
            "best_us": _interval(self.best_us),
            "limit_us": self.limit_us,
            "candidate": None if self.candidate is None else self.candidate.id,
            "speedup": self.speedup,
            "gain_us": self.gain_us,
            "paired": None if self.paired is None else asdict(self.paired),
            "unstable": self.unstable,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """The result of ``advise``. ``str()`` gives a table with a summary and the suggestions.

    ``model_us`` is the device time of one run of the model as it is. ``model_host_us`` is the CPU time to start that
    run on a GPU. ``enabled_us`` is the time of a run under ``cw.enabled()``: ``model_us`` times the ratio of runs side
    by side, with the interval of that ratio. It is measured with the session's store, if a candidate other than
    PyTorch's own call was chosen. ``optimized`` is an estimate for ``optimize``, if a forward pass was measured.
    ``notes`` are sentences about missing results.
    """

    device: DeviceFacts
    mode: Mode
    backward: bool
    layers: tuple[LayerAdvice, ...]
    model_us: Interval | None
    model_host_us: Interval | None
    enabled_us: Interval | None
    suggestions: tuple[Suggestion, ...]
    notes: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...]
    top: int | None = None
    optimized: Optimized | None = None

    @property
    def convolutions_us(self) -> float | None:
        """All convolutions of one run by PyTorch's own calls, measured one by one."""
        return _total([(_value(layer.now_us), layer.calls) for layer in self.layers])

    @property
    def best_us(self) -> float | None:
        """All convolutions of one run by the policy's choices."""
        return _total([(_value(layer.best_us), layer.calls) for layer in self.layers])

    @property
    def limit_us(self) -> float | None:
        """The least time that bandwidth and arithmetic allow for all convolutions of one run; None if it is unknown."""
        return _total([(layer.limit_us, layer.calls) for layer in self.layers])

    @property
    def share(self) -> float | None:
        """The share of the convolutions in the model's time."""
        if self.model_us is None or self.convolutions_us is None:
            return None
        return self.convolutions_us / self.model_us.value

    def __repr__(self) -> str:
        problems, suggestions = len(self.layers), len(self.suggestions)
        return singular(f"<Advice: {problems} problems on {self.device.key}, {suggestions} suggestions>")

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> dict[str, Any]:
        """Everything, as data."""
        return {
            "device": self.device.label,
            "mode": self.mode,
            "backward": self.backward,
            "conditions": dict(self.conditions),
            "model_us": _interval(self.model_us),
            "model_host_us": _interval(self.model_host_us),
            "enabled_us": _interval(self.enabled_us),
            "convolutions_us": self.convolutions_us,
            "best_us": self.best_us,
            "limit_us": self.limit_us,
            "layers": [layer.to_json() for layer in self.layers],
            "suggestions": [suggestion.to_json() for suggestion in self.suggestions],
            "notes": list(self.notes),
            "optimized": None if self.optimized is None else self.optimized.to_json(),
        }


def _time(finding: Finding | None, policy: Policy) -> Interval | None:
    return None if finding is None or finding.measurement is None else call_us(finding, policy)


def _value(interval: Interval | None) -> float | None:
    return None if interval is None else interval.value


def _total(times: list[tuple[float | None, int]]) -> float | None:
    """The sum over all calls; None if one is unknown."""
    known = [time_us * calls for time_us, calls in times if time_us is not None]
    return sum(known) if known and len(known) == len(times) else None


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)
