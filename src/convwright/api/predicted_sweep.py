"""Predicted times of one problem over several values of one of its sizes, and where they jump."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import log
from pathlib import Path

from convwright.api.predicting import Predictions, predict
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.store.store import Store
from convwright.suites.sweep import Sweep
from convwright.suites.variation import varied
from convwright.tuning.session import using

_SPAN = re.compile(r"(\w+)=(\d+):(\d+)(?::(\d+))?")
_CONFIGURATION = re.compile(r"\[[^]]*\]")
# A time that changes by more than this from one value to the next, beyond what the amount of work changes, is a jump.
_JUMP = 1.1


@dataclass(frozen=True, slots=True)
class SweepPoint(Record):
    """``measured_us`` is the least measured time of any candidate of this problem on the device, from the store."""

    value: int
    problem: str
    candidate: str
    time_us: Interval
    in_domain: bool
    flops: int
    measured_us: float | None

    def __str__(self) -> str:
        us = self.time_us
        measured = "" if self.measured_us is None else f", measured {self.measured_us:.4g} µs"
        return f"{self.value}: {us.value:.4g} µs ({us.low:.3g} to {us.high:.3g}), {self.candidate}{measured}"

    @property
    def family(self) -> str:
        """The candidate's id without its configuration."""
        return _CONFIGURATION.sub("", self.candidate)


@dataclass(frozen=True, slots=True)
class PredictedSweep(Record):
    """The choice at each value of ``size``, and one sentence for each jump of its time."""

    size: str
    device: str
    model: str
    points: tuple[SweepPoint, ...]
    jumps: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((*(f"{self.size}={point}" for point in self.points), self.model, *self.jumps))


def sweep_of(text: str) -> Sweep:
    """Read ``iw=200:260``, ``iw=200:260:4`` with a step, or any form that ``convwright bench`` takes.

    >>> sweep_of("iw=200:206:2").values
    (200, 202, 204, 206)
    """
    span = _SPAN.fullmatch(text.replace(" ", ""))
    return Sweep.parse(text if span is None else f"{span[1]}={span[2]}..{span[3]}:+{span[4] or 1}")


def predict_sweep(
    text: str,
    sweep: Sweep | str,
    *,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
    model: Path | str | None = None,
    store: Store | Path | str | None = None,
) -> PredictedSweep:
    """The predicted choice for a convolution's text at each value of one size.

    >>> found = predict_sweep("mb8ic64ih56oc64kh3ph1 dt:fp16", "ih=55:57", device="h200")
    >>> [point.value for point in found.points], found.points[0].time_us.value > 0
    ([55, 56, 57], True)
    """
    if (kind := parse(text).kind) != "conv":
        raise BadInput(f"a sweep changes a size of a convolution, got a problem of kind {kind!r}")
    sizes = sweep_of(sweep) if isinstance(sweep, str) else sweep
    with using(store) as kept:
        found = [
            predict(varied(text, {sizes.size: value}), device=device, policy=policy, model=model, store=kept)
            for value in sizes.values
        ]
        points = tuple(_point(value, each, kept) for value, each in zip(sizes.values, found, strict=True))
    pairs = pairwise(zip(points, found, strict=True))
    jumps = [sentence for before, after in pairs if (sentence := _jump(sizes.size, before, after)) is not None]
    return PredictedSweep(sizes.size, found[0].device.key, str(found[0].model), points, tuple(jumps))


def _point(value: int, found: Predictions, store: Store) -> SweepPoint:
    choice = found.choice
    if choice is None or choice.predicted.prediction is None:
        why = f": {found.verdicts[0].predicted.candidate.id} {found.verdicts[0].reason}" if found.verdicts else ""
        raise BadInput(f"nothing that computes {found.problem.key} is allowed, so no time can be predicted{why}")
    known = store.findings(found.problem.key, found.device.key).values()
    times = [each.measurement.device_us.value for each in known if each.measurement is not None]
    prediction = choice.predicted.prediction
    return SweepPoint(
        value, found.problem.key, choice.predicted.candidate.id, prediction.time_us, prediction.in_domain,
        found.problem.flops, min(times, default=None),
    )  # fmt: skip


def _jump(size: str, before: tuple[SweepPoint, Predictions], after: tuple[SweepPoint, Predictions]) -> str | None:
    """A sentence about a jump between neighbours, with its largest cause; None if there is no jump."""
    (here, found), (there, next_) = before, after
    work = there.flops / here.flops if here.flops and there.flops else 1.0
    ratio = there.time_us.value / here.time_us.value / work
    if max(ratio, 1 / ratio) < _JUMP:
        return None
    verb = "rises" if there.time_us.value > here.time_us.value else "falls"
    said = (
        f"From {size}={here.value} to {there.value} the time {verb} from {here.time_us.value:.4g} to "
        f"{there.time_us.value:.4g} µs"
    )
    if here.family != there.family:
        return f"{said}: {there.family} takes the place of {here.family}."
    return f"{said}, mostly by its {_cause(found, next_)}."


def _cause(found: Predictions, next_: Predictions) -> str:
    """The part of the prediction that changes most."""
    first, second = found.explained(), next_.explained()
    changes = {"physical estimate": log(second.physics_us / first.physics_us)}
    known = dict(first.factors)
    changes |= {name: log(factor / known.get(name, 1.0)) for name, factor in second.factors}
    return max(changes, key=lambda name: abs(changes[name]))
