"""Tensor maps of operands, which the driver encodes for Hopper's copy engine."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.errors import BackendError

# CU_TENSOR_MAP_…
_TYPES = {"fp16": 6, "bf16": 9}
_NO_INTERLEAVE, _L2_128_BYTES, _ZEROS_OUTSIDE = 0, 2, 0
_MAP_BYTES, _ALIGNED = 128, 64
_MOST_KEPT = 64
SCRATCH_POINTERS = 2  # every Triton kernel takes a global and a profile scratch pointer after its own arguments
_PARAMETERS = re.compile(r"^\s*\.param .*_param_\d+", flags=re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mapped:
    """The data of an operand's tensor map, except the address, with the innermost dimension first, as the driver
    expects."""

    place: int
    """The index of the operand."""
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes, of all dimensions but the first."""
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int

    @classmethod
    def read(cls, known: dict[str, Any]) -> Mapped:
        numbers = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        return cls(known["place"], known["dtype"], **numbers, swizzle=known["swizzle"])

    @property
    def more_parameters(self) -> int:
        """Sizes and strides, which Triton's kernels take after a map and do not use."""
        return 2 * len(self.sizes)


def mapped_operands(call: KernelCall, compiled: Any) -> tuple[Mapped, ...]:
    """The tensor maps of a kernel that Triton has ``compiled``, with its layout of boxes."""
    names, meta = [name for name in call.pointers if name in call.maps], compiled.metadata.tensordesc_meta
    found = tuple(_mapped(call, name, each) for name, each in zip(names, meta, strict=True))
    expected = len(call.pointers) + sum(each.more_parameters for each in found) + SCRATCH_POINTERS
    taken = len(_PARAMETERS.findall(compiled.asm["ptx"]))
    if taken != expected:
        raise BackendError(f"{compiled.metadata.name} takes {taken} parameters with this Triton, expected {expected}")
    return found


def _mapped(call: KernelCall, name: str, meta: dict[str, Any]) -> Mapped:
    each, dtype, nbytes = call.maps[name], call.pointers[name][0], meta["elem_size"]
    # One instruction transfers rows up to the swizzled width; a wider box takes several.
    spanned = [(size - 1) * step + 1 for size, step in zip(meta["block_size"], each.steps, strict=True)]
    apart = tuple(nbytes * stride for stride in each.strides[-2::-1])
    place = [*call.pointers].index(name)
    return Mapped(place, dtype, each.sizes[::-1], apart, tuple(spanned[::-1]), each.steps[::-1], meta["swizzle"])


@dataclass(slots=True)
class EncodedMaps:
    """One operand's encoded maps, cached by address."""

    operand: Mapped
    run: Callable[..., None]
    _kept: dict[int, tuple[int, Any]] = field(default_factory=dict, init=False)

    def at(self, address: int) -> int:
        """The address of the map of an operand at ``address``."""
        found = self._kept.get(address)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[address] = self._encoded(address)
        return found[0]

    def _encoded(self, address: int) -> tuple[int, Any]:
        operand, rank = self.operand, len(self.operand.sizes)
        memory = ctypes.create_string_buffer(_MAP_BYTES + _ALIGNED)
        begin = -(-ctypes.addressof(memory) // _ALIGNED) * _ALIGNED
        self.run(
            "cuTensorMapEncodeTiled", ctypes.c_void_p(begin), _TYPES[operand.dtype], rank, ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*operand.sizes), (ctypes.c_uint64 * rank)(*operand.strides),
            (ctypes.c_uint32 * rank)(*operand.box), (ctypes.c_uint32 * rank)(*operand.steps),
            _NO_INTERLEAVE, operand.swizzle, _L2_128_BYTES, _ZEROS_OUTSIDE,
        )  # fmt: skip
        return begin, memory
