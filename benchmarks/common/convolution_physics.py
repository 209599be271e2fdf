"""What is known of a convolution and a GPU before anything runs: estimates in µs, and features that trees learn from.

An estimate assumes one algorithm: a matrix product whose tiles run on the multiprocessors in waves. It is the time of
that product or the time of moving the data, whichever is longer. The model learns which algorithm a library takes, and
how far that is from the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from common.data_sheets import DataSheet
from common.timed_convolutions import Column, Convolutions
from numpy import float64
from numpy.typing import NDArray

# Before the first wave begins.
LAUNCH_US = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """Features and estimates by name, a column each. ``physics_us`` is the least of what the ways take."""

    features: dict[str, Column]
    estimates_us: dict[str, Column]
    physics_us: Column

    def matrix(self) -> NDArray[float64]:
        return np.stack(list(self.features.values()), axis=1)

    def estimates(self) -> NDArray[float64]:
        return np.stack(list(self.estimates_us.values()), axis=1)


def fp32_3x3(given: Convolutions, gpu: DataSheet) -> Described:
    """cuDNN in fp32: implicit products, and Winograd's algorithm in one kernel or in four."""
    per_sm = gpu.fp32_flops_per_us / gpu.multiprocessors
    moving_us = given.read_and_written(4) / gpu.bytes_per_us
    waves, ways = {}, {}
    for rows, columns in ((128, 128), (128, 64), (128, 32)):
        name = f"implicit {rows}x{columns}"
        waves[name] = _tiles(given.N * given.P**2, rows) * _tiles(given.K, columns) / gpu.multiprocessors
        working_us = np.ceil(waves[name]) * 2 * rows * columns * given.depth / per_sm
        ways[name] = np.maximum(working_us, moving_us)
    # cuDNN's kernels are named after them: images, rows and columns of 2x2 outputs, for 32 output channels.
    transformed = 2 * 4 * 16 * given.C * given.K / gpu.bytes_per_us
    for images, rows, columns in ((1, 4, 8), (2, 4, 4), (2, 2, 8), (4, 1, 8), (4, 2, 4)):
        name = f"winograd {images}x{rows}x{columns}"
        squares = _tiles(given.N, images) * _tiles(_tiles(given.P, 2), rows) * _tiles(_tiles(given.P, 2), columns)
        waves[name] = squares * _tiles(given.K, 32) / gpu.multiprocessors
        working_us = np.ceil(waves[name]) * 2 * 16 * 32 * 32 * _padded(given.C, 8) / per_sm
        ways[name] = np.maximum(working_us, moving_us + transformed)
    squares = given.N * _tiles(given.P, 4) ** 2
    between_us = moving_us + 2 * 4 * 36 * (squares * (given.C + given.K) + given.C * given.K) / gpu.bytes_per_us
    for rows, columns in ((64, 64), (128, 64), (128, 32)):
        name = f"winograd products {rows}x{columns}"
        waves[name] = 36 * _tiles(squares, rows) * _tiles(given.K, columns) / gpu.multiprocessors
        ways[name] = np.ceil(waves[name]) * 2 * rows * columns * given.C / per_sm + between_us
    physics_us = np.min(list(ways.values()), axis=0) + LAUNCH_US
    estimates = ways | {
        "winograd's transforms": between_us,
        "all products": given.flops / gpu.fp32_flops_per_us,
        "moving": moving_us,
    }
    features = _sizes(given, gpu.fp32_flops_per_us, 4) | _shares(estimates, physics_us)
    features |= {f"fullness of {name}": np.ceil(each) / each for name, each in waves.items()}
    features |= {f"P padded to {step}": _padded(given.P, step) / given.P for step in (2, 4, 8, 16)}
    features |= _alignments(given, (4, 8, 32, 64))
    return Described(features, estimates, physics_us)


def fp16_tensor_cores(given: Convolutions, gpu: DataSheet) -> Described:
    """TensorRT in fp16: implicit products on tensor cores, or a depthwise kernel."""
    assert gpu.fp16_flops_per_us is not None
    per_sm = gpu.fp16_flops_per_us / gpu.multiprocessors
    moving_us = given.read_and_written(2) / gpu.bytes_per_us
    depthwise, pixels = given.depthwise > 0, given.N * given.P**2
    depth = np.where(depthwise, 64, _padded(given.C, 32)) * given.R**2
    # A small tile cannot keep a multiprocessor busy by itself: a step along the depth takes it as long as a large one.
    chain_us = depth * 2 * 128 * 128 / per_sm
    waves, ways = {}, {}
    for rows, columns in ((256, 128), (256, 64), (128, 256), (128, 128), (128, 64), (64, 64), (128, 32)):
        name = f"tiles {rows}x{columns}"
        waves[name] = _tiles(pixels, rows) * _tiles(given.K, columns) / gpu.multiprocessors
        ways[name] = np.ceil(waves[name]) * 2 * rows * columns * depth / per_sm
    regular_us = np.maximum(np.min(list(ways.values()), axis=0), chain_us)
    working_us = np.where(depthwise, given.flops / gpu.fp32_flops_per_us, regular_us)
    physics_us = np.maximum(working_us, moving_us) + LAUNCH_US
    estimates = ways | {
        "chain": chain_us,
        "all products": given.flops / gpu.fp16_flops_per_us,
        "moving": moving_us,
        "moving weights": 2 * given.parameters / gpu.bytes_per_us,
    }
    features = _sizes(given, gpu.fp16_flops_per_us, 2) | _shares(estimates, physics_us)
    for name in ("tiles 256x128", "tiles 128x128", "tiles 64x64"):
        features |= {f"fullness of {name}": np.ceil(waves[name]) / waves[name], f"waves of {name}": np.log(waves[name])}
    features |= {f"P padded to {step}": _padded(given.P, step) / given.P for step in (4, 8)}
    features |= {"depthwise": given.depthwise, "adds": given.adds, "R": given.R, "stride": given.stride}
    features |= {f"R of stride {step}": np.where(given.stride == step, given.R, 0) for step in (1, 2)}
    features |= {"R of depthwise": np.where(depthwise, 10 * given.R + given.stride, 0)}
    features |= {"winograd squares": np.log(given.N * _tiles(given.P, 4) ** 2)}
    features |= {"winograd": ((given.R == 3) & (given.stride == 1) & ~depthwise).astype(np.float64)}
    features |= _alignments(given, (8, 32, 64))
    return Described(features, estimates, physics_us)


def _sizes(given: Convolutions, flops_per_us: float, bytes_each: int) -> dict[str, Column]:
    moved, pixels = given.read_and_written(bytes_each), given.N * given.P**2
    amounts = {
        "N": given.N, "C": given.C, "K": given.K, "H": given.H, "P": given.P, "outputs": pixels * given.K,
        "pixels": pixels, "inputs": given.N * given.C * given.H**2, "parameters": given.parameters,
        "C K": given.C * given.K, "depth": given.depth, "smaller of C and K": np.minimum(given.C, given.K),
        "flops": given.flops, "bytes": moved, "flops per byte": given.flops / moved,
        "inputs per output": given.C * given.H**2 / (given.K * given.P**2),
    }  # fmt: skip
    return {f"log {name}": np.log(amount) for name, amount in amounts.items()}


def _shares(estimates_us: dict[str, Column], physics_us: Column) -> dict[str, Column]:
    shares = {f"log {name} by physics": np.log(us / physics_us) for name, us in estimates_us.items()}
    return {"log physics": np.log(physics_us)} | shares


def _alignments(given: Convolutions, steps: tuple[int, ...]) -> dict[str, Column]:
    made: dict[str, Column] = {}
    for name, channels in (("C", given.C), ("K", given.K)):
        made |= {f"{name} padded to {step}": _padded(channels, step) / channels for step in steps}
        made[f"{name} aligned to"] = np.gcd(channels.astype(np.int64), 64).astype(np.float64)
    return made


def _tiles(length: Column, tile: int) -> Column:
    return np.ceil(length / tile)


def _padded(length: Column, step: int) -> Column:
    return _tiles(length, step) * step
