"""The description of a launch of a Triton kernel, and its compilation without PyTorch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


# The pointer to sums in a workspace: dtype and alignment.
WORKSPACE = ("fp32", 16)
# Compute capabilities on which a kernel may start before the previous one ends. It is untested on others, and some
# drivers refuse to capture it (sm_120).
_OVERLAPPING = (90,)
_OVERLAPS = "OVERLAPS"  # the constant of a kernel that can wait for the previous one
# Triton's own names of these dtypes.
_TRITON_NAMES = {"int8": "i8", "fp8_e4m3": "fp8e4nv", "fp8_e5m2": "fp8e5"}


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The boxes that Hopper's copy engine transfers, with the outermost dimension first, in elements. Along each
    dimension a box has every ``steps``-th element."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class KernelCall:
    """A launch: a kernel, its pointers with dtype and alignment in bytes, its constants and grid, and the operands that
    are passed as tensor maps."""

    kernel: Any
    pointers: Mapping[str, tuple[str, int]]
    constants: Mapping[str, object]
    blocks: int
    warps: int
    stages: int
    registers: int | None = None
    maps: Mapping[str, TensorMap] = field(default_factory=dict)

    def compile(self, architecture: str) -> Any:
        """Triton's compiled kernel for ``architecture`` ("sm_90"). Needs neither a GPU nor a driver."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        signature = {name: f"*{_TRITON_NAMES.get(dtype, dtype)}" for name, (dtype, _) in self.pointers.items()}
        for name, each in self.maps.items():
            signature[name] = f"tensordesc<{self.pointers[name][0]}[{', '.join(map(str, each.box))}]>"
        capability = int(architecture.removeprefix("sm_"))
        constants = self._constants(overlapping=self.overlaps(capability))
        signature |= dict.fromkeys(constants, "constexpr")
        places = {name: place for place, name in enumerate(self.kernel.arg_names)}
        aligned = {name: nbytes for name, (_, nbytes) in self.pointers.items() if name not in self.maps}
        hints = {(places[name],): [["tt.divisibility", nbytes]] for name, nbytes in aligned.items()}
        source = ASTSource(self.kernel, signature, constants, hints)
        target = GPUTarget("cuda", capability, 32)
        options = {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}
        return triton.compile(source, target=target, options=options)

    def interpreted(self, *operands: Tensor | None) -> None:
        """Run in Triton's interpreter, on CPU tensors."""
        _let_numbers_count()
        given: dict[str, Any] = dict(zip(self.pointers, operands, strict=True))
        if self.maps:
            from convwright.backends.triton.launching.interpreted_maps import mapped

            given |= {name: mapped(given[name], each) for name, each in self.maps.items()}
        self.kernel[(self.blocks,)](**given, **self._constants(overlapping=False))

    def overlaps(self, capability: int) -> bool:
        """Whether the compiled kernel waits by itself for the previous kernel, so that the GPU may start it before that
        ends."""
        return self._can_wait and capability in _OVERLAPPING

    @property
    def _can_wait(self) -> bool:
        return _OVERLAPS in self.kernel.arg_names

    def _constants(self, *, overlapping: bool) -> dict[str, object]:
        return {**self.constants, **({_OVERLAPS: overlapping} if self._can_wait else {})}


def interpreting() -> bool:
    """Whether Triton runs kernels in its interpreter (``TRITON_INTERPRET=1``), without loading it for 0.3 s."""
    if "triton" not in sys.modules:
        return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")
    import triton

    return bool(triton.knobs.runtime.interpret)


@cache
def _let_numbers_count() -> None:
    """Allow computed numbers as loop bounds. Triton's interpreter stores them as one-element arrays, which NumPy no
    longer converts to numbers."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda number: number.handle.data.item())

    interpreter._patch_lang_tensor = patched
