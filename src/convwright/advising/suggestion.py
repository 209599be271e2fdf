"""One change that makes a model faster, with its measured gain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from convwright.core.finding import Interval


class Kind(StrEnum):
    """The effect of a change on the model's results."""

    EXACT = "exact"
    INFERENCE = "exact (inference)"
    RETRAINING = "needs retraining"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change, the code for it, and the times before and after, in one run of the model.

    If ``whole_model`` is true, both times are of the whole model. Otherwise they are sums over convolutions that were
    measured one by one. ``difference`` is the relative L2 distance between the model's outputs before and after, if
    both were computed.

    ``ratio`` is the time after the change divided by the time before, with its 95 % interval, from ``rounds`` in which
    both ran side by side. It is None if both times come from searches. ``scope`` says what the times cover, if that is
    more than the layers.
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
