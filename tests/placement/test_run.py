"""A placement on a real Dask cluster, and what is done where one of its workers is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any

import pytest
import torch
from torch import nn

from convwright.core.finding import Interval
from convwright.errors import BadInput, Refused
from convwright.placement import Device, Estimate, Job, at_work, run_jobs
from convwright.placement import run as run_module
from dask_cluster import Cluster, free_port

pytest.importorskip("distributed")
pytest.importorskip("scipy")

DEVICES = Device("cpu-fast", 10**9), Device("cpu-slow", 10**9)
ESTIMATES = tuple(
    Estimate("net", device, 4, Interval(us, us, us), 10**6)
    for device, us in (("cpu-fast", 500.0), ("cpu-slow", 1000.0))
)


class Net(nn.Module):
    """Of this module, which workers do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).relu()


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    return {"net": (Net().eval(), torch.ones(1, 3, 16, 16))}


@contextmanager
def killing(cluster: Cluster) -> Iterator[threading.Event]:
    """Kills the first worker two seconds after the event is set."""
    begun = threading.Event()

    def kill() -> None:
        if begun.wait(60):
            sleep(2.0)
            cluster.kill_worker(0)

    thread = threading.Thread(target=kill)
    thread.start()
    yield begun
    thread.join()


@pytest.mark.slow
def test_jobs_run_where_they_are_placed_and_a_lost_workers_jobs_elsewhere() -> None:
    jobs = [Job("stream", "net", (4,), rate_per_s=100.0), Job("long", "net", (4,), images=10**9)]
    with Cluster("cpu-fast=1", "cpu-slow=1") as cluster, killing(cluster) as begun:
        found = run_jobs(
            jobs, DEVICES, ESTIMATES, cluster=cluster.address, models=models(), seconds=8.0,
            progress=lambda done, total, what: begun.set(),
        )  # fmt: skip
    assert found.lost == ("cpu-fast/0",)
    assert len(found.placements) == 2
    ran = {each.job: each for each in found.ran}
    assert set(ran) == {"stream", "long"}
    assert all(each.instance == "cpu-slow/0" for each in found.ran)
    assert "was placed anew, 1 times" in str(found)


@pytest.mark.slow
def test_after_a_loss_deadlines_are_closer() -> None:
    """Of two jobs of a lost worker, one is placed again, and for the other it is too late."""
    own = Job("own", "slow net", (4,), images=10**9)
    jobs = [own, *(Job(f"by {by_s} s", "net", (4,), images=10**9, deadline_s=by_s) for by_s in (1, 60))]
    times = {"net": (1e-3, 1e-2), "slow net": (1.0, 1e-3)}  # as if a job took from a quarter of a second to minutes
    estimates = [
        Estimate(key, device.name, 4, Interval(us, us, us), 10**6)
        for key, each in times.items() for device, us in zip(DEVICES, each, strict=True)
    ]  # fmt: skip
    with Cluster("cpu-fast=1", "cpu-slow=1") as cluster, killing(cluster) as begun:
        found = run_jobs(
            jobs, DEVICES, estimates, cluster=cluster.address, models=models() | {"slow net": models()["net"]},
            seconds=8.0, progress=lambda done, total, what: begun.set(),
        )  # fmt: skip
    assert found.lost == ("cpu-fast/0",)
    assert {each.job: each.instance for each in found.ran} == {"own": "cpu-slow/0", "by 60 s": "cpu-slow/0"}
    assert str(found).splitlines()[-1] == (
        "not done: by 1 s; the deadline had passed when the work of a lost worker was placed again"
    )


def test_batches_are_timed_beside_what_was_predicted() -> None:
    jobs = [Job("stream", "net", (4,), rate_per_s=200.0), Job("short", "net", (4,), images=402)]
    # One process is both devices, so that PyTorch is loaded only once. The slow tests have two.
    with Cluster("cpu-fast=1 cpu-slow=1") as cluster:
        found = run_jobs(jobs, DEVICES, ESTIMATES, cluster=cluster.address, models=models(), seconds=1.0)
    ran = {each.job: each for each in found.ran}
    assert (ran["short"].batches, ran["stream"].batches) == (101, 50)
    assert {each.instance for each in found.ran} == {"cpu-fast/0", "cpu-slow/0"}
    placed = {each.job.name: each.instances for each in found.placements[0].assigned}
    for each in found.ran:
        assert placed[each.job] == (each.instance,)
        assert each.predicted_s == pytest.approx(5e-4 if each.instance == "cpu-fast/0" else 1e-3)
        assert 0 < each.batch_s < 1
        assert each.built_s > 0
    assert "101 batches of 4" in str(found)
    assert found.to_json()["lost"] == []


@pytest.mark.slow
def test_what_no_worker_is_left_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "WORKERS_S", 10.0)
    with Cluster("cpu-fast=1") as cluster:
        timer = threading.Timer(9.0, lambda: cluster.kill_worker(0))
        timer.start()
        found = run_jobs(
            [Job("long", "net", (4,), images=10**9)], DEVICES[:1], ESTIMATES[:1], cluster=cluster.address,
            models=models(), seconds=60.0,
        )  # fmt: skip
    assert (found.ran, found.lost, found.left) == ((), ("cpu-fast/0",), ("long",))
    assert str(found).splitlines()[-1].startswith("not done: long; no worker of the cluster at tcp://")


def test_what_cannot_run_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "WORKERS_S", 0.1)
    jobs, address = [Job("short", "net", (4,), images=4)], f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(
        BadInput,
        match=r"^job 'short' cannot run: no model is given for its key 'net': give one "
        r"\(`models=`, or a table \[\[model\]\]\)$",
    ):
        run_jobs(jobs, DEVICES, ESTIMATES, cluster=address, models={})
    monkeypatch.setattr(run_module, "_CONNECTING_S", 0.2)
    with pytest.raises(BadInput, match=f"^no Dask scheduler answers at {address}: "):
        run_jobs(jobs, DEVICES, ESTIMATES, cluster=address, models=models())
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=None) as empty:
        address = empty.scheduler_address
        with pytest.raises(Refused, match=f"^no worker of the cluster at {address} offers one of cpu-fast, cpu-slow: "):
            run_jobs(jobs, DEVICES, ESTIMATES, cluster=address, models=models())


def test_a_stream_ends_in_time_even_if_the_engine_is_too_slow() -> None:
    class Slow:
        device = torch.device("cpu")

        def run(self) -> None:
            sleep(0.02)

    engine: Any = Slow()
    begun = perf_counter()
    done, _ = at_work._stream(engine, at_work.Task("net", b"", 1, True, 0.2, None, 500.0), 500.0)
    assert perf_counter() - begun < 1.0  # 100 images would take 2 s
    assert 1 <= done <= 11


def test_a_job_that_ends_leaves_its_engine_to_streams_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quick:
        device = torch.device("cpu")

        def run(self) -> None:
            sleep(0.001)

    built = list[bytes]()
    monkeypatch.setattr(at_work, "_engines", {})
    monkeypatch.setattr(at_work, "_built", lambda task: built.append(task.model) or Quick())
    for model, rate_per_s in ((b"a", None), (b"a", None), (b"b", None), (b"c", 50.0), (b"b", 50.0), (b"c", 50.0)):
        at_work.work(at_work.Task("net", model, 1, True, 0.01, 2, rate_per_s))
    assert built == [b"a", b"b", b"c"]
    assert len(at_work._engines) == 2
