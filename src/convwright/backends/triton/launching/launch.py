"""Launches of compiled Triton kernels with one foreign call, without Triton's dispatch in Python."""

from __future__ import annotations

import ctypes
import struct
import threading
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from convwright import strict_json, torch_api
from convwright.backends.triton.launching.kernel_call import KernelCall, interpreting
from convwright.backends.triton.launching.tensor_map import SCRATCH_POINTERS, EncodedMaps, Mapped, mapped_operands
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.errors import BackendError, Refused
from convwright.shortage import is_shortage
from convwright.tensors import torch_dtype

_LARGEST_SHARED_BYTES_BY_DEFAULT = 48 * 1024
_MAX_DYNAMIC_SHARED_BYTES, _PREFER_SHARED = 8, 1  # CU_FUNC_ATTRIBUTE_…, CU_FUNC_CACHE_…
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_…
_INVALID_CONTEXT = 201  # CUDA_ERROR_…
_MOST_BLOCKS = 2**31 - 1  # of a launch
_TENSOR_MEMORY_COLUMNS = 512  # of a multiprocessor of sm_100
_FIRST_TO_CAPTURE_OVERLAPS = 12030  # CUDA 12.3, from which graphs support overlapping launches


class Launch(Protocol):
    """A kernel with its grid, called with the operands in the kernel's order. An unused operand is None.

    ``stream`` returns the device's current stream; it is None in the interpreter, which takes no addresses.
    """

    @property
    def stream(self) -> Callable[[], int] | None: ...

    def __call__(self, *operands: Tensor | None) -> None: ...

    def at(self, addresses: Sequence[int], stream: int) -> None:
        """The same with the operands' addresses, 0 for an unused operand."""


def launch_of(call: KernelCall, device: DeviceFacts) -> Launch:
    """The launch of ``call``, ready to run on ``device``."""
    if interpreting():
        return _Interpreted(call)
    if device.torch_name is None:
        raise BackendError(f"a kernel needs a device of this machine, and {device.name} is not in it")
    try:
        compiled = call.compile(device.architecture)
    except Exception as error:  # Triton's compiler has no common exception
        raise BackendError(f"Triton cannot compile {call.kernel.__name__}: {error}") from error
    return DriverLaunch(Binary.of(compiled, call), device)


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel and its launch data, sufficient to run it without Triton."""

    name: str
    key: str
    cubin: bytes
    blocks: int
    warps: int
    shared_bytes: int
    operands: int
    maps: tuple[Mapped, ...] = ()
    overlaps: bool = False
    """Whether it may start before the previous kernel ends; it then waits by itself."""

    @classmethod
    def of(cls, compiled: Any, call: KernelCall) -> Self:
        """The kernel that Triton compiled for ``call``, which must need only its operands."""
        metadata = compiled.metadata
        needs = (metadata.global_scratch_size, metadata.profile_scratch_size, metadata.num_ctas - 1)
        if any(needs) or metadata.launch_cooperative_grid or metadata.launch_pdl:
            raise BackendError(f"{metadata.name} needs unsupported scratch memory, clusters or a cooperative launch")
        if call.blocks > _MOST_BLOCKS:
            raise BackendError(f"{metadata.name} needs {call.blocks:,} blocks, but a launch has at most 2^31 - 1")
        columns = getattr(metadata, "tmem_size", None) or 0
        if columns > _TENSOR_MEMORY_COLUMNS:  # Triton compiles it to a kernel that always fails
            there = f"but there are {_TENSOR_MEMORY_COLUMNS}"
            raise BackendError(f"{metadata.name} needs {columns} columns of tensor memory, {there}")
        size = call.blocks, metadata.num_warps, metadata.shared, len(call.pointers)
        maps = mapped_operands(call, compiled) if call.maps else ()
        cubin, overlaps = compiled.asm["cubin"], call.overlaps(metadata.target.arch)
        return cls(metadata.name, compiled.hash, cubin, *size, maps, overlaps)

    @property
    def text(self) -> str:
        packed = b64encode(zlib.compress(self.cubin)).decode()
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return strict_json.dumps(known | {"cubin": packed, "maps": [asdict(each) for each in self.maps]})

    @classmethod
    def read(cls, text: str) -> Self:
        """The kernel from its ``text``."""
        try:
            known = strict_json.loads(text)
            maps = tuple(map(Mapped.read, known["maps"]))
            return cls(**known | {"cubin": zlib.decompress(b64decode(known["cubin"], validate=True)), "maps": maps})
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise BackendError(f"a stored kernel cannot be read: {error}") from error


class _Interpreted:
    """Runs in Triton's interpreter, on CPU tensors."""

    stream = None

    def __init__(self, call: KernelCall) -> None:
        self._call = call

    def __call__(self, *operands: Tensor | None) -> None:
        dtypes = [torch_dtype(DType(dtype)) for dtype, _ in self._call.pointers.values()]
        self._call.interpreted(*map(_numbers, operands, dtypes))

    def at(self, addresses: Sequence[int], stream: int) -> None:
        raise Refused(f"Triton's interpreter needs tensors for {self._call.kernel.__name__}, got addresses")


def _numbers(operand: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A workspace's bytes in the kernel's dtype; other operands unchanged."""
    if operand is None or operand.dtype is not torch.uint8:
        return operand
    return operand[: operand.numel() // dtype.itemsize * dtype.itemsize].view(dtype)


class _LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig`` of the driver."""

    _fields_ = (
        *((f"{what}_{axis}", ctypes.c_uint) for what in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute`` of the driver, whose value is a union."""

    _fields_ = (("name", ctypes.c_uint), ("_", ctypes.c_uint), ("value", ctypes.c_uint), ("_rest", ctypes.c_char * 60))


class DriverLaunch:
    """Prepares everything but the operands' addresses and the stream once. A call fills these in, in about 1 µs."""

    def __init__(self, binary: Binary, device: DeviceFacts) -> None:
        self.binary = binary
        self._device_index = index = torch.device(str(device.torch_name)).index or 0
        self._function = ctypes.c_void_p(_function(index, binary))
        self._config = _LaunchConfig(binary.blocks, 1, 1, 32 * binary.warps, 1, 1, binary.shared_bytes)
        if binary.overlaps and _driver_version() >= _FIRST_TO_CAPTURE_OVERLAPS:
            self._attribute = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
            self._config.attributes, self._config.attribute_count = ctypes.addressof(self._attribute), 1
        self._config_at = ctypes.c_void_p(ctypes.addressof(self._config))
        self._addresses = (ctypes.c_uint64 * (binary.operands + 1))()
        places, self._maps = _parameters(binary, ctypes.addressof(self._addresses))
        self._places = (ctypes.c_void_p * len(places))(*places)
        self._places_at = ctypes.c_void_p(ctypes.addressof(self._places))
        self._fill = struct.Struct(f"{binary.operands}Q").pack_into
        self._enqueue = _driver().cuLaunchKernelEx
        self.stream: Callable[[], int] = partial(torch_api.current_stream, index)
        # Another thread may run between filling the buffer and launching with it.
        self._buffer = threading.Lock()

    def __call__(self, *operands: Tensor | None) -> None:
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in operands]
        self.at(addresses, self.stream())

    def at(self, addresses: Sequence[int], stream: int) -> None:
        with self._buffer:
            self._fill(self._addresses, 0, *addresses)
            for place, operand, maps in self._maps:
                self._places[place] = maps.at(addresses[operand])
            self._config.stream = stream
            status = self._enqueue(self._config_at, self._function, self._places_at, None)
            if status == _INVALID_CONTEXT:  # in a thread that has not used the GPU yet
                _run("cuCtxSetCurrent", _context(self._device_index))
                status = self._enqueue(self._config_at, self._function, self._places_at, None)
        if status:
            raise BackendError(f"launching a kernel on cuda:{self._device_index} failed: {_meaning(status)}")


def _parameters(binary: Binary, addresses_at: int) -> tuple[list[int], list[tuple[int, int, EncodedMaps]]]:
    """The offsets of the parameters; and for each tensor map its parameter, its operand and its encoding. After the
    addresses comes a 0, for parameters that a kernel does not use."""
    mapped = {each.place: each for each in binary.maps}
    unused = addresses_at + 8 * binary.operands
    places: list[int] = []
    maps = []
    for operand in range(binary.operands):
        if operand in mapped:
            maps.append((len(places), operand, EncodedMaps(mapped[operand], _run)))
            places += [unused] * (1 + mapped[operand].more_parameters)
        else:
            places.append(addresses_at + 8 * operand)
    return places + [unused] * SCRATCH_POINTERS, maps


# Handles of loaded kernels live as long as the process: a captured graph may use one after its plan is gone.
_functions: dict[tuple[int, str], int] = {}


def _function(device_index: int, binary: Binary) -> int:
    key = (device_index, binary.key)
    if key not in _functions:
        try:
            _functions[key] = _load(device_index, binary)
        except BackendError as error:
            if not is_shortage(error) or torch_api.is_capturing():
                raise
            torch.cuda.empty_cache()  # the driver cannot use PyTorch's cached memory
            _functions[key] = _load(device_index, binary)
    return _functions[key]


@cache
def _context(device_index: int) -> ctypes.c_void_p:
    """The context that PyTorch uses too."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _run("cuInit", 0)
    _run("cuDeviceGet", ctypes.byref(device), device_index)
    _run("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context


def _load(device_index: int, binary: Binary) -> int:
    context, module, function = _context(device_index), ctypes.c_void_p(), ctypes.c_void_p()
    _run("cuCtxPushCurrent_v2", context)
    try:
        _run("cuModuleLoadData", ctypes.byref(module), binary.cubin)
        _run("cuModuleGetFunction", ctypes.byref(function), module, binary.name.encode())
        if binary.shared_bytes > _LARGEST_SHARED_BYTES_BY_DEFAULT:
            _run("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            _run("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_BYTES, binary.shared_bytes)
    finally:
        _run("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    return function.value or 0


@cache
def _driver() -> ctypes.PyDLL:
    # PyDLL keeps the GIL during the call: a launch is shorter than releasing and reacquiring it.
    return ctypes.PyDLL("libcuda.so.1")


@cache
def _loader() -> ctypes.CDLL:
    # CDLL releases the GIL: loading a kernel takes milliseconds, and may wait for the GPU.
    return ctypes.CDLL("libcuda.so.1")


@cache
def _driver_version() -> int:
    """The newest CUDA version that the driver supports: 12030 is 12.3."""
    version = ctypes.c_int()
    _run("cuDriverGetVersion", ctypes.byref(version))
    return version.value


def _run(name: str, *arguments: Any) -> None:
    status = getattr(_loader(), name)(*arguments)
    if status:
        raise BackendError(f"{name} of the CUDA driver failed: {_meaning(status)}")


def _meaning(status: int) -> str:
    """The driver's name and description of a status."""
    texts = []
    for lookup in (_driver().cuGetErrorName, _driver().cuGetErrorString):
        text = ctypes.c_char_p()
        lookup(status, ctypes.byref(text))
        texts.append((text.value or b"unknown").decode())
    return f"{texts[0]} ({status}), {texts[1]}"
