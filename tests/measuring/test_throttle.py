"""What was timed while the device was slowed down does not count, and that is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from convwright.measuring.clock import HostClock, WallClock
from convwright.measuring.disturbances import waiting
from convwright.measuring.disturbances.throttle import GpuWatch, HostWatch, Watch, watch_of
from convwright.measuring.hardware.nvml import IDLE, Gpu, gpu
from convwright.measuring.timer import Timing, measure_calls
from measuring.fake_clock import FakeClock
from measuring.fake_nvml import CLOCK_INFO, EVENT_REASONS, MAX_CLOCK_INFO, FakeNvml

FULL = 1980
FINE = [
    (FULL, 0),
    (1485, 0),  # just 75 %
    (1600, 0x004),  # the power limit
    (210, IDLE),
]
SLOW = [
    (1484, 0, "1484 MHz of 1980"),
    (FULL, 0x008, "hw-slowdown"),
    (FULL, 0x020, "sw-thermal"),
    (FULL, 0x044, "hw-thermal"),
    (FULL, 0x080, "hw-power-brake"),
]


def seen(clock_mhz: int, reasons: int) -> str | None:
    return GpuWatch(
        gpu("GPU-1", FakeNvml({CLOCK_INFO: clock_mhz, MAX_CLOCK_INFO: FULL, EVENT_REASONS: reasons}))
    ).slowed()


@pytest.mark.parametrize(("clock_mhz", "reasons"), FINE)
def test_a_gpu_that_runs_as_it_should(clock_mhz: int, reasons: int) -> None:
    assert seen(clock_mhz, reasons) is None


@pytest.mark.parametrize(("clock_mhz", "reasons", "word"), SLOW)
def test_a_gpu_that_is_slowed_down(clock_mhz: int, reasons: int, word: str) -> None:
    found = seen(clock_mhz, reasons)
    assert found is not None
    assert word in found


def test_a_gpu_that_tells_nothing_is_not_accused() -> None:
    assert GpuWatch(Gpu()).slowed() is None
    assert Watch().slowed() is None


def test_who_is_watched_depends_on_whose_time_is_told() -> None:
    assert isinstance(watch_of(WallClock()), HostWatch)
    assert type(watch_of(HostClock())) is type(watch_of(FakeClock())) is Watch


class HotClock(FakeClock, Watch):
    """A device that is too hot from some moment to another, and then takes twice as long."""

    def __init__(self, seed: int, hot_us: tuple[float, float]) -> None:
        super().__init__(seed, drift=0.0)
        self._from_us, self._to_us = hot_us
        self.looks = 0

    @property
    def hot(self) -> bool:
        return self._from_us <= self.now_us() < self._to_us

    def slowed(self) -> str | None:
        self.looks += 1
        return "slowed down (hw-thermal)" if self.hot else None

    def _sample_us(self, call, n, cost_us):  # type: ignore[no-untyped-def]
        return super()._sample_us(call, n, cost_us * (2 if self.hot else 1))


def timed(clock: HotClock, budget_us: float = 1e6) -> Timing:
    return measure_calls({"": lambda: 7.0}, clock=clock, budget_us=budget_us, watch=clock, precision=0.005)[""]


def test_rounds_of_a_slow_device_are_discarded_and_that_is_said() -> None:
    timing = timed(HotClock(1, (3e4, 1.2e5)))
    assert timing.discarded > 20
    assert len(timing.round_slopes_us) * 3 == timing.samples
    assert timing.call_us.value == pytest.approx(7.0, rel=0.01)
    assert timing.unstable is not None
    assert f"{timing.discarded} rounds were discarded with the device slowed down (hw-thermal)" in timing.unstable
    assert "lock the clocks" in timing.unstable


def test_where_all_rounds_are_slow_all_count_and_that_is_said() -> None:
    timing = timed(HotClock(1, (0.0, 1e12)), budget_us=1e5)
    assert timing.discarded == 0
    assert timing.call_us.value == pytest.approx(14.0, rel=0.02)
    assert timing.unstable is not None
    assert "too many to discard" in timing.unstable
    assert not timing.disturbed, "it is so set, which does not pass"


def test_the_device_is_looked_at_now_and_then_only() -> None:
    clock = HotClock(1, (0.0, 1e12))
    timing = timed(clock, budget_us=1e6)
    assert clock.looks <= 1e6 / 20_000 + 25
    assert clock.looks < timing.samples / 3 / 5


class BusyHost(FakeClock):
    """A host on which in stretches other work has the cores for nearly all of the time."""

    def __init__(self, seed: int, *, busy: Callable[[float], bool]) -> None:
        super().__init__(seed, drift=0.0, outliers=0.0, noise=0.001)
        self.waited_us, self._is_busy = 0.0, busy

    def _sample_us(self, call: Callable[[], object], n: int, cost_us: float) -> float:
        extra_us = 24_000.0 if self._is_busy(self.now_us()) else 0.0
        self.waited_us += extra_us
        self._now_us += extra_us
        return super()._sample_us(call, n, cost_us) + extra_us


def timed_beside(clock: BusyHost, monkeypatch: pytest.MonkeyPatch) -> Timing:
    monkeypatch.setattr(waiting, "waited_ns", lambda: {"main": int(clock.waited_us * 1e3)})
    monkeypatch.setattr(waiting, "now_ns", lambda: int(clock.now_us() * 1e3))
    return measure_calls({"": lambda: 35.0}, clock=clock, budget_us=2e5, precision=1e-5, watch=HostWatch())[""]


def test_rounds_beside_other_work_do_not_count_and_the_rest_does(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = timed_beside(BusyHost(1, busy=lambda now_us: now_us % 40_000 < 30_000), monkeypatch)
    assert timing.call_us.value == pytest.approx(35.0, rel=0.02)
    assert timing.discarded >= 3
    assert not timing.disturbed
    assert timing.unstable is not None
    assert "disturbed" not in timing.unstable, "rounds that do not count say nothing against the others"


def test_where_other_work_never_stops_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = timed_beside(BusyHost(1, busy=lambda now_us: True), monkeypatch)
    assert timing.disturbed
    assert timing.unstable is not None
    assert "rounds, too many to discard, were disturbed by other work" in timing.unstable
    assert any("had the cores for " in cause for cause in timing.background)


def test_a_little_other_work_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = BusyHost(1, busy=lambda now_us: False)
    monkeypatch.setattr(waiting, "now_ns", lambda: int(clock.now_us() * 1e3))
    monkeypatch.setattr(waiting, "waited_ns", lambda: {"main": int(clock.now_us() * 0.1e3)})
    assert measure_calls({"": lambda: 35.0}, clock=clock, budget_us=2e5, watch=HostWatch())[""].discarded == 0
