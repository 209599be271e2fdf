"""One object of cuDNN's backend interface: create, set attributes, finalize, read them, destroy with its owner."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int, c_int64, c_void_p
from functools import lru_cache
from typing import Any, Self

from convwright.backends.cudnn.graph.attributes import Attribute, Kind
from convwright.backends.cudnn.library import Library, Missing, in_figures, load
from convwright.errors import BackendError

_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "cudnnBackendCreateDescriptor": (c_int, c_void_p),
    "cudnnBackendDestroyDescriptor": (c_void_p,),
    "cudnnBackendSetAttribute": (c_void_p, c_int, c_int, c_int64, c_void_p),
    "cudnnBackendGetAttribute": (c_void_p, c_int, c_int, c_int64, c_void_p, c_void_p),
    "cudnnBackendFinalize": (c_void_p,),
    "cudnnBackendExecute": (c_void_p, c_void_p, c_void_p),
}


def cudnn() -> Library:
    """cuDNN; raises with the reason if it cannot be loaded."""
    library = load()
    if isinstance(library, Missing):
        raise BackendError(library.reason)
    return library


@lru_cache
def functions() -> Mapping[str, Callable[..., int]]:
    """The functions of cuDNN's backend interface, called with the GIL held: each is short, or only enqueues."""
    library = cudnn()
    dll = ctypes.PyDLL(library.path)
    found = {name: function for name in _SIGNATURES if (function := getattr(dll, name, None)) is not None}
    lacking = [name for name in _SIGNATURES if name not in found]
    if lacking:
        version = f"cuDNN {in_figures(library.version)}"
        raise BackendError(f"{version} has no graph API (no function {lacking[0]}): install a complete cuDNN 9")
    for name, function in found.items():
        function.argtypes = _SIGNATURES[name]
    return found


class Descriptor:
    """A backend descriptor. It keeps the descriptors that it refers to alive."""

    __slots__ = ("_held", "address")

    def __init__(self, kind: Kind) -> None:
        self._held: list[Descriptor] = []
        self.address: int | None = None
        made = c_void_p()
        _check("cudnnBackendCreateDescriptor", kind, byref(made))
        self.address = made.value

    def set(self, attribute: Attribute, *values: Any) -> Self:
        """Set ``attribute`` to these values."""
        self._held += [value for value in values if isinstance(value, Descriptor)]
        plain = [value.address if isinstance(value, Descriptor) else value for value in values]
        return self._set(attribute, (attribute.type.element * len(plain))(*plain), len(plain))

    def set_text(self, attribute: Attribute, text: str) -> Self:
        raw = text.encode()
        return self._set(attribute, ctypes.create_string_buffer(raw), len(raw))

    def finalize(self) -> Self:
        """Let cuDNN check the descriptor, which is usable only afterwards."""
        _check("cudnnBackendFinalize", self.address)
        return self

    def get(self, attribute: Attribute, most: int = 1) -> list[Any]:
        """The values of ``attribute``, at most ``most`` of them."""
        values = (attribute.type.element * most)()
        return list(values[: self._get(attribute, most, values)])

    def text(self, attribute: Attribute) -> str:
        count = self._get(attribute, 0, None)
        raw = ctypes.create_string_buffer(count + 1)
        self._get(attribute, count, raw)
        return raw.value.decode()

    def count(self, attribute: Attribute) -> int:
        """The number of values of ``attribute``."""
        return self._get(attribute, 0, None)

    def fill(self, attribute: Attribute, blank: Blank) -> Sequence[Descriptor]:
        """Let cuDNN write the descriptors of ``attribute`` into blank ones. Returns those that were written."""
        return blank.descriptors[: self._get(attribute, len(blank.descriptors), blank.addresses)]

    def _set(self, attribute: Attribute, values: Any, count: int) -> Self:
        _check("cudnnBackendSetAttribute", self.address, attribute.number, attribute.type.number, count, values)
        return self

    def _get(self, attribute: Attribute, most: int, values: Any) -> int:
        count = c_int64()
        where = (self.address, attribute.number, attribute.type.number)
        _check("cudnnBackendGetAttribute", *where, most, byref(count), values)
        return count.value

    # When the interpreter exits, the device may be gone before its plans, so these are not destroyed.
    def __del__(self, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.address is not None and not _ending():
            functions()["cudnnBackendDestroyDescriptor"](self.address)


class Blank:
    """Descriptors that cuDNN writes into, over and over if need be."""

    __slots__ = ("addresses", "descriptors")

    def __init__(self, kind: Kind, count: int = 1) -> None:
        self.descriptors = [Descriptor(kind) for _ in range(count)]
        self.addresses = (c_void_p * count)(*(descriptor.address for descriptor in self.descriptors))


def _check(name: str, *arguments: object) -> None:
    status = functions()[name](*arguments)
    if status:
        raise BackendError(cudnn().explain(status))
