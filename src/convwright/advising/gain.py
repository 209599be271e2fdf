"""What a change gains in single layers, and the one suggestion that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convwright.advising.advice import LayerAdvice
from convwright.advising.suggestion import Kind, Suggestion


@dataclass(frozen=True, slots=True)
class Gain:
    """One call of a layer before and after a change."""

    layer: LayerAdvice
    before_us: float
    after_us: float


def suggest(gains: Sequence[Gain], kind: Kind, what: str, how: str) -> list[Suggestion]:
    """One suggestion for all layers that gain by the same change; none where no layer does."""
    if not gains:
        return []
    before_us = sum(gain.before_us * gain.layer.calls for gain in gains)
    after_us = sum(gain.after_us * gain.layer.calls for gain in gains)
    layers = tuple(dict.fromkeys(name for gain in gains for name in gain.layer.names))
    return [Suggestion(kind, what, how, before_us, after_us, layers=layers)]
