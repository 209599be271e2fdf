"""The predicted run of a network on a device: totals, and one row for each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.planning.assignment import RunnerUp, Step
from convwright.engine.planning.forecast_times import Basis
from convwright.engine.planning.step_text import layouts, types, what_runs
from convwright.graph.operations import NOTHING_RUNS
from convwright.naming import singular
from convwright.notebook import html, text
from convwright.prediction.physics import least_us

_MUCH = 0.2  # a smaller share of rough estimates hardly affects the total
# Times outside the domain of the predictor.
OUTSIDE = (Basis.ROUGH, Basis.SIZE, Basis.LIMIT)


@dataclass(frozen=True, slots=True)
class LayerPrediction(Record):
    """One layer of a predicted run. ``name`` joins the modules that one kernel computes: ``conv+relu``.

    ``runs`` is the candidate or PyTorch's operator. ``time_us`` is None for a view, which runs nothing. ``known`` says
    what the time rests on: a measurement, a prediction, or a rough estimate. ``result_bytes`` is the memory of its
    results; 0 if these are views. ``workspace_bytes`` is None if only the device can report it. ``limit_us`` is the
    least time that the device needs, and ``runner_up`` the next best candidate; None if unknown. ``reason`` says why it
    was chosen."""

    name: str
    runs: str
    type: str
    layout: str
    time_us: Interval | None
    known: Basis | None
    limit_us: float | None
    result_bytes: int
    workspace_bytes: int | None
    runner_up: RunnerUp | None
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class NetworkPrediction(Record):
    """The predicted time, memory and power of one run of a network on a device. ``print`` and notebooks show a table of
    its ``layers``.

    The interval of ``time_us`` should hold nine of ten networks. ``rough_share`` is its share in steps unlike anything
    that the predictor has learned from. ``memory_bytes`` counts weights, inputs, and the peak of results and
    workspaces; the driver's own memory comes on top. ``power_w`` is the time-weighted mean over the steps with known
    power, and ``energy_mj`` is that power over the whole run. None means that no prediction exists. ``unknown`` names
    the layers whose workspace or packed weight only the device can report; ``memory_bytes`` omits these.
    ``device_memory_bytes`` is the memory of the device, None if it is not known."""

    device: str
    time_us: Interval
    rough_share: float
    memory_bytes: int
    power_w: Interval | None = None
    energy_mj: Interval | None = None
    layers: tuple[LayerPrediction, ...] = ()
    unknown: tuple[str, ...] = ()
    device_memory_bytes: int | None = None

    def __repr__(self) -> str:
        return f"<NetworkPrediction: {len(self.layers)} layers on {self.device}, {self.time_us.value:,.0f} µs>"

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)


def layer_prediction(
    step: Step, known: Basis | None, tensors: Mapping[str, TensorSpec], device: DeviceFacts
) -> LayerPrediction:
    """A step that writes some of ``tensors``. ``known`` is None for a step of an engine."""
    nothing, candidate = isinstance(step.operation, NOTHING_RUNS), step.candidate
    nbytes = 0 if nothing else sum(tensors[name].nbytes for name in step.writes)
    workspace = candidate.workspace_bytes if candidate is not None else 0 if nothing else None
    return LayerPrediction(
        step.name, what_runs(step), types(step), layouts(step), None if nothing else step.time_us, known,
        None if candidate is None else least_us(candidate, device), nbytes, workspace, step.runner_up,
        "" if nothing else step.reason,
    )  # fmt: skip


def sentences(found: NetworkPrediction) -> Iterator[str]:
    """The totals in words, and how rough they are."""
    yield singular(f"planned for {found.device}, without running anything: {len(found.layers)} steps")
    time, is_bounded = f"{found.time_us.value:,.0f} µs", found.time_us.high < inf
    yield f"predicted: {time}, between {_between(found.time_us)}" if is_bounded else f"predicted: at least {time}"
    yield from _rough_sentences(found)
    if found.power_w is not None and found.energy_mj is not None:
        energy = f"{found.energy_mj.value:,.1f} mJ, between {_between(found.energy_mj)}"
        yield f"power: {found.power_w.value:,.0f} W; energy: {energy}"
    yield f"memory: {found.memory_bytes:,} bytes of weights, inputs, results and workspaces"
    if found.device_memory_bytes is not None and found.memory_bytes > found.device_memory_bytes:
        yield f"it does not fit: the device has {found.device_memory_bytes:,} bytes"
    if found.unknown:
        yield singular(
            f"without workspaces or packed weights of {len(found.unknown)} steps, which only the device can report: "
            f"{', '.join(found.unknown)}"
        )


def _rough_sentences(found: NetworkPrediction) -> Iterator[str]:
    """How rough the time is, and how to improve it; nothing if all layers are like those that were learned from."""
    if not found.rough_share:
        return
    time_us, share = found.time_us, "all" if found.rough_share > 0.995 else f"{found.rough_share:.0%}"
    yield f"{share} of it is a rough estimate: nothing was learned from layers like these"
    if found.rough_share < _MUCH:
        return
    if 0 < time_us.low <= time_us.value and time_us.high < inf:
        factor = max(time_us.high / time_us.value, time_us.value / time_us.low)
        yield f"the time of the whole may be wrong by a factor of {factor:.2g}"
    yield f"for better predictions run `convwright sample --for 2h` and `convwright learn` on {found.device}"


def _between(found: Interval) -> str:
    """The bounds of a figure.

    >>> _between(Interval(12.3, 10.0, float("inf"))), _between(Interval(1234.5, 1000.0, 2000.0))
    ('10.0 and ∞', '1,000 and 2,000')
    """
    digits = 0 if found.value >= 100 else 1
    high = "∞" if found.high == inf else f"{found.high:,.{digits}f}"
    return f"{found.low:,.{digits}f} and {high}"
