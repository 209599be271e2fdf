"""What the system tells of a CPU's core, and that nothing is guessed where it tells nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from convwright.core.dtype import Arithmetic
from convwright.measuring.hardware.machine import CpuCore, read_core

XEON = """\
processor	: 0
model name	: Intel(R) Xeon(R) Platinum 8480+
cpu MHz		: 800.000
flags		: fpu sse2 avx avx2 fma avx512f amx_tile

processor	: 1
model name	: Intel(R) Xeon(R) Platinum 8480+
flags		: fpu sse2 avx avx2 fma avx512f amx_tile
"""


def machine(root: Path, cpuinfo: str, *frequencies: tuple[str, str]) -> CpuCore:
    (root / "cpuinfo").write_text(cpuinfo)
    for number, (driver, khz) in enumerate(frequencies):
        policy = root / "cpus" / f"cpu{number}" / "cpufreq"
        policy.mkdir(parents=True)
        (policy / "scaling_driver").write_text(f"{driver}\n")
        (policy / "cpuinfo_max_freq").write_text(f"{khz}\n")
    return read_core(root / "cpuinfo", root / "cpus")


def test_a_machine_that_tells_all(tmp_path: Path) -> None:
    core = machine(tmp_path, XEON, ("intel_pstate", "3800000"), ("intel_pstate", "3700000"))
    assert (core.model, core.vector_bytes, core.highest_mhz) == ("Intel(R) Xeon(R) Platinum 8480+", 64, 3800)
    # 3.8 GHz, two units, 16 floats, multiply and add.
    assert dict(core.peaks(threads=1)) == {Arithmetic.FP32: 3800 * 2 * 16 * 2, Arithmetic.FP64: 3800 * 2 * 8 * 2}
    assert dict(core.peaks(threads=56))[Arithmetic.FP32] == 56 * 3800 * 64


@pytest.mark.parametrize(
    ("flags", "width"),
    [("avx512f avx2 fma", 64), ("avx2 fma", 32), ("avx2", None), ("avx", None), ("asimd fphp sve", None), ("", None)],
)
def test_the_width_of_a_multiply_add(tmp_path: Path, flags: str, width: int | None) -> None:
    core = machine(tmp_path, f"model name : a CPU\nflags : {flags}\n", ("intel_pstate", "3000000"))
    assert core.vector_bytes == width
    assert bool(core.peaks(1)) == (width is not None)


@pytest.mark.parametrize("frequencies", [(), (("acpi-cpufreq", "2600000"),), (("intel_pstate", "<unknown>"),)])
def test_a_clock_that_is_not_told_or_not_the_highest_gives_no_peak(
    tmp_path: Path, frequencies: tuple[tuple[str, str], ...]
) -> None:
    core = machine(tmp_path, XEON, *frequencies)
    assert core.highest_mhz is None
    assert core.peaks(threads=2) == ()


def test_a_system_without_such_files(tmp_path: Path) -> None:
    core = read_core(tmp_path / "cpuinfo", tmp_path / "cpus")
    assert core.model
    assert (core.vector_bytes, core.highest_mhz, core.peaks(4)) == (None, None, ())
