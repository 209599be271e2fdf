"""One change that would make a model faster, with what it was measured to gain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from convwright.core.finding import Interval


class Kind(StrEnum):
    """What a change does to the model's results."""

    EXACT = "exact"
    INFERENCE = "exact (inference)"
    RETRAINING = "needs retraining"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change, how to make it in code, and the time of what it touches before and after, in one run of the model.

    ``whole_model`` says that both times are of the whole model, run as it would be; else they are sums over
    convolutions that were measured one by one. ``difference`` is the relative L2 distance between the model's outputs
    before and after, where both were computed.

    ``ratio`` is the time after the change divided by that before, with its 95 % interval, from ``rounds`` in which both
    ran beside each other; None where both times are those of searches. ``scope`` names what the times are of, where
    that is more than the layers.
    """

    kind: Kind
    what: str
    how: str
    before_us: float
    after_us: float
    whole_model: bool = False
    layers: tuple[str, ...] = ()
    difference: float | None = None
    ratio: Interval | None = None
    rounds: int | None = None
    scope: str | None = None

    @property
    def gain_us(self) -> float:
        return self.before_us - self.after_us

    @property
    def speedup(self) -> float:
        return self.before_us / self.after_us

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"gain_us": self.gain_us}
