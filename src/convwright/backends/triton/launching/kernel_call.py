"""What a launch of a Triton kernel is for, and compiling it, for which PyTorch need not be loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


# What a kernel is told of sums that lie in a workspace.
WORKSPACE = ("fp32", 16)
# Compute capabilities on which kernels are launched before the one ahead of them has ended. Where else that is
# possible it was not tried, and some drivers refuse to capture it there (sm_120).
_OVERLAPPING = (90,)
_OVERLAPS = "OVERLAPS"  # the constant of a kernel that can wait for the one ahead of it
# As Triton calls those dtypes for which it has names of its own.
_TRITON_NAMES = {"int8": "i8", "fp8_e4m3": "fp8e4nv", "fp8_e5m2": "fp8e5"}


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How an operand lies that Hopper's copy engine moves a box of at a time, the outermost dimension first, in
    elements; of each dimension a box has every ``steps``-th."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class KernelCall:
    """What is to be launched: a kernel, its pointers with dtype and alignment in bytes, its constants, its grid; and
    which of the operands the kernel is given maps of instead of pointers."""

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
        """Run in Triton's interpreter, on tensors of the CPU."""
        _let_numbers_count()
        given: dict[str, Any] = dict(zip(self.pointers, operands, strict=True))
        if self.maps:
            from convwright.backends.triton.launching.interpreted_maps import mapped

            given |= {name: mapped(given[name], each) for name, each in self.maps.items()}
        self.kernel[(self.blocks,)](**given, **self._constants(overlapping=False))

    def overlaps(self, capability: int) -> bool:
        """Whether the kernel, compiled for such a GPU, waits for the one ahead of it by itself: the GPU may launch it
        before that has ended."""
        return self._can_wait and capability in _OVERLAPPING

    @property
    def _can_wait(self) -> bool:
        return _OVERLAPS in self.kernel.arg_names

    def _constants(self, *, overlapping: bool) -> dict[str, object]:
        return {**self.constants, **({_OVERLAPS: overlapping} if self._can_wait else {})}


def interpreting() -> bool:
    """Whether Triton runs kernels in its interpreter (``TRITON_INTERPRET=1``). Triton, which takes 0.3 s to be loaded,
    is not loaded to be asked."""
    if "triton" not in sys.modules:
        return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")
    import triton

    return bool(triton.knobs.runtime.interpret)


@cache
def _let_numbers_count() -> None:
    """Let a number that a kernel computes bound its loops: Triton's interpreter holds it as an array of one element,
    which NumPy no longer takes for a number."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda number: number.handle.data.item())

    interpreter._patch_lang_tensor = patched
