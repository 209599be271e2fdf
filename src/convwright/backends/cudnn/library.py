"""libcudnn, found and loaded once: its functions with their types, and its handles."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from ctypes import c_char_p, c_double, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from convwright.backends.cudnn.status import SUCCESS, explain
from convwright.errors import BackendError
from convwright.forking import in_child

SONAME = "libcudnn.so.9"
_OLDEST = 90_000

_P, _I, _D, _Z = c_void_p, c_int, c_double, c_size_t
_WORKSPACE_QUERY = (_P, _P, _P, _P, _P, _I, _P)
_HEURISTIC_QUERY = (_P, _P, _P, _P, _P, _I, _P, _P)
_CONVOLUTION = (_P, _P, _P, _P, _P, _P, _P, _I, _P, _Z, _P, _P, _P)
_CREATE_OR_DESTROY = {
    f"cudnn{verb}{noun}Descriptor": (_P,)
    for verb in ("Create", "Destroy")
    for noun in ("Tensor", "Filter", "Convolution", "Activation")
}

# Every function returns a status, except the two that _open handles by name. The first four are required; the others
# are the classic API.
_ALWAYS: Mapping[str, tuple[Any, ...]] = {
    "cudnnGetVersion": (),
    "cudnnGetLastErrorString": (c_char_p, _Z),
    "cudnnCreate": (_P,),
    "cudnnSetStream": (_P, _P),
}
_CLASSIC: Mapping[str, tuple[Any, ...]] = {
    **_CREATE_OR_DESTROY,
    "cudnnSetTensorNdDescriptor": (_P, _I, _I, _P, _P),
    "cudnnGetTensorNdDescriptor": (_P, _I, _P, _P, _P, _P),
    "cudnnSetFilterNdDescriptor": (_P, _I, _I, _I, _P),
    "cudnnGetFilterNdDescriptor": (_P, _I, _P, _P, _P, _P),
    "cudnnSetConvolutionNdDescriptor": (_P, _I, _P, _P, _P, _I, _I),
    "cudnnGetConvolutionNdDescriptor": (_P, _I, _P, _P, _P, _P, _P, _P),
    "cudnnSetConvolutionGroupCount": (_P, _I),
    "cudnnGetConvolutionGroupCount": (_P, _P),
    "cudnnSetConvolutionMathType": (_P, _I),
    "cudnnGetConvolutionMathType": (_P, _P),
    "cudnnSetActivationDescriptor": (_P, _I, _I, _D),
    "cudnnGetConvolutionNdForwardOutputDim": (_P, _P, _P, _I, _P),
    "cudnnGetConvolutionForwardWorkspaceSize": _WORKSPACE_QUERY,
    "cudnnGetConvolutionBackwardDataWorkspaceSize": _WORKSPACE_QUERY,
    "cudnnGetConvolutionBackwardFilterWorkspaceSize": _WORKSPACE_QUERY,
    "cudnnGetConvolutionForwardAlgorithm_v7": _HEURISTIC_QUERY,
    "cudnnGetConvolutionBackwardDataAlgorithm_v7": _HEURISTIC_QUERY,
    "cudnnGetConvolutionBackwardFilterAlgorithm_v7": _HEURISTIC_QUERY,
    "cudnnConvolutionForward": _CONVOLUTION,
    "cudnnConvolutionBackwardData": _CONVOLUTION,
    "cudnnConvolutionBackwardFilter": _CONVOLUTION,
    "cudnnConvolutionBiasActivationForward": (*_CONVOLUTION[:10], _P, _P, _P, _P, _P, _P, _P, _P),
}
SIGNATURES: Mapping[str, tuple[Any, ...]] = {**_ALWAYS, **_CLASSIC}


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """The loaded cuDNN: ``version`` as cuDNN counts it (91900 is 9.19.0), and its functions by name.

    ``no_classic_api`` is the reason if the classic API, which is deprecated, cannot be used.
    """

    version: int
    path: str
    functions: Mapping[str, Callable[..., Any]]
    no_classic_api: str | None = None

    def __str__(self) -> str:
        return f"cuDNN {in_figures(self.version)}{f', {self.no_classic_api}' if self.no_classic_api else ''}"

    def status(self, name: str, *args: object) -> int:
        """Call ``name`` and return its status, for callers that accept a refusal."""
        return int(self.functions[name](*args))

    def call(self, name: str, *args: object) -> None:
        """Call ``name``; raises with cuDNN's reason unless it succeeds."""
        status = self.status(name, *args)
        if status != SUCCESS:
            raise BackendError(f"{name}: {self.explain(status)}")

    def forget_words(self) -> None:
        """Discard cuDNN's previous error texts of this thread, so that they are not attributed to later calls."""
        self.explain(SUCCESS)

    def explain(self, status: int) -> str:
        """``status`` as a sentence, with cuDNN's last error text of this thread."""
        own_words = ctypes.create_string_buffer(1024)
        self.functions["cudnnGetLastErrorString"](own_words, len(own_words))
        return explain(status, own_words.value.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Missing:
    """cuDNN cannot be loaded, with the reason."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@lru_cache
def load() -> Library | Missing:
    """The cuDNN that PyTorch has loaded, or else one installed beside PyTorch or on the system."""
    try:
        return _open(SONAME, mode=os.RTLD_NOLOAD)  # if this one is unusable, no second one is loaded beside it
    except (OSError, AttributeError):  # not loaded yet, or a system without such a mode
        return _load_installed()


def _load_installed() -> Library | Missing:
    for needed in _installed("*/lib/libcublasLt.so.*", "*/lib/libnvrtc.so.*"):
        _preload(needed)
    failures = []
    for path in (*map(str, _installed(f"cudnn/lib/{SONAME}")), SONAME):
        try:
            return _open(path)
        except OSError as failure:
            failures.append(str(failure))
    return Missing(f"cuDNN 9 could not be loaded ({'; '.join(failures)}); `pip install convwright[plan]` installs it")


def _open(path: str, *, mode: int = 0) -> Library | Missing:
    # PyDLL keeps the GIL during a call. Calls are short and only enqueue; releasing the GIL would cost more than they
    # take. With the GIL held, two threads that share a stream, and so a handle, are never inside cuDNN at once.
    dll = ctypes.PyDLL(path, mode=mode or ctypes.DEFAULT_MODE)
    functions = {name: function for name in SIGNATURES if (function := getattr(dll, name, None)) is not None}
    for name, function in functions.items():
        function.argtypes = SIGNATURES[name]
    if "cudnnGetVersion" not in functions:
        return Missing(f"{path} is not cuDNN: it has no function cudnnGetVersion")
    functions["cudnnGetVersion"].restype = c_size_t
    version = functions["cudnnGetVersion"]()
    if version < _OLDEST:
        return Missing(f"cuDNN {in_figures(version)} at {path} is too old: {in_figures(_OLDEST)} or newer is needed")
    lacking = [name for name in SIGNATURES if name not in functions]
    if _ALWAYS.keys() & lacking:
        return Missing(f"cuDNN {in_figures(version)} at {path} has no function {lacking[0]}")
    functions["cudnnGetLastErrorString"].restype = None
    no_classic_api = f"which has no classic API: its function {lacking[0]} is missing" if lacking else None
    return Library(version, path, functions, no_classic_api)


def in_figures(version: int) -> str:
    """The version as text, from cuDNN's number; before version 9 it counted in thousands.

    >>> in_figures(91900), in_figures(8907)
    ('9.19.0', '8.9.7')
    """
    major = 10_000 if version >= _OLDEST else 1000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _installed(*patterns: str) -> Iterator[Path]:
    """Files of NVIDIA's wheels, those beside PyTorch first."""
    spec = find_spec("nvidia")
    roots = [Path(torch.__file__).parents[1] / "nvidia", *map(Path, (spec and spec.submodule_search_locations) or ())]
    for root in dict.fromkeys(roots):
        for pattern in patterns:
            yield from sorted(root.glob(pattern))


def _preload(path: Path) -> None:
    # cuDNN opens these by their plain names, which succeeds only if they are loaded already. Without them cuDNN still
    # loads but refuses more problems, so this failure is ignored.
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return


# Handles live as long as the process: at exit the CUDA context may already be gone.
_handles: dict[tuple[int, int], c_void_p] = {}
_spares: dict[int, c_void_p] = {}
_making = threading.Lock()


def _unlock() -> None:
    global _making
    _making = threading.Lock()


in_child(_unlock)


def handle(device_index: int, stream: int) -> c_void_p:
    """The cuDNN handle of a device and a stream (an address), created when first needed."""
    key = (device_index, stream)
    if key not in _handles:
        with _making:
            if key not in _handles:
                _handles[key] = _bound_handle(device_index, stream)
    return _handles[key]


def _bound_handle(device_index: int, stream: int) -> c_void_p:
    library = load()
    if isinstance(library, Missing):
        raise BackendError(library.reason)
    with torch.cuda.device(device_index):
        made = _spares.pop(device_index, None) or _new_handle(library)
        library.call("cudnnSetStream", made, stream)
        # A graph is captured on a stream of its own that no warm-up has used. Creating a handle allocates, which
        # capture forbids, so a spare one is kept.
        if device_index not in _spares and not torch.cuda.is_current_stream_capturing():
            _spares[device_index] = _new_handle(library)
    return made


def _new_handle(library: Library) -> c_void_p:
    made = c_void_p()
    library.call("cudnnCreate", ctypes.byref(made))
    return made
