"""Run placed jobs on a cluster, and compare the results with the predictions."""

from __future__ import annotations

import pickle
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import TYPE_CHECKING, Any

from convwright.clusters import connect, unreachable
from convwright.core.record import Record
from convwright.errors import BackendError, BadInput, ConvwrightError, Refused, first_line
from convwright.naming import check_above_0
from convwright.option_names import PlacementObjectiveName
from convwright.placement.at_work import Done, Task, work
from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job
from convwright.placement.place import place
from convwright.placement.placement import Assigned, Placement
from convwright.placement.predicted import Model, with_predictions
from convwright.placement.question import Objective, every
from convwright.wording.progress import progress_to

if TYPE_CHECKING:
    from convwright.store.store import Store
    from convwright.wording.progress import Progress

_CONNECTING_S, _POLL_S = 20.0, 0.1
# How long workers that are just starting are waited for.
WORKERS_S = 20.0
# After this many lost workers while running one job, that job fails.
_DEATHS = 3


@dataclass(frozen=True, slots=True)
class Ran(Record):
    """Batches of a job on an instance: their mean time, measured and predicted."""

    job: str
    instance: str
    batch: int
    batches: int
    batch_s: float
    predicted_s: float
    built_s: float

    def __str__(self) -> str:
        return (
            f"{self.job}: {self.instance}, {self.batches:,} batches of {self.batch}, {self.batch_s * 1e3:.4g} ms each, "
            f"{self.predicted_s * 1e3:.4g} ms were predicted ({self.batch_s / self.predicted_s:.2f} times); "
            f"the engine was built in {self.built_s:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Execution(Record):
    """What ran, the instances ``lost`` meanwhile, and all placements: the first, and one for the remaining work after
    each loss. ``left`` are jobs that could no longer be placed; ``reason`` says why."""

    ran: tuple[Ran, ...]
    lost: tuple[str, ...]
    placements: tuple[Placement, ...]
    left: tuple[str, ...] = ()
    reason: str | None = None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from map(str, self.ran)
        yield from self.placements[0].notes if self.placements else ()
        if self.lost:
            yield f"lost: {', '.join(self.lost)}; what was left was placed anew, {len(self.placements) - 1} times"
        if self.left:
            yield f"not done: {', '.join(self.left)}; {self.reason}"


def run_jobs(
    jobs: Iterable[Job],
    devices: Iterable[Device],
    estimates: Iterable[Estimate] = (),
    objective: Objective | PlacementObjectiveName = "makespan",
    *,
    cluster: str,
    models: Mapping[str, tuple[Any, ...]],
    seconds: float = 10.0,
    store: Store | Path | str | None = None,
    progress: bool | Progress | None = None,
    **options: Any,
) -> Execution:
    """Place jobs as ``place`` does, and run them on the workers of a Dask cluster.

    A worker is one instance of the device whose name it offers as a resource:
    `dask worker tcp://host:8786 --nthreads 1 --resources h200=1`. ``models`` has a model for the key of each job, and
    the worker builds its engine as ``optimize`` does. A one-off job ends after all images or after ``seconds``, a
    stream after ``seconds``. Images are zeros, and nothing is moved. If a worker is lost, the remaining work is placed
    again on the others, with the time that is left until each deadline. ``options`` are options of ``place``.
    """
    jobs, devices = every("jobs", jobs, Job), every("devices", devices, Device)
    estimates = every("estimates", estimates, Estimate)
    check_above_0("seconds", seconds)
    for job in jobs:
        if job.key not in models:
            raise BadInput(
                f"job {job.name!r} cannot run: no model is given for its key {job.key!r}: give one "
                "(`models=`, or a table [[model]])"
            )
    known = {key: Model(*model) for key, model in models.items()}
    estimates, notes = with_predictions(jobs, devices, estimates, known, store=store, progress=progress)
    try:
        client = connect(cluster, _CONNECTING_S)
    except OSError as error:
        raise unreachable(cluster, error) from error
    with client:
        course = _Course(client, devices, {key: _pickled(model) for key, model in known.items()}, seconds)
        left = {job.name: job for job in jobs}
        tell, begun_s = progress_to(progress), monotonic()
        placements, reason = list[Placement](), None
        while left and reason is None:
            tell(len(jobs) - len(left), len(jobs), "running jobs")
            in_time = _in_time(left.values(), monotonic() - begun_s if placements else 0.0)
            if not in_time:
                reason = "the deadline had passed when the work of a lost worker was placed again"
                break
            try:
                workers = course.workers(cluster)
                there = [replace(each, count=len(workers[each.name])) for each in devices if workers[each.name]]
                names = {each.name for each in there}
                of_them = [each for each in estimates if each.device in names]
                found = place(in_time, there, of_them, objective, explain=False, **options)
                placements.append(replace(found, notes=notes))
            except Refused as refused:
                if not placements:
                    raise
                reason = str(refused)
            else:
                for name in course.follow(found, workers):
                    del left[name]
        tell(len(jobs), len(jobs), "")
    return Execution(tuple(course.ran), tuple(course.lost), tuple(placements), tuple(left), reason)


def _in_time(jobs: Iterable[Job], passed_s: float) -> list[Job]:
    """The jobs with the time left until their deadlines, except those whose deadline has passed."""
    found = list[Job]()
    for job in jobs:
        if job.is_stream or job.deadline_s is None:
            found.append(job)
        elif job.deadline_s > passed_s:
            found.append(replace(job, deadline_s=job.deadline_s - passed_s))
    return found


class _Course:
    """A run on the cluster."""

    def __init__(self, client: Any, devices: Sequence[Device], models: Mapping[str, bytes], seconds: float) -> None:
        self._client, self._devices, self._models, self._seconds = client, devices, models, seconds
        self.ran, self.lost, self._deaths = list[Ran](), list[str](), Counter[str]()
        self._has_begun = False

    def workers(self, address: str) -> dict[str, list[str]]:
        """The workers of each device, at most one per instance. At the start all of them are waited for."""
        until_s, names = monotonic() + WORKERS_S, [each.name for each in self._devices]
        while True:
            offered = {name: worker.get("resources", {}) for name, worker in self._there().items()}
            found = {
                each.name: sorted(name for name, has in offered.items() if has.get(each.name))[: each.count]
                for each in self._devices
            }
            is_late = monotonic() > until_s
            if all(len(found[each.name]) == each.count for each in self._devices):
                return found
            if any(found.values()) and (is_late or self._has_begun):
                return found
            if is_late:
                raise Refused(
                    f"no worker of the cluster at {address} offers one of {', '.join(names)}: start one for each "
                    f"device with `dask worker {address} --nthreads 1 --resources {names[0]}=1`"
                )
            sleep(_POLL_S)

    def _there(self) -> Mapping[str, Any]:
        if self._client.status != "running":
            raise BackendError("the connection to the cluster's scheduler was lost")
        workers: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def follow(self, found: Placement, workers: Mapping[str, Sequence[str]]) -> list[str]:
        """Run the placement until it is done or a worker is lost; returns the finished jobs."""
        starts = {run.job: run.start_s for run in found.runs}
        waiting: dict[str, deque[Assigned]] = {}
        self._has_begun = True
        for each in sorted(found.assigned, key=lambda each: starts.get(each.job.name, 0.0)):
            for instance in each.instances:
                waiting.setdefault(instance, deque()).append(each)
        parts = {each.job.name: len(each.instances) for each in found.assigned}
        running: dict[str, tuple[Assigned, Any]] = {}
        lost = list[str]()
        while True:
            there = self._there()
            for instance, (each, future) in list(running.items()):
                if _address(instance, workers) not in there:
                    lost.append(instance)
                    del running[instance]
                    self._count_death(each.job)
                elif (done := _result(future, each)) is not None:
                    del running[instance]
                    parts[each.job.name] -= 1
                    self.ran.append(_compared(each, instance, done))
            for instance, queue in waiting.items() if not lost else ():
                if instance not in running and queue:
                    each = queue.popleft()
                    running[instance] = each, self._begin(each, _address(instance, workers))
            if not running:
                self.lost += lost
                return [name for name, left in parts.items() if not left]
            sleep(_POLL_S)

    def _count_death(self, job: Job) -> None:
        self._deaths[job.name] += 1
        if self._deaths[job.name] == _DEATHS:
            raise BackendError(f"{_DEATHS} workers were lost while they ran job {job.name!r}, which may be the reason")

    def _begin(self, each: Assigned, worker: str) -> Any:
        job, device = each.job, next(known for known in self._devices if known.name == each.way.device)
        rate_per_s = None if job.rate_per_s is None else job.rate_per_s / len(each.instances)
        on_cpu = (device.kind or device.name).startswith("cpu")
        task = Task(job.key, self._models[job.key], each.way.batch, on_cpu, self._seconds, job.images, rate_per_s)
        return self._client.submit(work, task, workers=[worker], pure=False, retries=0)


def _address(instance: str, workers: Mapping[str, Sequence[str]]) -> str:
    device, _, number = instance.rpartition("/")
    return workers[device][int(number)]


def _result(future: Any, each: Assigned) -> Done | None:
    """The result of a task; None while it runs."""
    if future.status == "error":
        error = future.exception()
        if isinstance(error, ConvwrightError):
            raise error
        raise BackendError(
            f"job {each.job.name!r} failed on a worker: {type(error).__name__}: {first_line(error)}"
        ) from error
    return Done(*future.result()) if future.status == "finished" else None


def _compared(each: Assigned, instance: str, done: Done) -> Ran:
    job, way = each.job, each.way
    planned = 1 if job.images is None else -(-job.images // way.batch)
    batch_s = done.run_s / max(done.batches, 1)
    return Ran(job.name, instance, way.batch, done.batches, batch_s, way.run_s / planned, done.built_s)


def _is_installed(module: ModuleType) -> bool:
    return module.__name__.startswith("convwright.") or "site-packages" in (module.__file__ or "site-packages")


def _pickled(model: Model) -> bytes:
    """A model with the code of its classes, except classes of installed packages, which workers have too."""
    import cloudpickle

    for name in {type(each).__module__ for each in model.module.modules()} - {"__main__"}:
        module = sys.modules.get(name)
        if module is not None and not _is_installed(module):
            cloudpickle.register_pickle_by_value(module)
    pickled: bytes = cloudpickle.dumps(tuple(model), protocol=pickle.HIGHEST_PROTOCOL)
    return pickled
