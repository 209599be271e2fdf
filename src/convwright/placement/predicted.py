"""Predict estimates that nobody has measured, from the plans of engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job

if TYPE_CHECKING:
    from torch import nn

    from convwright.store.store import Store
    from convwright.wording.progress import Progress


class Model(NamedTuple):
    """A model, an example of its input, and the precision of its layers, as for ``optimize``."""

    module: nn.Module
    example: Any
    precision: str | None = None


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
) -> tuple[Estimate, ...]:
    """The given estimates, and predictions of all others that jobs with a model may need. Nothing runs."""
    given = tuple(estimates)
    asked = list(missing(jobs, devices, given, models))
    return (*given, *_predicted(asked, models, store, progress)) if asked else given


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
) -> Iterator[Estimate]:
    from convwright.core.policy import Policy
    from convwright.engine.export.inputs import check_evaluates, inputs_of
    from convwright.engine.predict import with_batch
    from convwright.engine.predicting import Capture, captured, planned
    from convwright.measuring.hardware.machine import device_facts
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
            watts = None if found.power_w is None else found.power_w.value
            yield Estimate(key, device.name, batch, found.time_us, found.memory_bytes, watts)
    tell(len(asked), len(asked), "")
