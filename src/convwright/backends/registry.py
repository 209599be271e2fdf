"""All backends, listed explicitly."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module

from convwright.core.device import DeviceFacts
from convwright.core.plan import Backend, SeveralFingerprints
from convwright.errors import BackendError

# The order of tables: PyTorch first, since it is the baseline.
BACKENDS = {
    "torch": "convwright.backends.torch_native.backend:TorchNative",
    "cudnn": "convwright.backends.cudnn.backend:Cudnn",
    "triton": "convwright.backends.triton.backend:TritonKernels",
    "reference": "convwright.backends.reference.backend:Reference",
}
# The same for problems that are not convolutions.
_OF_KIND: Mapping[str, Mapping[str, str]] = {
    "linear": {
        "torch": "convwright.backends.torch_native.linear:TorchLinear",
    },
    "copy": {
        "torch": "convwright.backends.torch_native.copying:TorchCopy",
        "triton": "convwright.backends.triton.elementwise.backend:TritonElementwise",
    },
    "pointwise": {
        "torch": "convwright.backends.torch_native.pointwise:TorchPointwise",
        "triton": "convwright.backends.triton.elementwise.backend:TritonElementwise",
    },
    "pool": {
        "torch": "convwright.backends.torch_native.pooling:TorchPool",
        "triton": "convwright.backends.triton.pool.backend:TritonPool",
    },
    "resize": {
        "torch": "convwright.backends.torch_native.resizing:TorchResize",
        "triton": "convwright.backends.triton.resize.backend:TritonResize",
    },
}


# The kernels that users registered, by the kind of their problems.
_registered: dict[str, Backend] = {}
USER = "user"


def register(kind: str, member: Backend | None) -> None:
    """Set the backend of a user's kernels for problems of a kind; None removes it."""
    if member is None:
        _registered.pop(kind, None)
    else:
        _registered[kind] = member


def registered(kind: str) -> Backend | None:
    """The backend of the kernels that users registered for problems of a kind."""
    return _registered.get(kind)


def names(kind: str = "conv") -> tuple[str, ...]:
    """The names of the backends for problems of a kind."""
    own = (USER,) if kind in _registered else ()
    return (*(BACKENDS if kind == "conv" else _OF_KIND[kind]), *own)


def kinds() -> tuple[str, ...]:
    """The kinds of problems that have backends."""
    return ("conv", *_OF_KIND)


def backend(name: str, kind: str = "conv") -> Backend:
    """The backend ``name`` for problems of a kind, imported when it is first used."""
    if name != USER:
        return imported(name, kind)
    if kind not in _registered:
        raise BackendError(f"no kernel is registered any more for problems of kind {kind}: call register_kernel again")
    return _registered[kind]


@lru_cache
def imported(name: str, kind: str) -> Backend:
    """The same for the listed backends."""
    there = BACKENDS if kind == "conv" else _OF_KIND[kind]
    module, _, attribute = there[name].partition(":")
    made: Backend = getattr(import_module(module), attribute)()
    return made


def backends(kind: str = "conv") -> tuple[Backend, ...]:
    return tuple(backend(name, kind) for name in names(kind))


def fingerprints(device: DeviceFacts) -> frozenset[str]:
    """The fingerprints of all backends on a device, under any settings that a user may change between runs."""
    members = (member for kind in kinds() for member in backends(kind))
    return frozenset().union(
        *(each.fingerprints(device) if isinstance(each, SeveralFingerprints) else {each.fingerprint(device)}
          for each in members)
    )  # fmt: skip
