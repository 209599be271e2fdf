"""What was timed while the device was slowed down does not count, and that is said."""

from __future__ import annotations

import pytest

from convwright.measuring.clock import WallClock
from convwright.measuring.nvml import IDLE, Gpu, gpu
from convwright.measuring.throttle import GpuWatch, Unwatched, watch_of
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
    assert Unwatched().slowed() is None
    assert isinstance(watch_of(WallClock()), Unwatched)


class HotClock(FakeClock):
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


def test_the_device_is_looked_at_now_and_then_only() -> None:
    clock = HotClock(1, (0.0, 1e12))
    timing = timed(clock, budget_us=1e6)
    assert clock.looks <= 1e6 / 20_000 + 25
    assert clock.looks < timing.samples / 3 / 5
