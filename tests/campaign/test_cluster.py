"""A campaign on a Dask cluster: a worker that is killed and a scheduler that is restarted cost nothing but time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import monotonic

import pytest

import convwright as cw
from convwright.campaign import cluster as cluster_module
from convwright.errors import BadInput
from convwright.store.store import Store
from dask_cluster import Cluster, free_port

pytest.importorskip("distributed")


@pytest.mark.slow
def test_a_worker_and_a_scheduler_that_are_killed_and_started_again_cost_nothing_but_time(tmp_path: Path) -> None:
    place, began_s, before = tmp_path / "store.sqlite", monotonic(), 0
    with Cluster("CPU=1") as cluster:

        def progress(done: int, total: int, what: str) -> None:
            nonlocal before
            rows = int(what.partition(" rows")[0] or 0)
            assert monotonic() - began_s < 140
            if rows and not before:
                before = rows
                cluster.kill()
                cluster.start()
            elif rows > before:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cw.sample(
                "cpu", seconds=150, sources="kinds", store=place, cluster=cluster.address, most=2, timing_us=2e3,
                repeat=0.0, progress=progress,
            )  # fmt: skip
    with Store.open(place) as store:
        seen = list(store.observations())
    assert len(seen) > before > 0
    numbers = Counter(
        (dict(each.measurement.conditions)["problem number"], each.candidate.id)
        for each in seen
        if each.measurement is not None
    )
    assert set(numbers.values()) == {1}


def test_a_cluster_that_cannot_measure_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "WORKERS_S", 0.1)
    place, port = tmp_path / "store.sqlite", free_port()
    with pytest.raises(BadInput, match=f"no Dask scheduler answers at tcp://127.0.0.1:{port}: "):
        cw.sample("cpu", seconds=2, store=place, cluster=f"tcp://127.0.0.1:{port}")
    with pytest.raises(BadInput, match="need a store that all of them reach, and this one is in memory only"):
        cw.sample("cpu", seconds=2, store="none", cluster=f"tcp://127.0.0.1:{port}")
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=None) as empty:
        address = empty.scheduler_address
        with pytest.raises(BadInput, match=f"no worker of the cluster at {address} offers the resource CPU: start one"):
            cw.sample("cpu", seconds=5, store=place, cluster=address)
