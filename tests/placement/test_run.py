"""A placement on a real Dask cluster, and what is done where one of its workers is killed."""

from __future__ import annotations

import threading
from time import monotonic, sleep

import pytest
import torch
from torch import nn

from convwright.core.finding import Interval
from convwright.errors import BadInput, Refused
from convwright.placement import Device, Estimate, Job, run_jobs
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


@pytest.mark.slow
def test_jobs_run_where_they_are_placed_and_a_lost_workers_jobs_elsewhere() -> None:
    jobs = [Job("stream", "net", (4,), rate_per_s=100.0), Job("long", "net", (4,), images=10**9)]
    with Cluster("cpu-fast=1", "cpu-slow=1") as cluster:

        def lose() -> None:
            until_s = monotonic() + 60
            while not begun.is_set() and monotonic() < until_s:
                sleep(0.1)
            sleep(2.0)
            cluster.kill_worker(0)

        begun = threading.Event()
        thread = threading.Thread(target=lose)
        thread.start()
        found = run_jobs(
            jobs, DEVICES, ESTIMATES, cluster=cluster.address, models=models(), seconds=8.0,
            progress=lambda done, total, what: begun.set(),
        )  # fmt: skip
        thread.join()
    assert found.lost == ("cpu-fast/0",)
    assert len(found.placements) == 2
    ran = {each.job: each for each in found.ran}
    assert set(ran) == {"stream", "long"}
    assert all(each.instance == "cpu-slow/0" for each in found.ran)
    assert "was placed anew, 1 times" in str(found)


def test_batches_are_timed_beside_what_was_predicted() -> None:
    jobs = [Job("stream", "net", (4,), rate_per_s=200.0), Job("short", "net", (4,), images=402)]
    with Cluster("cpu-fast=1", "cpu-slow=1") as cluster:
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
    with pytest.raises(BadInput, match=r"^job 'short' cannot run: no model is given for its key 'net'$"):
        run_jobs(jobs, DEVICES, ESTIMATES, cluster=address, models={})
    monkeypatch.setattr(run_module, "_CONNECTING_S", 0.2)
    with pytest.raises(BadInput, match=f"^no Dask scheduler answers at {address}: "):
        run_jobs(jobs, DEVICES, ESTIMATES, cluster=address, models=models())
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=None) as empty:
        address = empty.scheduler_address
        with pytest.raises(Refused, match=f"^no worker of the cluster at {address} offers one of cpu-fast, cpu-slow: "):
            run_jobs(jobs, DEVICES, ESTIMATES, cluster=address, models=models())
