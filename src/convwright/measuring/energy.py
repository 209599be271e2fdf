"""The energy of one call, from hardware counters, over calls that run back to back for seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Protocol

import torch

from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.measuring.clock import Clock
from convwright.measuring.hardware.machine import text_of
from convwright.measuring.hardware.nvml import Gpu, gpu_of
from convwright.measuring.regression import fit_line

# GPUs update their counter every 10 to 100 ms. A reading is off by up to one such step; this many readings show by how
# much.
_READINGS = 20
_BATCH_US = 20_000.0
_LARGEST_BATCH = 4096
_IDLE_S = 1.0
_POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class Energy(Record):
    """The energy of one call while the device runs nothing else.

    ``call_mj`` includes the idle power, since a call occupies the device. ``power_w`` is the mean power meanwhile.
    ``idle_w`` is the power in the second before, without work (clocks may still have been high). ``source``: "nvml"
    counts a whole GPU with its memory, "rapl" all CPU packages without memory, for all processes together.
    """

    call_mj: Interval
    power_w: float
    idle_w: float | None
    calls: int
    source: str


class Counter(Protocol):
    """Energy since some moment, in millijoules; None if it cannot be read."""

    source: str

    def read_mj(self) -> float | None: ...


class NoCounter:
    """For hardware without a counter."""

    source = "none"

    def read_mj(self) -> None:
        return None


class NvmlCounter:
    """The counter of a GPU, Volta and newer."""

    source = "nvml"

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def read_mj(self) -> float | None:
        return self._gpu.energy_mj


class RaplCounter:
    """The counters of all CPU packages, which wrap to 0 after some minutes."""

    source = "rapl"

    def __init__(self, packages: Sequence[Path]) -> None:
        self._packages = packages
        self._last_uj = [_number(package / "energy_uj") for package in packages]
        self._sum_uj = 0

    def read_mj(self) -> float | None:
        for index, package in enumerate(self._packages):
            now, last = _number(package / "energy_uj"), self._last_uj[index]
            if now is None or last is None:
                return None
            self._sum_uj += now - last if now >= last else now - last + (_number(package / "max_energy_range_uj") or 0)
            self._last_uj[index] = now
        return self._sum_uj / 1000


def counter_of(device: torch.device | str, *, powercap: Path = _POWERCAP) -> Counter:
    """The energy counter of a device. It reads None if there is none, or if this user may not read it."""
    where = torch.device(device)
    if where.type == "cuda":
        return NvmlCounter(gpu_of(where))
    zones = sorted(powercap.glob("intel-rapl:*"))  # AMD's counters have the same name
    packages = [zone for zone in zones if text_of(zone / "name").startswith("package")]
    return RaplCounter(packages) if where.type == "cpu" and packages else NoCounter()


def energy_of(
    call: Callable[[], object], clock: Clock, counter: Counter, *, seconds: float = 5.0, idle_s: float = _IDLE_S
) -> Energy | None:
    """The energy of one call; None without a counter. ``call`` runs back to back for ``seconds``.

    Energy is regressed on the number of calls, like time: the slope is one call. Less than 5 s is too short for GPUs
    whose sensor covers only a quarter of the time.
    """
    if seconds <= 0:
        raise BadInput(f"energy is measured over a time above 0 s, got {seconds}")
    if counter.read_mj() is None:
        return None
    idle_w = _idle_w(counter, idle_s)
    batch = _batch(call, clock)
    _run_for(call, clock, batch, seconds * 1e6 / _READINGS)  # power takes a moment to rise
    begun_us, calls, readings = clock.now_us(), 0, [(0, counter.read_mj())]
    for _ in range(_READINGS):
        calls += _run_for(call, clock, batch, seconds * 1e6 / _READINGS)
        readings.append((calls, counter.read_mj()))
    taken_us = clock.now_us() - begun_us
    known = [(count, mj) for count, mj in readings if mj is not None]
    if len(known) < len(readings):
        return None
    line = fit_line([float(count) for count, _ in known], [mj for _, mj in known])
    power_w = (known[-1][1] - known[0][1]) / taken_us * 1000
    return Energy(line.slope, power_w, idle_w, calls, counter.source)


def _idle_w(counter: Counter, idle_s: float) -> float | None:
    before = counter.read_mj()
    if idle_s <= 0 or before is None:
        return None
    sleep(idle_s)
    after = counter.read_mj()
    return None if after is None else (after - before) / 1000 / idle_s


def _batch(call: Callable[[], object], clock: Clock) -> int:
    """Enough calls that the gap between batches is negligible."""
    clock.run(call, 1)
    begun_us = clock.now_us()
    clock.run(call, 1)
    taken_us = max(clock.now_us() - begun_us, 1.0)
    batch = min(max(int(_BATCH_US / taken_us), 1), _LARGEST_BATCH)
    clock.run(call, batch)
    return batch


def _run_for(call: Callable[[], object], clock: Clock, batch: int, time_us: float) -> int:
    """Run batches for this time; returns the number of calls."""
    end_us, calls = clock.now_us() + time_us, 0
    while not calls or clock.now_us() < end_us:
        clock.run(call, batch)
        calls += batch
    return calls


def _number(file: Path) -> int | None:
    text = text_of(file)  # since 2020 only root can read these counters on Linux
    return int(text) if text.isdigit() else None
