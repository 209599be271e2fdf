"""The list of backends, written out."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from convwright.core.plan import Backend

# In the order in which they stand in a table: PyTorch first, since it is everyone's baseline.
BACKENDS = {
    "torch": "convwright.backends.torch_native.backend:TorchNative",
    "cudnn": "convwright.backends.cudnn.backend:Cudnn",
    "triton": "convwright.backends.triton.backend:TritonKernels",
    "reference": "convwright.backends.reference.backend:Reference",
}


@lru_cache
def backend(name: str) -> Backend:
    """The backend called ``name``; it is imported when first asked for."""
    module, _, attribute = BACKENDS[name].partition(":")
    made: Backend = getattr(import_module(module), attribute)()
    return made


def backends() -> tuple[Backend, ...]:
    return tuple(backend(name) for name in BACKENDS)
