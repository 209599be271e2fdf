"""Kernels with sizes at run time: what is asked of Triton for a problem, and what it is compiled for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from common.runtime_sizes import direct, implicit_gemm
from common.runtime_sizes.dividing import reciprocal

from convwright.backends.triton.launching.kernel_call import KernelCall

SIZES = (
    "N", "C", "K", "G", "D", "H", "W", "Z", "P", "Q", "X_N", "X_C", "X_D", "X_H", "X_W",
    "Y_N", "Y_K", "Y_Z", "Y_P", "Y_Q", "W_G", "W_K", "W_C", "W_T", "W_R", "W_S",
)  # fmt: skip
# Constants of no number of images: what is saved where there is one is too little.
_OF_IMAGES = ("N", "X_N", "Y_N")
_AT_ONCE_BYTES = 16  # that a thread reads at most
_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
# No address is made of these, or, of P and Z, only of what is multiplied by a stride.
_BOUNDS = ("N", "D", "H", "W", "P", "Z")


@dataclass(frozen=True)
class SizedCall:
    """A ``KernelCall`` whose ``sizes`` are given at run time; of each, ``hints`` has what it is a multiple of."""

    kernel: Any
    pointers: Mapping[str, tuple[str, int]]
    sizes: Mapping[str, int]
    hints: Mapping[str, int]
    constants: Mapping[str, object]
    blocks: int
    warps: int
    stages: int
    registers: int | None

    @property
    def key(self) -> object:
        """What a kernel is compiled for. Problems for which this is equal share the kernel."""
        told = sorted((name, repr(value)) for name, value in self.constants.items())
        options = self.warps, self.stages, self.registers
        return self.kernel, tuple(self.pointers.items()), tuple(self.sizes), tuple(self.hints.items()), *told, options

    def compile(self, architecture: str) -> Any:
        """Triton's compiled kernel. Needs neither a GPU nor a driver."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        capability, names = int(architecture.removeprefix("sm_")), self.kernel.arg_names
        constants = {**self.constants, "OVERLAPS": self._as_is().overlaps(capability)}
        types = dict.fromkeys(constants, "constexpr") | dict.fromkeys(self.sizes, "i32")
        types |= {name: f"*{dtype}" for name, (dtype, _) in self.pointers.items()}
        hints = {name: nbytes for name, (_, nbytes) in self.pointers.items()} | dict(self.hints)
        attributes = {(names.index(name),): [["tt.divisibility", each]] for name, each in hints.items() if each > 1}
        source = ASTSource(self.kernel, {name: types[name] for name in names}, constants, attributes)
        options = {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)

    def interpreted(self, *operands: Any) -> None:
        """Run in Triton's interpreter, on tensors of the CPU."""
        self._as_is().interpreted(*operands)

    def _as_is(self) -> KernelCall:
        told = {**self.constants, **self.sizes}
        return KernelCall(self.kernel, self.pointers, told, self.blocks, self.warps, self.stages, self.registers)


def variants(call: KernelCall) -> Iterator[tuple[str, SizedCall]]:
    """The ways to give sizes at run time that differ for ``call``."""
    fine, coarse = sized(call), sized(call, hints=Hints.OF_16)
    yield "run time", sized(call, reciprocals=False)
    yield "with reciprocals", fine
    if call.constants.get("FLAT"):  # each step divides by C
        yield "with reciprocals, C constant", sized(call, kept=("C",))
    if any(coarse.hints.get(name, 1) < hint for name, hint in fine.hints.items()):
        yield "with reciprocals, hints of 16", coarse


class Hints(Enum):
    """The constants and divisibility hints of the sizes."""

    NEEDED = "the powers of two that divide those which addresses are made of, up to what is read at once"
    OF_16 = "those of the same that are multiples of 16"
    ALL_OF_16 = "all that are multiples of 16, and that 1 is 1, but not that 0 is 0: as Triton's own dispatch has it"


def sized(
    call: KernelCall, *, reciprocals: bool = True, hints: Hints = Hints.NEEDED, kept: tuple[str, ...] = ()
) -> SizedCall:
    """``call`` with its sizes at run time, but for those of 0 and 1, and those that are ``kept``. With ``reciprocals``
    the host gives those of the numbers that the kernel divides by."""
    kernel, told, divisors = (_direct if call.kernel.__name__ == "direct" else _implicit_gemm)(dict(call.constants))
    names, everything = kernel.arg_names, hints is Hints.ALL_OF_16
    given = {name: int(value) for name, value in told.items() if name in SIZES and name in names}
    sizes = {
        name: size
        for name, size in given.items()
        if name not in kept and (size > 1 or (size == 0 if everything else name in _OF_IMAGES))
    }
    constants = {name: value for name, value in told.items() if name in names and name not in sizes}
    most = _AT_ONCE_BYTES // _BYTES[call.pointers["x"][0]]
    runs = [name for name in ("RUN", "C_RUN") if name in names]
    if hints is Hints.NEEDED:
        constants |= {run: min(told[run], most) for run in runs}
        unseen = (*_BOUNDS, *(name for name in "GQ" if name != told["ALONG"]))
        powers = {name: min(_power_of_two_in(size), most) for name, size in sizes.items() if name not in unseen}
    else:
        constants |= {run: 16 if told[run] == 16 else 1 for run in runs}
        seen = [name for name in sizes if everything or name not in _BOUNDS]
        powers = {name: 16 for name in seen if sizes[name] % 16 == 0}
    for name, divisor in divisors.items():
        times, shift = f"{name}_TIMES", f"{name}_SHIFT"
        if reciprocals and divisor > 1 and name not in kept:
            sizes[times], sizes[shift] = reciprocal(divisor)
        else:
            constants |= {times: None, shift: None}
    powers = {name: hint for name, hint in powers.items() if hint > 1}
    options = call.blocks, call.warps, call.stages, call.registers
    return SizedCall(kernel, dict(call.pointers), sizes, powers, constants, *options)


def _power_of_two_in(size: int) -> int:
    """The largest that divides it, up to the largest of which a hint is of use."""
    return min(size & -size, 16) if size else 16


_Told = tuple[Any, dict[str, Any], dict[str, int]]


def _implicit_gemm(told: dict[str, Any]) -> _Told:
    """The kernel; the constants, with flags for what it found out from sizes and the size ALONG which threads read; and
    what it divides by."""
    assert (told["PARTS"], told["PACKED"]) == (1, False), "whole sums of weights as they are"
    depth = told["T"] * told["R"] * told["S"] * told["C"]
    reach = (told["Z"] - 1) * told["STRIDE_D"] + (told["T"] - 1) * told["DILATION_D"]
    along = "Q" if told["X_PLANES"] or told["Y_PLANES"] else None
    flags = {
        "TAIL": (depth if told["FLAT"] else told["C"]) % told["BK"] != 0,
        "EXACT": depth <= 32,
        "DEEP": told["Z"] > 1 or told["FRONT"] > 0,
        "PADDED_D": told["FRONT"] > 0 or reach >= told["D"],
        "GROUPED": told["G"] > 1,
        "K_FITS": told["K"] % told["BN"] == 0,
        "ODD_ROWS": told["Y_PLANES"] and told["Y_Q"] == 1 and told["Q"] > 1 and told["Q"] % 2 == 1,
        "RUN": _power_of_two_in(told["Q"]) if along else 1,
        "ALONG": along,
        "C_RUN": _power_of_two_in(told["C"]) if told["FLAT"] else 1,
    }
    divisors = {name: told[name] if name != "C" or told["FLAT"] else 1 for name in "CPQZ"}
    return implicit_gemm.implicit_gemm, told | flags, divisors


def _direct(told: dict[str, Any]) -> _Told:
    """The same for the direct kernel, of whose phases a convolution has one."""
    assert (told["DERIVATIVE"], told["TOGETHER"]) == ("none", 1), "a forward convolution"
    phases = {name: told[f"PHASES_{name}"] for name in "DHW"}
    assert all(len(each) == 1 and each[0][2] == 0 for each in phases.values()), "a forward convolution"
    (T, FRONT, _), (R, TOP, _), (S, LEFT, _) = (each[0] for each in phases.values())
    reach = (told["Z"] - 1) * told["STRIDE_D"] - FRONT + (T - 1) * told["DILATION_D"]
    units = told["Q"] * told["G"] if told["ACROSS"] else told["Q"]
    along = "G" if told["CHANNELS_LAST"] else "Q"
    rows, outputs = told["ROWS"] * told["GAP"], told["OUTPUTS"]
    divisors = {
        "G": told["G"], "Q": told["Q"], "Z": told["Z"],
        "SPANS": -(-told["P"] // rows), "COLUMNS": -(-units // told["BQ"]), "BLOCKS": -(-told["K"] // outputs),
    }  # fmt: skip
    flags = {
        "T": T, "R": R, "S": S, "FRONT": FRONT, "TOP": TOP, "LEFT": LEFT,
        "DEEP": told["Z"] > 1,
        "PADDED_D": FRONT > 0 or reach >= told["D"],
        "K_FITS": told["K"] % told["OUTPUTS"] == 0,
        "K_DIVIDED": told["K"] > told["OUTPUTS"],
        "RAGGED": told["C"] % told["SPLIT"] > 0,
        "UNITS_FIT": units % told["BQ"] == 0,
        "ONE_SPAN": told["P"] <= rows,
        "ONE_COLUMN": units <= told["BQ"],
        "RUN": _power_of_two_in(told[along]),
        "ALONG": along,
    }  # fmt: skip
    return direct.direct, told | flags, divisors
