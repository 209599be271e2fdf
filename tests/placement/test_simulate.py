"""The simulation of queues against what is known of them."""

from __future__ import annotations

import pytest

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.placement import Device, Estimate, Job, Placement, place, simulate


def placed(*jobs: Job, batch: int = 1, seconds: float = 0.01, count: int = 1) -> Placement:
    time = Interval(seconds * 1e6, seconds * 1e6, seconds * 1e6)
    devices = [Device("gpu", 100, count=count)]
    return place(jobs, devices, [Estimate("net", "gpu", batch, time, 1)], "latency", explain=False)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_images_one_by_one_wait_as_in_a_queue_of_fixed_service(load: float) -> None:
    """M/D/1: the mean wait is load / (2 (1 − load)) times the time of service."""
    found = simulate(placed(Job("cam", "net", (1,), rate_per_s=load / 0.01)), seconds=2000.0, seed=1)
    wait = found.streams[0].mean_s - 0.01
    assert wait == pytest.approx(0.01 * load / (2 * (1 - load)), rel=0.05)
    assert found.utilisation == (("gpu/0", pytest.approx(load, rel=0.02)),)


def test_streams_of_one_instance_wait_as_one_queue() -> None:
    jobs = [Job(name, "net", (1,), rate_per_s=35.0) for name in ("a", "b")]
    found = simulate(placed(*jobs), seconds=1500.0)
    for each in found.streams:
        assert each.mean_s == pytest.approx(0.01 * (1 + 0.7 / 0.6), rel=0.07)


def test_a_batch_starts_when_it_is_full_or_its_first_image_has_waited() -> None:
    """At low load the first of two waits for the second, by mean 1 / rate, and the second for nothing."""
    placement = placed(Job("cam", "net", (2,), rate_per_s=4.0), batch=2, seconds=0.001)
    full = simulate(placement, seconds=2000.0).streams[0]
    assert full.mean_batch == pytest.approx(2.0, rel=0.01)
    assert full.mean_s == pytest.approx(0.125 + 0.001, rel=0.05)
    short = simulate(placement, seconds=1000.0, wait_limit_s=0.01).streams[0]
    assert short.most_s <= 0.01 + 2 * 0.001 + 1e-9
    # The second comes in time with a probability of 1 − exp(−0.04).
    assert short.mean_batch == pytest.approx(1.04, rel=0.02)


def test_percentiles_deadlines_and_several_instances() -> None:
    job = Job("cam", "net", (1,), rate_per_s=150.0, deadline_s=0.02)
    placement = placed(job, count=2)
    found = simulate(placement, seconds=100.0, seed=3)
    stream = found.streams[0]
    assert len(found.utilisation) == 2
    assert 0.01 <= stream.p50_s <= stream.p90_s <= stream.p99_s <= stream.most_s
    assert stream.late is not None
    assert 0 < stream.late < 1
    assert stream.images == pytest.approx(15_000, rel=0.05)
    assert simulate(placement, seconds=100.0, seed=3) == found


def test_more_images_than_memory_holds_are_refused() -> None:
    jobs = [Job("a", "net", (1,), rate_per_s=100.0)]
    placement = place(jobs, [Device("gpu", 9)], [Estimate("net", "gpu", 1, Interval(1.0, 1.0, 1.0), 1)], "latency")
    with pytest.raises(
        BadInput, match=r"^about 1e\+08 images arrive in 1e\+06 s, and at most 20,000,000 are simulated"
    ):
        simulate(placement, seconds=1e6)


def test_no_stream_no_simulation() -> None:
    placement = place(
        [Job("a", "net", (1,), images=1)], [Device("gpu", 9)], [Estimate("net", "gpu", 1, Interval(1.0, 1.0, 1.0), 1)]
    )
    with pytest.raises(BadInput, match=r"^a simulation needs a stream: give a job of the placement a rate_per_s"):
        simulate(placement)
