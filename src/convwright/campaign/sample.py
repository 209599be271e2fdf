"""``convwright.sample``: measure candidates of many problems for some time, and store the observations."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import torch

from convwright.campaign.campaign import DEADLINE_S, MOST_CANDIDATES, REPEAT, TIMING_US, Campaign
from convwright.campaign.cluster import RESOURCES, work_in_shifts
from convwright.campaign.lane import Job, work
from convwright.campaign.problems import shares_of
from convwright.campaign.sampled import Sampled
from convwright.campaign.series import Series
from convwright.campaign.site import Site, sites
from convwright.campaign.tally import Tally
from convwright.clusters import check_address
from convwright.core.device import DeviceFacts
from convwright.core.predictor import Predictor
from convwright.errors import BadInput, StoreError
from convwright.naming import check_above_0
from convwright.prediction.corrections import predictor_for
from convwright.settings import settings, store_place
from convwright.store.store import Store
from convwright.store_url import StoreUrl
from convwright.uncompiled import uncompiled
from convwright.wording.progress import Progress, progress_to

_POLL_S = 0.1


@uncompiled()
def sample(
    device: str | None = None,
    *,
    seconds: float,
    seed: int = 0,
    sources: str | Iterable[str] | Mapping[str, float] | None = None,
    store: Store | Path | str | None = None,
    campaign: str | None = None,
    gpus: str | Sequence[int] = "all",
    repeat: float = REPEAT,
    energy_every: int | None = None,
    adaptive: bool = False,
    predictor: Predictor | None = None,
    deadline_s: float = DEADLINE_S,
    timing_us: float | None = None,
    most: int = MOST_CANDIDATES,
    cluster: str | None = None,
    progress: bool | Progress | None = None,
) -> Sampled:
    """Measure candidates of many problems for ``seconds``, and keep an observation of each in the store.

    Problems come from ``sources``: "random" convolutions, layers of "networks" and their neighbours, and other "kinds".
    Equal seeds draw equal problems. A campaign that was started before continues where it stopped, on any number of
    machines that share the store. Each device has a measuring process of its own. A candidate that ends this process,
    or that exceeds ``deadline_s``, is an observation as well.

    Args:
        device: "cpu" or "cuda"; by default the GPUs, if there are any.
        seconds: For how long new candidates are started.
        sources: Their names, ["random", "networks"], or shares: {"random": 2, "networks": 1}, "random=2,networks=1".
        store: A store, or its path; by default the one from the settings.
        campaign: Its name; by default one for each seed.
        gpus: "all", or their numbers.
        repeat: The share of problems that are measured again, which shows the scatter of times.
        energy_every: The number of timings per measurement of energy, which takes 5 s.
        adaptive: Measure those of many drawn problems that ``predictor`` knows least of; by default it is learned from
            the store's findings for the device.
        deadline_s: The time limit for one candidate, including everything.
        timing_us: The time for the rounds of one candidate.
        most: About how many candidates of one problem are measured.
        cluster: The address of a Dask scheduler, "tcp://host:8786", whose workers measure instead of this machine.
    """
    check_above_0("`seconds`", seconds)
    begun_s, tell = perf_counter(), progress_to(progress)
    where = device or ("cuda" if cluster or torch.cuda.is_available() else "cpu")
    kind = where.partition(":")[0]
    asked = Campaign(
        f"seed {seed}" if campaign is None else campaign, seed, shares_of(sources), repeat, energy_every,
        TIMING_US.get(kind, TIMING_US["cpu"]) if timing_us is None else timing_us, deadline_s, most,
        adaptive or predictor is not None,
    )  # fmt: skip
    place = _place(store)
    if cluster is not None:
        check_cluster(cluster, where, gpus)
        return _on_cluster(cluster, asked, where, place, seconds, tell)
    found = sites(where, gpus)
    with _opened(store, place) as kept:
        return _sampled(asked, found, kept, place, predictor, begun_s, seconds, tell)


def check_cluster(address: str, device: str, gpus: str | Sequence[int] = "all") -> None:
    """Refuse a cluster that cannot be used for this device."""
    check_address(address)
    if device not in RESOURCES:
        raise BadInput(f"the device of a cluster is one of {', '.join(RESOURCES)}, got {device!r}")
    if gpus != "all":
        raise BadInput(f"`gpus` are GPUs of this machine, and the workers of a cluster use their own: got {gpus!r}")


def check_device(device: str | None, gpus: str | Sequence[int] = "all", cluster: str | None = None) -> None:
    """Refuse a device that cannot be measured, before a store is opened."""
    if cluster is not None:
        check_cluster(cluster, device or "cuda", gpus)
    else:
        sites(device or ("cuda" if torch.cuda.is_available() else "cpu"), gpus)


def _place(store: Store | Path | str | None) -> Path | StoreUrl | None:
    """Where other processes find the store; None if they cannot."""
    if store is None:
        return settings().store_path
    if isinstance(store, Store):
        return store.path
    return store_place("`store`", store) if isinstance(store, str) else store


@contextmanager
def _opened(given: Store | Path | str | None, place: Path | StoreUrl | None) -> Iterator[Store]:
    """The given or named store. A failure is an error here, since measurements must be kept."""
    if isinstance(given, Store):
        yield given
        return
    if place is None:
        raise BadInput("a campaign needs a store, and this one keeps nothing: name a file with --store (`store=`)")
    with Store.open(place) as store:
        if store.unkept is not None:
            raise StoreError(f"a campaign needs a store that keeps its observations: {store.unkept}")
        yield store


def _on_cluster(
    address: str, campaign: Campaign, device: str, place: Path | StoreUrl | None, seconds: float, tell: Progress
) -> Sampled:
    if place is None:
        raise BadInput("the workers of a cluster need a store that all of them reach, and this one is in memory only")
    if campaign.adaptive:
        raise BadInput("a campaign on a cluster is not adaptive: run it on one machine, or leave the predictor out")
    begun_s = perf_counter()
    devices, tally = work_in_shifts(
        address, campaign, device, place if isinstance(place, StoreUrl) else place.absolute(), seconds,
        lambda left_s, rows: tell(*_progress(seconds - left_s, seconds, f"{rows:,} rows", rows)),
    )  # fmt: skip
    tell(round(seconds), round(seconds), "")
    return Sampled(campaign.name, devices, perf_counter() - begun_s, tally.problems, _counts(tally), {}, None)


def _sampled(
    campaign: Campaign,
    found: Sequence[Site],
    store: Store,
    place: Path | StoreUrl | None,
    predictor: Predictor | None,
    begun_s: float,
    seconds: float,
    tell: Progress,
) -> Sampled:
    devices = {site.facts.key: site.facts for site in found}
    series = {
        key: Series(campaign, facts, store, _predictor(campaign, predictor, store, facts))
        for key, facts in devices.items()
    }
    tally = Tally()
    stops, kill = threading.Event(), threading.Event()

    def spent_s() -> float:
        return perf_counter() - begun_s

    def ends() -> bool:
        return stops.is_set() or spent_s() > seconds

    with ThreadPoolExecutor(len(found), thread_name_prefix="convwright-lane") as pool:
        jobs = ((Job(series[site.facts.key], store, place, tally, ends, kill.is_set), site) for site in found)
        lanes = [pool.submit(work, job, site) for job, site in jobs]
        try:
            _wait_for(lanes, lambda: tell(*_progress(spent_s(), seconds, str(tally), tally.rows)))
        except BaseException:
            _stop(lanes, stops, kill)
            raise
    tell(round(seconds), round(seconds), "")
    tasks: Counter[str] = Counter()
    for each in series.values():
        tasks.update(each.claims.counts())
    device = " and ".join(facts.label for facts in devices.values())
    return Sampled(campaign.name, device, spent_s(), tally.problems, _counts(tally), dict(tasks), store.unkept)


def _counts(tally: Tally) -> dict[str, int]:
    return {str(outcome): count for outcome, count in tally.outcomes.items()}


def _predictor(campaign: Campaign, given: Predictor | None, store: Store, device: DeviceFacts) -> Predictor | None:
    return given or (predictor_for(store, device) if campaign.adaptive else None)


def _wait_for(lanes: Sequence[Future[None]], tell: Callable[[], None]) -> None:
    """Wait until all lanes have ended; raise the error of one that failed."""
    left = set(lanes)
    while left:
        done, left = wait(left, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        for each in done:
            each.result()
        tell()


def _stop(lanes: Sequence[Future[None]], stops: threading.Event, kill: threading.Event) -> None:
    """Let each lane finish its current candidate and store its problem's observations. A second interrupt ends
    everything at once."""
    stops.set()
    try:
        wait(lanes)
    except KeyboardInterrupt:
        kill.set()
        wait(lanes)
        raise


def _progress(spent_s: float, seconds: float, what: str, rows: int) -> tuple[int, int, str]:
    left_s = max(seconds - spent_s, 0.0)
    a_minute = 60 * rows / max(spent_s, 1e-3)
    return (
        min(round(spent_s), round(seconds) - 1),
        round(seconds),
        f"{what}, {a_minute:,.0f} a minute, {left_s:.0f} s left",
    )
