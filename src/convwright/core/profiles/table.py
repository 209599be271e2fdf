"""The profiles as a table for the documentation."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.core.profiles import names, profile, record

_RATES = ("fp64", "fp32", "tf32", "fp16-acc32", "fp16-acc16", "bf16-acc32", "int8", "fp8-acc32")
_NONE = "–"


def markdown() -> str:
    """All profiles, one row each: rates from their datasheets, in TFLOP/s."""
    header = ("name", "device", "arch", "SMs", "MHz", "L2 MB", "memory GB", "GB/s", *_RATES)
    rows = [_row(header), _row("---" for _ in header), *(_row(_cells(name)) for name in names())]
    return "\n".join(rows) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(name: str) -> list[str]:
    facts, written = profile(name), record(name)
    return [
        f"`{name}`",
        facts.name,
        facts.architecture,
        str(facts.sm_count),
        str(facts.clock_mhz),
        _figure((facts.cache_bytes or 0) / 2**20),
        _figure((facts.memory_bytes or 0) / 1e9),
        str(written["bandwidth_gb_per_s"]),
        *(_rate(written, rate) for rate in _RATES),
    ]


def _rate(written: dict[str, dict[str, float]], rate: str) -> str:
    """A rate, with its clock if that is not the highest."""
    if rate not in written["peak_tflops"]:
        return _NONE
    tflops, clock_mhz = written["peak_tflops"][rate], written["peak_clock_mhz"][rate]
    at = "" if clock_mhz * 1000 == written["properties"]["smClockRateKHz"] else f" at {clock_mhz}"
    return f"{tflops:g}{at}"


def _figure(value: float) -> str:
    return f"{value:.3g}"
