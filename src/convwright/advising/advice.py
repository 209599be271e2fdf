"""What there is to gain in a model, layer by layer and as a whole, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from convwright.advising import advice_text
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
from convwright.notebook import html
from convwright.settings import Mode
from convwright.tuning.choose import call_us
from convwright.tuning.findings import Findings


@dataclass(frozen=True, slots=True, repr=False)
class LayerAdvice:
    """One distinct problem of a model: what PyTorch takes for it, and what could be had.

    Times are those of the device, for one call, packing included where weights change; None where nothing ran.
    ``paired`` is what the choice took when it ran beside PyTorch's own call once more, which decides whether it is
    faster, and by how much.
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
        """How often one run of the model computes it."""
        return self.posed.calls

    @property
    def now_us(self) -> Interval | None:
        """PyTorch's own call."""
        return _time(self.findings.baseline, self.findings.policy)

    @property
    def best_us(self) -> Interval | None:
        """What the policy's choice takes: where it ran beside PyTorch's own call, so much of that call's time."""
        if self.paired is None or self.now_us is None:
            return _time(self.findings.choice, self.findings.policy)
        return self.now_us if self.is_torch else self.now_us.times(self.paired.ratio)

    @property
    def candidate(self) -> Candidate | None:
        """The policy's choice; where nothing was measured, what its backend believes in most."""
        if self.is_torch and self.findings.baseline is not None and self.findings.choice is not None:
            return self.findings.baseline.candidate
        if self.findings.choice is not None:
            return self.findings.choice.candidate
        return next((verdict.finding.candidate for verdict in self.findings.verdicts), None)

    @property
    def is_torch(self) -> bool:
        """Whether PyTorch's own call is the choice, or nothing was chosen, or the choice was not faster beside it."""
        if self.paired is not None and self.paired.outcome is not Outcome.FAST:
            return True
        return self.findings.choice is None or self.findings.choice is self.findings.baseline

    @property
    def limit_us(self) -> float | None:
        """What bandwidth and the candidate's arithmetic allow at best; None where the device's rates are unknown."""
        return None if self.candidate is None else limits(self.candidate, self.findings.device).limit_us

    @property
    def unstable(self) -> str | None:
        """Why other work on the machine leaves these times open, with the cure; None where it does not, and where
        ratios of rounds decide all the same."""
        return self.findings.undecided

    @property
    def speedup(self) -> float | None:
        if self.now_us is None or self.best_us is None:
            return None
        return self.now_us.value / self.best_us.value

    @property
    def gain_us(self) -> float | None:
        """What the choice saves in one run of the model."""
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
    """What ``advise`` found. ``str()`` of it is a table with a summary and the suggestions.

    ``model_us`` is the device time of one run of the whole model as it is, ``model_host_us`` what starting that run
    costs the CPU where the device is another, ``enabled_us`` that run under ``cw.enabled()``, which needs the store of
    the session and is measured where there is anything to gain: ``model_us`` times the ratio of runs side by side, with
    the interval of that ratio. ``optimized`` is what ``optimize`` would plan, where times are measured of a
    forward pass. ``notes`` say in words what could not be found out.
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
        """All convolutions of one run as PyTorch computes them, measured one by one."""
        return _total([(_value(layer.now_us), layer.calls) for layer in self.layers])

    @property
    def best_us(self) -> float | None:
        """All convolutions of one run as the policy would choose."""
        return _total([(_value(layer.best_us), layer.calls) for layer in self.layers])

    @property
    def limit_us(self) -> float | None:
        """What bandwidth and arithmetic leave at best for all convolutions of one run; None where that is unknown."""
        return _total([(layer.limit_us, layer.calls) for layer in self.layers])

    @property
    def share(self) -> float | None:
        """The convolutions' part of the model's time."""
        if self.model_us is None or self.convolutions_us is None:
            return None
        return self.convolutions_us / self.model_us.value

    def __repr__(self) -> str:
        problems, suggestions = len(self.layers), len(self.suggestions)
        return singular(f"<Advice: {problems} problems on {self.device.key}, {suggestions} suggestions>")

    def __str__(self) -> str:
        return advice_text.plain(self)

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
    """The sum over all calls; None where one is unknown."""
    known = [time_us * calls for time_us, calls in times if time_us is not None]
    return sum(known) if known and len(known) == len(times) else None


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)
