"""The least time that a device needs for a candidate: its peak rates, and how much is multiplied and moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convwright.core.candidate import Candidate, Config
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.kinds.problem import Problem
from convwright.rewrites import rewrite
from convwright.rewrites.rewrite import Rewrite

# No CPU core does more multiply-adds per microsecond: two vectors of 64 bytes a cycle, at 6.5 GHz. There is no limit
# for 16-bit numbers, which matrix units multiply many times faster.
_MOST_FLOPS_PER_US = {Arithmetic.FP64: 2 * 2 * 8 * 6500, Arithmetic.FP32: 2 * 2 * 16 * 6500}
# The saving of Winograd's F(4x4, 3x3), which PyTorch's own call on a CPU may use.
_MOST_SAVED = 4
# Data in a cache moves faster than the limits say, and data beyond it in part.
_IN_CACHE = 3.0


def moved_bytes(candidate: Candidate) -> int:
    """Bytes that the rewrites of a candidate read and write at each call; 0 without any."""
    return moved_by(_rewrites_of(candidate))


def _rewrites_of(candidate: Candidate) -> Iterator[tuple[Rewrite, Problem, Config]]:
    while candidate.inner is not None:
        yield rewrite(candidate.algorithm), candidate.problem, candidate.config
        candidate = candidate.inner


def moved_by(rewrites: Iterable[tuple[Rewrite, Problem, Config]]) -> int:
    """Bytes that rewrites with their arguments read and write at each call; the outermost comes first."""
    moved, runs = 0, 1
    for each, problem, arguments in rewrites:
        moved += runs * each.moved_bytes(problem, arguments)
        runs *= int(dict(arguments).get("parts", 1))
    return moved


def least_us(candidate: Candidate, device: DeviceFacts) -> float | None:
    """The least time for what is moved and multiplied, at the device's peak; None if its rates are unknown.

    Products that an algorithm may save are counted, since neither their number nor their cost is known. Idle products
    count if tiles are at least half empty, as when one output channel fills a tile for sixteen.
    """
    leaf, bandwidth, peak = candidate.leaf, device.bandwidth_bytes_per_us, device.peak(candidate.arithmetic)
    if not bandwidth or not peak:
        return None
    problem: Problem = leaf.problem
    work_us = problem.flops * leaf.arithmetic.products * times_idle(leaf) / peak
    return candidate.runs * max(work_us, problem.bytes / bandwidth) + moved_bytes(candidate) / bandwidth


def times_idle(leaf: Candidate) -> int:
    """The products in its tiles divided by the problem's products, as a power of two. Smaller differences are left to
    the backend that offers the tiles."""
    products: int = leaf.problem.flops // 2
    return 1 if leaf.tiled is None or not products else 1 << max(leaf.tiled // products, 1).bit_length() - 1


def own_call_us(own: Candidate, device: DeviceFacts) -> float:
    """A lower bound for the time of PyTorch's own call, valid for any CPU; 0 if none is known."""
    per_thread = _MOST_FLOPS_PER_US.get(own.arithmetic)
    if device.kind != "cpu" or per_thread is None or device.threads is None:
        return 0.0
    problem: Problem = own.problem
    return problem.flops / _MOST_SAVED / (per_thread * device.threads)


def moving_us(candidate: Candidate, device: DeviceFacts) -> float:
    """The time to move the operands and write the workspace once, at the device's peak bandwidth; 0 if that is
    unknown."""
    bandwidth, leaf = device.bandwidth_bytes_per_us, candidate.leaf
    if not bandwidth:
        return 0.0
    scratch_bytes = 0 if candidate.workspace_is_bound else candidate.workspace_bytes or 0
    problem: Problem = leaf.problem
    return (problem.bytes + scratch_bytes) / bandwidth


def hopeless_us(candidate: Candidate, device: DeviceFacts, best_us: float) -> float | None:
    """The least time of a candidate that cannot win: moving its data takes longer than the best time seen, whatever
    products it saves. None if it may still win."""
    bandwidth, least_us = device.bandwidth_bytes_per_us, moving_us(candidate, device)
    cached_us = device.cache_bytes / bandwidth if device.cache_bytes and bandwidth else 0.0
    return least_us if least_us > max(_IN_CACHE * best_us, cached_us) else None
