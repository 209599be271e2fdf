"""A CUDA driver that writes down what it is asked to launch, for tests of launches without a GPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from convwright.backends.triton import launch
from convwright.backends.triton.launch import Binary


@dataclass(frozen=True)
class Launched:
    """One launch: the driver's own struct, the kernel's handle, the arguments."""

    config: list[Any]
    function: int
    arguments: list[int]


class FakeCudaDriver:
    """In the driver's place while a test runs: kernels are loaded as the functions 77, 78, …; launches answer
    ``status``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.status = 0
        self.launches: list[Launched] = []
        self.loaded: list[Binary] = []
        self.cuLaunchKernelEx = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._enqueue)
        monkeypatch.setattr(launch, "_driver", lambda: self)
        monkeypatch.setattr(launch, "_load", self._load)
        monkeypatch.setattr(launch, "_functions", {})
        monkeypatch.setattr(launch, "_meaning", lambda status: f"CUDA_ERROR_LAUNCH_FAILED ({status})")
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 1000 + index, raising=False)

    def _enqueue(self, config: int, function: int, places: int, extra: int) -> int:
        asked = launch._LaunchConfig.from_address(config)
        count = self.loaded[function - 77].operands + launch._SCRATCH_POINTERS
        arguments = [ctypes.c_uint64.from_address(at).value for at in (ctypes.c_void_p * count).from_address(places)]
        self.launches.append(Launched([getattr(asked, field[0]) for field in asked._fields_], function, arguments))
        return self.status

    def _load(self, index: int, binary: Binary) -> int:
        self.loaded.append(binary)
        return 76 + len(self.loaded)
