"""Energy from counters that are played, and from files laid out as Linux lays them out."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from convwright.errors import BadInput
from convwright.measuring import energy
from convwright.measuring.energy import NoCounter, NvmlCounter, RaplCounter, counter_of, energy_of
from convwright.measuring.hardware.nvml import Gpu, gpu
from measuring.fake_clock import FakeClock
from measuring.fake_nvml import ENERGY, FakeNvml


class Ticking:
    """A counter of a device that draws ``power_w`` whenever time passes, and shows it every 50 ms only."""

    source = "fake"

    def __init__(self, clock: FakeClock, power_w: float, *, every_us: float = 5e4) -> None:
        self._clock, self._power_w, self._every_us = clock, power_w, every_us
        self._random = Random(0)

    def read_mj(self) -> float:
        late_us = self._clock.now_us() % self._every_us if self._every_us else 0.0
        return (self._clock.now_us() - late_us) * self._power_w / 1000


@pytest.mark.parametrize("cost_us", [5.0, 700.0, 4e4])
def test_a_call_draws_its_share_of_the_power(cost_us: float) -> None:
    clock = FakeClock()
    found = energy_of(lambda: cost_us, clock, Ticking(clock, 400.0), seconds=5.0, idle_s=0.0)
    assert found is not None
    truth_mj = cost_us * 400.0 / 1000
    assert found.call_mj.low <= truth_mj <= found.call_mj.high
    assert found.call_mj.relative_halfwidth < 0.02
    assert found.power_w == pytest.approx(400.0, rel=0.03)
    assert found.idle_w is None
    assert found.calls * cost_us == pytest.approx(5e6, rel=0.2)
    assert found.source == "fake"


def test_idle_power_is_that_of_the_time_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(energy, "sleep", lambda seconds: clock.run(lambda: seconds * 1e6, 1))
    found = energy_of(lambda: 100.0, clock, Ticking(clock, 70.0, every_us=0.0), idle_s=1.0)
    assert found is not None
    assert found.idle_w == pytest.approx(70.0)


def test_without_a_counter_nothing_runs_and_nothing_is_known() -> None:
    clock = FakeClock()
    assert energy_of(lambda: 5.0, clock, NoCounter()) is None
    assert energy_of(lambda: 5.0, clock, NvmlCounter(Gpu())) is None
    assert clock.now_us() == 0


def test_bad_input_is_said_in_words() -> None:
    clock = FakeClock()
    with pytest.raises(BadInput, match="above 0 s, got 0"):
        energy_of(lambda: 5.0, clock, Ticking(clock, 1.0), seconds=0)


def test_nvml_counts_in_millijoules() -> None:
    assert NvmlCounter(gpu("GPU-1", FakeNvml({ENERGY: 123_456}))).read_mj() == 123_456


def zone(root: Path, number: str, name: str, uj: int, range_uj: int = 1_000_000) -> Path:
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    for file, value in (("name", name), ("energy_uj", uj), ("max_energy_range_uj", range_uj)):
        (folder / file).write_text(f"{value}\n")
    return folder


def test_all_packages_count_and_their_parts_do_not_count_twice(tmp_path: Path) -> None:
    packages = [zone(tmp_path, "0", "package-0", 1000), zone(tmp_path, "1", "package-1", 5000)]
    parts = [zone(tmp_path, "0:0", "core", 10), zone(tmp_path, "2", "psys", 10)]
    counter = counter_of("cpu", powercap=tmp_path)
    assert counter.source == "rapl"
    assert counter.read_mj() == 0
    for folder in (*packages, *parts):
        (folder / "energy_uj").write_text("9000\n")
    assert counter.read_mj() == pytest.approx((8000 + 4000) / 1000)


def test_a_counter_that_begins_again_goes_on(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 999_000, range_uj=1_000_000)
    counter = RaplCounter([package])
    (package / "energy_uj").write_text("2000\n")
    assert counter.read_mj() == pytest.approx(3.0)


def test_what_may_not_be_read_is_none(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 1000)
    (package / "energy_uj").unlink()
    assert counter_of("cpu", powercap=tmp_path).read_mj() is None
    assert counter_of("cpu", powercap=tmp_path / "nowhere").read_mj() is None
    assert counter_of("meta", powercap=tmp_path).read_mj() is None
