"""The predicted run of a network on a device: totals, and one row for each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.engine.planning.forecast_times import Basis
from convwright.engine.planning.step_text import table
from convwright.naming import singular
from convwright.notebook import html

_HEADINGS = ("layer", "runs", "µs", "between", "known", "result bytes", "workspace bytes")
_UNKNOWN = "–"
_MUCH = 0.2  # a smaller share of rough estimates hardly affects the total
# Times outside the domain of the predictor.
OUTSIDE = (Basis.ROUGH, Basis.SIZE, Basis.LIMIT)


@dataclass(frozen=True, slots=True)
class LayerPrediction(Record):
    """One layer of a predicted run. ``name`` joins the modules that one kernel computes: ``conv+relu``.

    ``runs`` is the candidate or PyTorch's operator. ``time_us`` is None for a view, which runs nothing. ``known`` says
    what the time rests on: a measurement, a prediction, or a rough estimate. ``result_bytes`` is the memory of its
    results; 0 if these are views. ``workspace_bytes`` is None if only the device can report it."""

    name: str
    runs: str
    time_us: Interval | None
    known: Basis
    result_bytes: int
    workspace_bytes: int | None


@dataclass(frozen=True, slots=True, repr=False)
class NetworkPrediction(Record):
    """The predicted time, memory and power of one run of a network on a device. ``print`` and notebooks show a table of
    its ``layers``.

    The interval of ``time_us`` should hold nine of ten networks. ``rough_share`` is its share in steps unlike anything
    that the predictor has learned from. ``memory_bytes`` counts weights, inputs, and the peak of results and
    workspaces; the driver's own memory comes on top. ``power_w`` is the time-weighted mean over the steps with known
    power, and ``energy_mj`` is that power over the whole run. None means that no prediction exists."""

    device: str
    time_us: Interval
    rough_share: float
    memory_bytes: int
    power_w: Interval | None = None
    energy_mj: Interval | None = None
    layers: tuple[LayerPrediction, ...] = ()

    def __repr__(self) -> str:
        return f"<NetworkPrediction: {len(self.layers)} layers on {self.device}, {self.time_us.value:,.0f} µs>"

    def __str__(self) -> str:
        head = singular(f"{self.device} · {len(self.layers)} layers · predicted, nothing ran")
        rows = [_row(layer) for layer in self.layers]
        return "\n".join((head, table(_HEADINGS, rows, numbers=(2, 3, 5, 6)), "", *sentences(self)))

    def _repr_html_(self) -> str:
        return html(self)


def sentences(found: NetworkPrediction) -> Iterator[str]:
    """The totals in words, and how rough they are."""
    yield time_sentence(found)
    yield from rough_sentences(found)
    if found.power_w is not None and found.energy_mj is not None:
        yield power_sentence(found.power_w, found.energy_mj)
    yield f"memory: {found.memory_bytes:,} bytes of weights, inputs, results and workspaces"


def time_sentence(found: NetworkPrediction) -> str:
    """The time of a whole run with its bounds."""
    time = f"{found.time_us.value:,.0f} µs"
    is_bounded = found.time_us.high < inf
    return f"predicted: {time}, between {between(found.time_us)}" if is_bounded else f"predicted: at least {time}"


def rough_sentences(found: NetworkPrediction) -> Iterator[str]:
    """How rough the time is, and how to improve it; nothing if all layers are like those that were learned from."""
    if not found.rough_share:
        return
    time_us, share = found.time_us, "all" if found.rough_share > 0.995 else f"{found.rough_share:.0%}"
    yield f"{share} of it is a rough estimate, for layers unlike all that the predictor has learned from"
    if found.rough_share < _MUCH:
        return
    if 0 < time_us.low <= time_us.value and time_us.high < inf:
        factor = max(time_us.high / time_us.value, time_us.value / time_us.low)
        yield f"the time of the whole may be wrong by a factor of {factor:.2g}"
    yield f"for better predictions run `convwright sample --for 2h` and `convwright learn` on {found.device}"


def power_sentence(watts: Interval, energy: Interval) -> str:
    return f"power: {watts.value:,.0f} W; energy: {energy.value:,.1f} mJ, between {between(energy)}"


def between(found: Interval) -> str:
    """The bounds of a figure.

    >>> between(Interval(12.3, 10.0, float("inf"))), between(Interval(1234.5, 1000.0, 2000.0))
    ('10.0 and ∞', '1,000 and 2,000')
    """
    digits = 0 if found.value >= 100 else 1
    high = "∞" if found.high == inf else f"{found.high:,.{digits}f}"
    return f"{found.low:,.{digits}f} and {high}"


def _row(layer: LayerPrediction) -> Sequence[Any]:
    time_us = layer.time_us
    return (
        layer.name, layer.runs, _UNKNOWN if time_us is None else f"{time_us.value:,.1f}",
        _UNKNOWN if time_us is None else between(time_us), layer.known, f"{layer.result_bytes:,}",
        _UNKNOWN if layer.workspace_bytes is None else f"{layer.workspace_bytes:,}",
    )  # fmt: skip
