"""The ways to run a job: a device and a batch size, with the resulting times, energy and cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import ceil, inf

from convwright.core.record import Record
from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job
from convwright.placement.question import Objective, Question


@dataclass(frozen=True, slots=True)
class Way(Record):
    """A job on ``instances`` equal devices: one, or more for a stream whose rate needs them.

    ``run_s`` and ``transfer_s`` follow one another. For a one-off job they cover all images, with a full last batch;
    for a stream one batch. ``share`` is the share of its time that each instance spends on a stream. ``energy_j`` and
    ``cost`` are None if power or price are unknown; a stream pays for its instances, which is not counted here.
    """

    job: str
    device: str
    batch: int
    instances: int
    run_s: float
    transfer_s: float
    memory_bytes: int
    power_w: float | None
    energy_j: float | None
    cost: float | None
    share: float = 0.0
    latency_s: float | None = None

    @property
    def busy_s(self) -> float:
        return self.run_s + self.transfer_s


class Hurdle(IntEnum):
    """Why a job cannot run in some way, in the order of the checks."""

    LINK = 0
    MEMORY = 1
    CAP = 2
    POWER = 3
    RATE = 4
    DEADLINE = 5


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected way. ``figure`` is the value that is too large (bytes, watts or seconds), or the rate too small."""

    device: str
    hurdle: Hurdle
    figure: float
    reason: str


def all_ways(question: Question, job: Job) -> Iterator[Way | Rejected]:
    """Each batch size that a job allows, on each device with an estimate."""
    devices = {device.name: device for device in question.devices}
    for estimate in question.estimates:
        if estimate.key == job.key and estimate.batch in job.batches:
            yield _way(question, job, devices[estimate.device], estimate)


def ways_of(question: Question, job: Job, *, but: Way | None = None) -> tuple[Way, ...]:
    """The ways of a job, without ``but``, that no other way on the same device beats or equals in everything that
    counts."""
    kept: list[Way] = []
    found = (way for way in all_ways(question, job) if isinstance(way, Way) and way != but)
    for way in sorted(found, key=lambda way: (*_figures(question, way), way.batch)):
        figures = _figures(question, way)
        alike = (_figures(question, other) for other in kept if other.device == way.device)
        if not any(all(a <= b for a, b in zip(other, figures, strict=True)) for other in alike):
            kept.append(way)
    return tuple(kept)


def _figures(question: Question, way: Way) -> tuple[float, ...]:
    """The figures of a way that count; less is better."""
    energy = way.energy_j or 0.0 if question.needs(Objective.ENERGY) else 0.0
    if way.latency_s is None:
        return way.busy_s, energy  # costs are proportional to times
    latency = way.latency_s if question.needs(Objective.LATENCY) else 0.0
    return float(way.instances), way.share, float(way.memory_bytes), latency, energy


def _way(question: Question, job: Job, device: Device, estimate: Estimate) -> Way | Rejected:
    bandwidth = device.bandwidth(job.source)
    if bandwidth is None:
        return Rejected(device.name, Hurdle.LINK, 0.0, f"has no link to {job.source!r}")
    hurdle = _too_large(question, device, estimate)
    if hurdle is not None:
        return hurdle
    if job.rate_per_s is None:
        return _one_off(job, device, estimate, bandwidth)
    return _stream(question, job, job.rate_per_s, device, estimate, bandwidth)


def _too_large(question: Question, device: Device, estimate: Estimate) -> Rejected | None:
    needed, power, cap = estimate.memory_bytes, estimate.power_w, device.power_cap_w
    if needed > device.memory_bytes:
        reason = f"needs {needed:,} bytes of memory where there are {device.memory_bytes:,}"
        return Rejected(device.name, Hurdle.MEMORY, needed, reason)
    if power is None and (cap is not None or question.needs(Objective.ENERGY)):
        use = "the objective energy" if cap is None else "the device's power cap"
        reason = f"{use} needs its power, which is neither given nor predicted: give power_w in an estimate"
        return Rejected(device.name, Hurdle.POWER, 0.0, reason)
    if power is not None and cap is not None and power > cap:
        return Rejected(device.name, Hurdle.CAP, power, f"needs {power:g} W where the cap is {cap:g} W")
    return None


def _one_off(job: Job, device: Device, estimate: Estimate, bandwidth: float) -> Way | Rejected:
    images = job.images or 0
    run_s = ceil(images / estimate.batch) * estimate.time_us.value / 1e6
    transfer_s = images * job.bytes_per_image / bandwidth
    if run_s + transfer_s > (job.deadline_s or inf):
        reason = f"takes {run_s + transfer_s:.6g} s where the deadline is {job.deadline_s:g} s"
        return Rejected(device.name, Hurdle.DEADLINE, run_s + transfer_s, reason)
    energy_j = None if estimate.power_w is None else estimate.power_w * run_s
    price = device.price_per_hour
    cost = None if price is None else price * (run_s + transfer_s) / 3600
    memory, power = estimate.memory_bytes, estimate.power_w
    return Way(job.name, device.name, estimate.batch, 1, run_s, transfer_s, memory, power, energy_j, cost)


def _stream(
    question: Question, job: Job, rate: float, device: Device, estimate: Estimate, bandwidth: float
) -> Way | Rejected:
    batch, run_s = estimate.batch, estimate.time_us.value / 1e6
    transfer_s = batch * job.bytes_per_image / bandwidth
    load = rate * (run_s + transfer_s) / batch
    # Rounding errors must not require one more device.
    count = max(1, ceil(load / question.utilisation - 1e-9))
    if count > device.count:
        most = device.count * question.utilisation * batch / (run_s + transfer_s)
        reason = f"runs at most {most:.6g} images/s together where the rate is {rate:g}/s"
        return Rejected(device.name, Hurdle.RATE, most, reason)
    # The first image of a batch waits for the last.
    latency_s = (batch - 1) * count / rate + run_s + transfer_s
    if latency_s > (job.deadline_s or inf):
        reason = f"takes {latency_s:.6g} s where the deadline is {job.deadline_s:g} s"
        return Rejected(device.name, Hurdle.DEADLINE, latency_s, reason)
    watts = estimate.power_w
    energy_j = None if watts is None else watts * rate * run_s / batch * question.period_s
    memory, cost = estimate.memory_bytes, None if device.price_per_hour is None else 0.0
    return Way(
        job.name, device.name, batch, count, run_s, transfer_s, memory, watts, energy_j, cost, load / count, latency_s
    )


def why_nowhere(question: Question, job: Job) -> str:
    """One sentence about a job without any way."""
    rejected = [way for way in all_ways(question, job) if isinstance(way, Rejected)]
    hurdles = {each.hurdle for each in rejected}
    if not rejected:
        batches = ", ".join(map(str, job.batches))
        return (
            f"job {job.name!r} runs nowhere: there is no estimate of {job.key!r} with batch {batches} on any device; "
            f"give one (`estimates=`, or a table [[estimate]]), or a model to predict it (`models=`, or [[model]])"
        )
    if hurdles == {Hurdle.MEMORY}:
        most = max(device.memory_bytes for device in question.devices)
        least = min(each.figure for each in rejected)
        needs = f"job {job.name!r} needs at least {least:,.0f} bytes of memory, and the largest device has {most:,}"
        return f"{needs}: take a smaller batch or a larger device"
    if hurdles == {Hurdle.DEADLINE}:
        least = min(each.figure for each in rejected)
        takes = f"job {job.name!r} takes at least {least:.6g} s, and its deadline is {job.deadline_s:g} s"
        return f"{takes}: allow more time, or smaller batches"
    if hurdles == {Hurdle.RATE}:
        most_images = max(each.figure for each in rejected)
        return (
            f"job {job.name!r} has {job.rate_per_s:g} images/s, and all devices of a kind together run at most "
            f"{most_images:.6g}/s: lower the rate, or add devices"
        )
    return f"job {job.name!r} runs nowhere: {'; '.join(_by_device(rejected))}"


def _by_device(rejected: Iterable[Rejected]) -> Iterator[str]:
    """The rejected way of each device that came closest."""
    closest: dict[str, Rejected] = {}
    for each in rejected:
        if each.device not in closest or each.hurdle > closest[each.device].hurdle:
            closest[each.device] = each
    for device, each in sorted(closest.items()):
        yield f"{device}: {each.reason}"
