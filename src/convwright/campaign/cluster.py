"""Run a campaign on a Dask cluster: each worker that offers a device measures in shifts.

The store records finished work by claims. A shift that is lost with its worker or the scheduler loses only its current
problem, which another shift claims again; nothing counts twice. Dask only distributes the shifts.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from convwright.campaign.campaign import Campaign
from convwright.campaign.lane import Job, work_on
from convwright.campaign.series import Series
from convwright.campaign.site import sites
from convwright.campaign.tally import Tally
from convwright.clusters import connect, unreachable
from convwright.errors import BackendError, BadInput, ConvwrightError, StoreError, first_line
from convwright.store.claims import Claims, device_if_free
from convwright.store.store import Store
from convwright.store_url import StoreUrl

# The resource that a worker offers for each device. A task for a missing resource would wait forever.
RESOURCES = {"cuda": "GPU", "cpu": "CPU"}
# The longest shift: starting one takes seconds, and a worker that joined late waits for the end of the others.
_MOST_SHIFT_S = 300.0
# How often a failed shift is retried, and how many workers may die of one.
_RETRIES, _DEATHS = 3, 10
_POLL_S, _STOP_S, _CONNECTING_S = 1.0, 2.0, 20.0
# How long workers that are just starting are waited for.
WORKERS_S = 20.0
# How long a worker waits for a device that another process of its machine holds.
_DEVICE_S = 2.0


@dataclass(frozen=True, slots=True)
class Shift:
    """The task of one worker. ``run`` identifies the run of the command, which can be stopped."""

    campaign: Campaign
    device: str
    place: Path | StoreUrl
    seconds: float
    run: str


def shift(asked: Shift) -> dict[str, Any]:
    """Measure on a free device of this machine, and return what was done. Runs in a worker."""
    begun_s, checked_s, stopped = monotonic(), monotonic(), False
    with Store.open(asked.place) as store:

        def ends() -> bool:
            nonlocal checked_s, stopped
            if monotonic() - checked_s > _STOP_S:
                checked_s = monotonic()
                stopped = stopped or _is_stopped(store, asked.run)
            return stopped or monotonic() - begun_s > asked.seconds

        found, tally = sites(asked.device), Tally()
        while not ends():
            for site in found:
                with device_if_free(store, site.identity) as is_held:
                    if is_held:
                        series = Series(asked.campaign, site.facts, store)
                        work_on(Job(series, store, asked.place, tally, ends, lambda: False), site)
                        return {"device": site.facts.label, "problems": tally.problems, "outcomes": tally.outcomes}
            time.sleep(_DEVICE_S)
        return {"device": found[0].facts.label, "problems": 0, "outcomes": {}}


def work_in_shifts(
    address: str,
    campaign: Campaign,
    device: str,
    place: Path | StoreUrl,
    seconds: float,
    tell: Callable[[float, int], None],
) -> tuple[str, Tally]:
    """Let every worker of a cluster measure for this time; returns the devices, and the results of finished shifts.

    A lost scheduler is looked for again until the time is over. ``tell`` receives the seconds left and the number of
    new observations in the store.
    """
    begun_s, run, done = monotonic(), secrets.token_hex(8), _Done()
    with Store.open(place) as store:
        before = _rows(store)

        def heard(left_s: float) -> None:
            tell(left_s, _rows(store) - before)

        try:
            while (left_s := seconds - (monotonic() - begun_s)) > 0:
                try:
                    with connect(address, min(left_s, _CONNECTING_S)) as client:
                        _check(client, address, RESOURCES[device], done, left_s)
                        _shifts(client, Shift(campaign, device, place, left_s, run), done, begun_s + seconds, heard)
                except OSError as error:  # the scheduler is gone, or not there yet
                    if not done.has_begun:
                        raise unreachable(address, error) from error
                    time.sleep(_POLL_S)
        except BaseException:
            _stop(store, run)
            raise
    return " and ".join(sorted(done.devices)) or device, done.tally


def _rows(store: Store) -> int:
    return sum(device.observations for device in store.summary().devices)


class _Done:
    """The results of finished shifts."""

    def __init__(self) -> None:
        self.tally, self.devices, self.has_begun = Tally(), set[str](), False

    def add(self, result: Mapping[str, Any]) -> None:
        self.devices.add(str(result["device"]))
        self.tally.add_counts(int(result["problems"]), Counter(result["outcomes"]))


def _check(client: Any, address: str, resource: str, done: _Done, within_s: float) -> None:
    until_s = monotonic() + min(within_s, WORKERS_S)
    while not (offered := _offers(client, resource)) and not done.has_begun and monotonic() < until_s:
        time.sleep(_POLL_S)
    if not offered and not done.has_begun:
        raise BadInput(
            f"no worker of the cluster at {address} offers the resource {resource}: "
            f"start one for each device with `dask worker {address} --nthreads 1 --resources {resource}=1`"
        )
    client.run_on_scheduler(_allow_deaths, deaths=_DEATHS)
    done.has_begun = True


def _allow_deaths(dask_scheduler: Any, deaths: int) -> None:
    """Raise Dask's limit: by default it gives up a task after three workers died, for whatever reason."""
    dask_scheduler.allowed_failures = max(dask_scheduler.allowed_failures, deaths)


def _offers(client: Any, resource: str) -> int:
    """The number of devices that the workers offer."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return int(sum(worker.get("resources", {}).get(resource, 0) for worker in workers))


def _shifts(client: Any, asked: Shift, done: _Done, until_s: float, tell: Callable[[float], None]) -> None:
    """One shift after the other on each device, including those of workers that join later."""
    resource, open_ = RESOURCES[asked.device], list[Any]()
    while True:
        if client.status != "running":  # Dask would look for the scheduler for minutes, and block every request
            raise OSError("the connection to the scheduler was lost")
        tell(until_s - monotonic())
        open_ = _still_open(open_, done)
        left_s = until_s - monotonic()
        if left_s > 0:
            length_s = min(left_s, _MOST_SHIFT_S)
            asked = Shift(asked.campaign, asked.device, asked.place, length_s, asked.run)
            missing = _offers(client, resource) - len(open_)
            open_ += [
                client.submit(shift, asked, pure=False, resources={resource: 1}, retries=_RETRIES)
                for _ in range(missing)
            ]
        elif not open_ or left_s < -asked.campaign.deadline_s - _CONNECTING_S:
            return
        time.sleep(_POLL_S)


def _still_open(futures: Sequence[Any], done: _Done) -> list[Any]:
    """The shifts that have not ended. Finished ones are counted; those lost with their worker are repeated."""
    for future in futures:
        if future.status == "finished":
            done.add(future.result())
        elif future.status == "error":
            error = future.exception()
            if isinstance(error, ConvwrightError):
                raise error
            if type(error).__name__ != "KilledWorker":
                raise BackendError(f"a worker of the cluster failed: {type(error).__name__}: {first_line(error)}")
    return [future for future in futures if future.status == "pending"]


def _run(store: Store, run: str) -> Claims:
    """The claims in which all machines can read whether a run is stopped."""
    return Claims(store, f"run {run}")


def _stop(store: Store, run: str) -> None:
    with suppress(StoreError):
        _run(store, run).add({"stopped": ""})


def _is_stopped(store: Store, run: str) -> bool:
    try:
        return any(_run(store, run).counts().values())
    except StoreError:  # finishing a task will report it
        return False
