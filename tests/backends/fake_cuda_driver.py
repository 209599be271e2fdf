"""A CUDA driver that writes down what it is asked to launch, for tests of launches without a GPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest

from convwright import torch_api
from convwright.backends.triton.launching import launch
from convwright.backends.triton.launching.launch import Binary


@dataclass(frozen=True)
class Launched:
    """One launch: the driver's own struct, the kernel's handle, the arguments, and what its maps are of."""

    config: list[Any]
    function: int
    arguments: list[int]
    maps: list[int]


class FakeCudaDriver:
    """In the driver's place while a test runs: kernels are loaded as the functions 77, 78, …; launches answer
    ``status``, or that a thread has no context, until it is given that of its device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.status, self.version = 0, 13000
        self.launches: list[Launched] = []
        self.loaded: list[Binary] = []
        self.encoded: list[int] = []
        self.context: int | None = 0
        self.cuLaunchKernelEx = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._enqueue)
        monkeypatch.setattr(launch, "_driver", lambda: self)
        monkeypatch.setattr(launch, "_load", self._load)
        monkeypatch.setattr(launch, "_driver_version", lambda: self.version)
        monkeypatch.setattr(launch, "_run", self._run)
        monkeypatch.setattr(launch, "_context", lambda index: index)
        monkeypatch.setattr(launch, "_functions", {})
        monkeypatch.setattr(launch, "_meaning", lambda status: f"CUDA_ERROR_LAUNCH_FAILED ({status})")
        monkeypatch.setattr(torch_api, "current_stream", lambda index: 1000 + index)

    def _enqueue(self, config: int, function: int, places: int, extra: int) -> int:
        if self.context is None:
            return launch._INVALID_CONTEXT
        asked = launch._LaunchConfig.from_address(config)
        binary = self.loaded[function - 77]
        mapped, arguments, maps = {each.place: each for each in binary.maps}, [], []
        at = ctypes.sizeof(ctypes.c_void_p)
        for operand in range(binary.operands + launch.SCRATCH_POINTERS):
            value = ctypes.c_uint64.from_address(ctypes.c_void_p.from_address(places).value or 0).value
            (maps if operand in mapped else arguments).append(value)
            places += at * (1 + (mapped[operand].more_parameters if operand in mapped else 0))
        said = [getattr(asked, field[0]) for field in asked._fields_]
        self.launches.append(Launched(said, function, arguments, maps))
        return self.status

    def _load(self, index: int, binary: Binary) -> int:
        self.loaded.append(binary)
        return 76 + len(self.loaded)

    def _run(self, name: str, *told: Any) -> None:
        """A map is the address of what it tells of."""
        if name == "cuCtxSetCurrent":
            (self.context,) = told
            return
        assert name == "cuTensorMapEncodeTiled"
        at, _, _, address, *_ = told
        self.encoded.append(address.value or 0)
        ctypes.c_uint64.from_address(at.value or 0).value = address.value or 0
