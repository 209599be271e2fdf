"""Public timings of convolutions as columns: sizes, times, and which rows are one problem."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy import float64, int64
from numpy.typing import NDArray

Column = NDArray[float64]


@dataclass(frozen=True, slots=True, eq=False)
class Convolutions:
    """One convolution a row: images ``N``, channels ``C`` to ``K``, an image of ``H`` x ``H``, a square filter of
    ``R``. ``depthwise`` and ``adds`` (a fused addition) are 0 or 1."""

    N: Column
    C: Column
    K: Column
    H: Column
    R: Column
    stride: Column
    depthwise: Column
    adds: Column

    def __len__(self) -> int:
        return len(self.N)

    def rows(self, picked: NDArray[Any]) -> Convolutions:
        return Convolutions(*(getattr(self, each.name)[picked] for each in fields(self)))

    def columns(self) -> dict[str, Column]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def P(self) -> Column:  # noqa: N802 - the word of the field
        """Rows and columns of the output, with padding R // 2."""
        return np.ceil(self.H / self.stride)

    @property
    def flops(self) -> Column:
        return 2 * self.N * self.K * self.P**2 * self.depth

    @property
    def depth(self) -> Column:
        """Products that are added up for one output."""
        return np.where(self.depthwise > 0, 1, self.C) * self.R**2

    @property
    def parameters(self) -> Column:
        return self.K * self.depth

    def read_and_written(self, bytes_each: int) -> Column:
        """Bytes moved if each operand is moved once. A filter smaller than its stride leaves pixels out."""
        pixels = np.minimum(self.H**2, (self.P * self.R) ** 2)
        outputs = self.N * self.K * self.P**2
        return bytes_each * (self.N * self.C * pixels + outputs * (1 + self.adds) + self.parameters)

    def problems(self) -> NDArray[int64]:
        """A number for each problem. The same with and without a fused addition is one problem."""
        sizes = np.stack([column for name, column in self.columns().items() if name != "adds"], axis=1)
        problem: NDArray[int64] = np.unique(sizes, axis=0, return_inverse=True)[1].ravel()
        return problem


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """Convolutions and what each took."""

    convolutions: Convolutions
    us: Column


def tensorrt(folder: Path) -> Timed:
    """fp16 in TensorRT on a V100."""
    rows = _rows(folder / "v100_tensorrt_conv_fp16.csv.gz")
    N, C, K, H, R, stride = (_column(rows, name) for name in ("batch", "in_c", "out_c", "in_h", "kernel", "stride"))
    depthwise = np.array([row["kind"] == "Depthwise" for row in rows], dtype=np.float64)
    given = Convolutions(N, C, K, H, R, stride, depthwise, _column(rows, "fused_sum"))
    return Timed(given, 1000 * _column(rows, "latency_ms"))


def cudnn(folder: Path, device: str) -> Timed:
    """fp32 3x3 in cuDNN on one of four GPUs, in the order of their sizes."""
    (path,) = (folder / "gpu_conv_timings").glob(f"Tesla_{device}[.-]*csv.gz")
    rows = _rows(path)
    names = ("B", "Input_Channel", "Output_Channel", "Input_Size", "Kernel_Szie", "Stride")
    N, C, K, H, R, stride = (_column(rows, name) for name in names)
    order, none = np.lexsort((H, K, C, N)), np.zeros(len(rows))
    given = Convolutions(N, C, K, H, R, stride, depthwise=none, adds=none)
    return Timed(given.rows(order), 1000 * _column(rows, "Latency")[order])


def shared(ours: Timed, theirs: Timed) -> tuple[Timed, Column]:
    """The problems that both have, with the times of ``ours`` and of ``theirs``."""
    known = dict(zip(_keys(theirs), theirs.us, strict=True))
    keys = _keys(ours)
    both = np.array([key in known for key in keys])
    others = np.array([known[key] for key in keys if key in known])
    return Timed(ours.convolutions.rows(both), ours.us[both]), others


def _keys(timed: Timed) -> list[tuple[float, ...]]:
    columns = timed.convolutions.columns().values()
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def _column(rows: Sequence[dict[str, str]], name: str) -> Column:
    return np.array([float(row[name]) for row in rows])
