"""Gains of a change in single layers, and the suggestion that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convwright.advising.advice import LayerAdvice
from convwright.advising.suggestion import Kind, Suggestion
from convwright.core.finding import Interval
from convwright.measuring.compare import Verdict


@dataclass(frozen=True, slots=True)
class Gain:
    """One call of a layer before and after a change. ``paired`` compares the two side by side, if they were timed
    so."""

    layer: LayerAdvice
    before_us: float
    after_us: float
    paired: Verdict | None = None


def suggest(gains: Sequence[Gain], kind: Kind, what: str, how: str, scope: str | None = None) -> list[Suggestion]:
    """One suggestion for all layers that gain by the same change; none if no layer gains."""
    if not gains:
        return []
    before_us = sum(gain.before_us * gain.layer.calls for gain in gains)
    after_us = sum(gain.after_us * gain.layer.calls for gain in gains)
    layers = tuple(dict.fromkeys(name for gain in gains for name in gain.layer.names))
    ratio, rounds = _together(gains, before_us, after_us)
    return [Suggestion(kind, what, how, before_us, after_us, layers=layers, ratio=ratio, rounds=rounds, scope=scope)]


def _together(gains: Sequence[Gain], before_us: float, after_us: float) -> tuple[Interval | None, int | None]:
    """The ratio of the sums; None unless all were paired. Errors of several layers add up, since they need not
    cancel."""
    pairs = [gain.paired for gain in gains]
    if not all(pairs) or not before_us:
        return None, None
    wide = [(gain.before_us * gain.layer.calls, each.ratio) for gain, each in zip(gains, pairs, strict=True) if each]
    less_us = sum(time_us * (ratio.value - ratio.low) for time_us, ratio in wide)
    more_us = sum(time_us * (ratio.high - ratio.value) for time_us, ratio in wide)
    ratio = Interval(after_us / before_us, (after_us - less_us) / before_us, (after_us + more_us) / before_us)
    return ratio, min(each.rounds for each in pairs if each)
