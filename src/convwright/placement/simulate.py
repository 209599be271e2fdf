"""Simulate the queues of a placement's streams, event by event, to find latencies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random

from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import check_above_0, check_not_below_0
from convwright.placement.placement import Assigned, Placement

# These take about a minute, and a gigabyte for their latencies.
_MOST_IMAGES = 20_000_000


@dataclass(frozen=True, slots=True)
class Latencies(Record):
    """A stream's seconds from arrival to result, over all images that arrived. ``late`` is the share beyond the
    deadline, None without one. ``mean_batch`` is the mean number of images in a batch."""

    job: str
    images: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    most_s: float
    late: float | None
    mean_batch: float


@dataclass(frozen=True, slots=True)
class Simulated(Record):
    """Latencies by stream, and the share of time that each instance with streams was busy."""

    seconds: float
    streams: tuple[Latencies, ...]
    utilisation: tuple[tuple[str, float], ...]


@dataclass(slots=True)
class _Queue:
    """The images of a stream that wait at one instance, by arrival time."""

    stream: Assigned
    arrivals: Iterator[float]
    wait_s: float
    coming: float = inf
    waiting: deque[float] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.coming = next(self.arrivals, inf)

    def arrive(self, now: float) -> None:
        while self.coming <= now:
            self.waiting.append(self.coming)
            self.coming = next(self.arrivals, inf)

    @property
    def ready(self) -> float:
        """The earliest start of a batch: when it is full, or its first image has waited as long as allowed."""
        batch = self.stream.way.batch
        if len(self.waiting) >= batch:
            return self.waiting[batch - 1]
        if not self.waiting:
            return inf
        # If no more images come, a batch never fills.
        return self.waiting[-1] if self.coming == inf else self.waiting[0] + self.wait_s


def simulate(
    placement: Placement, *, seconds: float = 60.0, wait_limit_s: float | Mapping[str, float] = inf, seed: int = 0
) -> Simulated:
    """Run the streams of a placement with random arrivals, a Poisson process with each stream's rate.

    An image goes to a random instance of its stream. An instance runs one batch at a time. When it is free, it takes
    the batch of the image that waits longest, among streams with a full batch or whose first image has waited for
    ``wait_limit_s`` (one value, or one by stream name). A batch takes as long as a full one, and its images are moved
    one by one. Images arrive for ``seconds``, and all of them are run.
    """
    check_above_0("seconds", seconds)
    streams = [each for each in placement.assigned if each.job.is_stream]
    if not streams:
        raise BadInput("a simulation needs a stream: give a job of the placement a rate_per_s instead of images")
    images = seconds * sum(each.job.rate_per_s or 0.0 for each in streams)
    if images > _MOST_IMAGES:
        raise BadInput(
            f"about {images:.2g} images arrive in {seconds:g} s, and at most {_MOST_IMAGES:,} are simulated: give "
            "fewer seconds"
        )
    waits = {each.job.name: _wait(wait_limit_s, each.job.name) for each in streams}
    queues: dict[str, list[_Queue]] = {}
    for each in streams:
        rate = (each.job.rate_per_s or 0.0) / len(each.instances)
        for instance in each.instances:
            # One generator each, so that a stream's arrivals do not depend on other jobs.
            arrivals = _arrivals(Random(f"{seed} {each.job.name} {instance}"), rate, seconds)
            queues.setdefault(instance, []).append(_Queue(each, arrivals, waits[each.job.name]))
    latencies: dict[str, list[float]] = {each.job.name: [] for each in streams}
    batches = dict.fromkeys(latencies, 0)
    busy = []
    for instance, its in sorted(queues.items()):
        worked, end = _run(its, latencies, batches)
        busy.append((instance, worked / max(end, seconds)))
    found = tuple(_told(each, sorted(latencies[each.job.name]), batches[each.job.name]) for each in streams)
    return Simulated(seconds, found, tuple(busy))


def _wait(limit: float | Mapping[str, float], job: str) -> float:
    wait_s = limit.get(job, inf) if isinstance(limit, Mapping) else limit
    if wait_s != inf:
        check_not_below_0(f"wait_limit_s of {job!r}", wait_s)
    return wait_s


def _arrivals(random: Random, rate: float, seconds: float) -> Iterator[float]:
    now = random.expovariate(rate)
    while now < seconds:
        yield now
        now += random.expovariate(rate)


def _run(queues: Sequence[_Queue], latencies: dict[str, list[float]], batches: dict[str, int]) -> tuple[float, float]:
    """Run all images of an instance; returns its busy time and the end of the last batch."""
    free, worked = 0.0, 0.0
    while True:
        start = _start(queues, free)
        if start == inf:
            return worked, free
        queue = min((each for each in queues if each.ready <= start), key=lambda each: each.waiting[0])
        way, name = queue.stream.way, queue.stream.job.name
        images = [queue.waiting.popleft() for _ in range(min(way.batch, len(queue.waiting)))]
        took = way.run_s + way.transfer_s * len(images) / way.batch
        free, worked = start + took, worked + took
        latencies[name] += (free - arrival for arrival in images)
        batches[name] += 1


def _start(queues: Sequence[_Queue], free: float) -> float:
    """The start of the next batch; moves all images that have arrived by then into their queues."""
    now = free
    while True:
        for queue in queues:
            queue.arrive(now)
        start = max(free, min(queue.ready for queue in queues))
        arrival = min(queue.coming for queue in queues)
        if arrival > start or arrival == inf:
            if start < inf:
                for queue in queues:
                    queue.arrive(start)
            return start
        now = arrival


def _told(stream: Assigned, latencies: Sequence[float], batches: int) -> Latencies:
    name, deadline, count = stream.job.name, stream.job.deadline_s, len(latencies)
    if not count:
        raise BadInput(f"no image of stream {name!r} arrives in so short a time; simulate more seconds")

    def percentile(part: float) -> float:
        return latencies[ceil(part * count) - 1]

    late = None if deadline is None else sum(each > deadline for each in latencies) / count
    return Latencies(
        name,
        count,
        sum(latencies) / count,
        percentile(0.5),
        percentile(0.9),
        percentile(0.99),
        latencies[-1],
        late,
        count / batches,
    )
