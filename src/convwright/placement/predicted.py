"""Predict estimates that nobody has measured, from the plans of engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from convwright.errors import BadInput
from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job

if TYPE_CHECKING:
    from torch import nn

    from convwright.core.finding import Interval
    from convwright.engine.network_prediction import NetworkPrediction
    from convwright.store.store import Store
    from convwright.wording.progress import Progress


_MOST_ROUGH = 0.5  # the share of a prediction's time above which a note says that it is rough

_UNLIKE = "are of layers unlike all that its model has learned from"


class Model(NamedTuple):
    """A model, an example of its input, and the precision of its layers, as for ``optimize``."""

    module: nn.Module
    example: Any
    precision: str | None = None


class Known(NamedTuple):
    """Given and predicted estimates. ``notes`` has a sentence for each device whose predictions are rough."""

    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...] = ()


class Predicted(NamedTuple):
    """The prediction of an engine; ``is_learned`` says that a model of the device's times gave it."""

    estimate: Estimate
    found: NetworkPrediction
    is_learned: bool


class Asked(NamedTuple):
    """An engine to predict: of the model of ``key``, for one batch size, on one device."""

    key: str
    batch: int
    device: Device


def with_predictions(
    jobs: Iterable[Job],
    devices: Iterable[Device],
    estimates: Iterable[Estimate],
    models: Mapping[str, Model],
    *,
    store: Store | Path | str | None = None,
    progress: bool | Progress | None = None,
) -> Known:
    """The given estimates, and predictions of all others that jobs with a model may need. Nothing runs."""
    given = tuple(estimates)
    asked = list(missing(jobs, devices, given, models))
    if not asked:
        return Known(given)
    found = list(_predicted(asked, models, store, progress))
    return Known((*given, *(each.estimate for each in found)), tuple(_notes(found)))


def missing(
    jobs: Iterable[Job], devices: Iterable[Device], estimates: Iterable[Estimate], models: Iterable[str]
) -> Iterator[Asked]:
    """Estimates that are missing and have a model, one batch size after another."""
    known = {(each.key, each.batch, each.device) for each in estimates}
    wanted = {(job.key, batch): None for job in jobs if job.key in models for batch in job.batches}
    for key, batch in wanted:
        yield from (Asked(key, batch, each) for each in devices if (key, batch, each.name) not in known)


def _predicted(
    asked: list[Asked], models: Mapping[str, Model], store: Store | Path | str | None, progress: bool | Progress | None
) -> Iterator[Predicted]:
    from convwright.core.policy import Policy
    from convwright.engine.export.inputs import check_evaluates, inputs_of
    from convwright.engine.predict import with_batch
    from convwright.engine.predicting import Capture, captured, planned
    from convwright.measuring.hardware.machine import device_facts
    from convwright.prediction.models import Origin, served
    from convwright.tuning.session import using
    from convwright.wording.progress import progress_to

    tell, captures = progress_to(progress), dict[tuple[str, int], Capture]()
    facts = {each.device.name: device_facts(each.device.kind or each.device.name) for each in asked}
    with using(store) as kept:
        for done, (key, batch, device) in enumerate(asked):
            tell(done, len(asked), f"predicting {key} with batch {batch} on {device.name}")
            if (key, batch) not in captures:
                module, example, precision = models[key]
                check_evaluates(module)
                captures = {(key, batch): captured(module, with_batch(inputs_of(example), batch), precision)}
            found = planned(captures[key, batch], facts[device.name], Policy(), kept).prediction
            if not found.time_us.value:
                raise BadInput(f"nothing runs in the model of {key!r}, so it has no time to predict")
            watts = None if found.power_w is None else found.power_w.value
            estimate = Estimate(key, device.name, batch, found.time_us, found.memory_bytes, watts)
            is_learned = served(facts[device.name], kept.path).origin is not Origin.DATA_SHEET
            yield Predicted(estimate, found, is_learned)
    tell(len(asked), len(asked), "")


def _notes(predicted: Iterable[Predicted]) -> Iterator[str]:
    """A sentence for each device with predictions of which most is rough."""
    rough: dict[str, list[Predicted]] = {}
    for each in predicted:
        if each.found.rough_share > _MOST_ROUGH:
            rough.setdefault(each.estimate.device, []).append(each)
    for device, several in rough.items():
        first, factor = several[0], max(_factor(each.estimate.time_us) for each in several)
        kind = "" if first.found.device == device else f" ({first.found.device})"
        why = _UNLIKE if first.is_learned else "rest on its data sheet"
        wrong = "be far too short" if factor == inf else f"be wrong by a factor of {factor:.2g}"
        yield (
            f"predictions for {device}{kind} {why}, and may {wrong}: give measured times (`estimates=`, or tables "
            "[[estimate]]), or run `convwright sample` and `convwright learn` on that device"
        )


def _factor(time_us: Interval) -> float:
    """How many times too long or too short a time may be."""
    return max(time_us.high / time_us.value, time_us.value / time_us.low)
