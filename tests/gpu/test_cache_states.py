"""Cache states, memory, energy and NVML on a real GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from convwright.measuring.cache import Cache, Flush, before_each
from convwright.measuring.clock import CudaGraphClock
from convwright.measuring.compare import compare
from convwright.measuring.energy import NvmlCounter
from convwright.measuring.hardware.nvml import gpu_of
from convwright.measuring.memory import peak_extra_bytes
from convwright.measuring.timer import measure, measure_calls, measure_together

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

MIB = 2**20


def reading(mib: float) -> tuple[Tensor, Callable[[], Tensor]]:
    x = torch.ones(int(mib * MIB) // 4, device="cuda")
    return x, lambda: x.sum()


def test_cold_takes_longer_than_hot_and_what_is_warm_does_not() -> None:
    x, call = reading(16)  # fits into the cache of every data-centre GPU since Ampere
    hot = measure(call)
    cold = measure(call, cache="cold")
    warm = measure(call, cache="network", warm=[x])
    assert cold.call_us.low > 1.15 * hot.call_us.high
    assert warm.call_us.high < cold.call_us.low
    assert hot.discarded == cold.discarded == 0


def test_a_cold_call_takes_as_long_as_one_that_rotates_over_many_inputs() -> None:
    """Two ways to the same truth: emptying the cache, and so many inputs that none is still there."""
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    calls = [reading(4)[1] for _ in range(3 * cache_bytes // (4 * MIB) + 1)]
    flushed = measure(calls[0], cache="cold", budget_us=3e6)
    rotated = measure(calls, budget_us=3e6)
    assert flushed.call_us.value == pytest.approx(rotated.call_us.value, rel=0.15)


def test_a_large_call_takes_the_same_in_every_state() -> None:
    _, call = reading(1024)  # far beyond the cache
    found = {cache: measure(call, cache=cache) for cache in (Cache.HOT, Cache.COLD)}
    assert found[Cache.COLD].call_us.value == pytest.approx(found[Cache.HOT].call_us.value, rel=0.05)


def test_a_cold_call_is_about_the_same_as_itself() -> None:
    """A cold call is a difference of 60 µs and 50 µs here, and each graph's has an error of 2 % of its own."""
    _, call = reading(8)
    _, other = reading(8)
    for seed in range(6):
        found = measure_together({"a": call, "b": other}, cache="cold", budget_us=1e6, seed=seed)
        assert 0.95 < compare(found["a"], found["b"]).ratio.value < 1.05


def test_intervals_of_cold_calls_become_narrow() -> None:
    x = torch.randn(32, 256, 14, 14, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    w = torch.randn(256, 256, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    timing = measure(lambda: torch.conv2d(x, w, padding=1), cache="network", warm=[x], budget_us=2e6)
    assert timing.call_us.relative_halfwidth < 0.01


def test_what_runs_before_can_be_captured() -> None:
    x, call = reading(1)
    clock = CudaGraphClock()
    before = before_each(Cache.NETWORK, "cuda", warm=[x])
    assert before is not None
    measure_calls({"": call}, clock=clock, budget_us=2e5, before={"": before})
    assert clock.fallbacks == []


def test_a_flush_is_larger_than_the_cache() -> None:
    assert Flush(torch.device("cuda")).nbytes >= 2 * torch.cuda.get_device_properties(0).L2_cache_size


def test_peak_extra_memory_to_the_byte() -> None:
    def call() -> Tensor:
        first = torch.ones(4 * MIB, device="cuda")  # 16 MiB
        second = first + 1
        del first
        return second[:1].clone()

    assert peak_extra_bytes(call, "cuda") == 32 * MIB


def test_nvml_answers() -> None:
    gpu = gpu_of("cuda")
    if gpu.library is None:
        pytest.skip("NVML cannot be had here")
    assert gpu.sm_clock_mhz
    assert gpu.full_sm_clock_mhz
    assert gpu.temperature_c
    assert gpu.throttle_reasons is not None


def test_energy_of_a_call() -> None:
    if NvmlCounter(gpu_of("cuda")).read_mj() is None:
        pytest.skip("this GPU has no energy counter, or it is closed")
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    timing = measure(lambda: a @ a, energy=True)
    assert timing.energy is not None
    assert timing.energy.source == "nvml"
    assert timing.energy.idle_w is not None
    assert timing.energy.power_w > timing.energy.idle_w
    took_s = timing.energy.call_mj.value * timing.energy.calls / 1000 / timing.energy.power_w
    assert took_s == pytest.approx(5.0, rel=0.15)
    assert timing.energy.call_mj.relative_halfwidth < 0.1
