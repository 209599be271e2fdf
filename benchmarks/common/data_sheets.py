"""GPUs whose public timings are evaluated, as NVIDIA's data sheets have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataSheet:
    """``fp32_flops_per_us`` and ``fp16_flops_per_us`` (tensor cores; None without) are peaks at the boost clock."""

    name: str
    multiprocessors: int
    boost_ghz: float
    bytes_per_us: float
    fp32_flops_per_us: float
    fp16_flops_per_us: float | None = None


P4 = DataSheet("P4", 20, 1.063, 192e3, 5.5e6)
P100 = DataSheet("P100", 56, 1.303, 732e3, 9.3e6)
V100 = DataSheet("V100", 80, 1.380, 900e3, 14.0e6, 112e6)
T4 = DataSheet("T4", 40, 1.590, 320e3, 8.1e6, 65e6)
