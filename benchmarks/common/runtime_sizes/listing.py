"""What a compiled kernel is made of: registers, what is spilled, and instructions, as NVIDIA's tools list them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", re.MULTILINE)
_TARGET = re.compile(r"\bBRA(?:\.\w+)*\s+(?:!?U?P\w+,\s*)?`?\(?(0x[0-9a-f]+)")
_PRODUCT = re.compile(r"\b[HIQ]?G?MMA\b|\b[HIQ]G?MMA\.")
_LOAD = re.compile(r"\bLDG")


@dataclass(frozen=True, slots=True)
class Listing:
    """``loop`` are the instructions of the innermost loop with most products of tensor cores, or loads where there are
    none of these; 0 where no loop is left."""

    registers: int
    spilled_bytes: int
    instructions: int
    loop: int


def listing(compiled: Any) -> Listing:
    """Of one of Triton's compiled kernels, by the tools that it brings."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(compiled.asm["cubin"])
        tool = knobs.nvidia.cuobjdump.path
        usage, sass = (
            subprocess.run([tool, what, str(file)], capture_output=True, text=True, check=True).stdout
            for what in ("--dump-resource-usage", "--dump-sass")
        )
    registers = re.search(r"REG:(\d+)", usage)
    stack = re.search(r"STACK:(\d+)", usage)
    lines = [(int(at, 16), text) for at, text in _INSTRUCTION.findall(sass)]
    lines = [(at, text) for at, text in lines if not text.startswith("NOP")]
    return Listing(
        int(registers[1]) if registers else 0, int(stack[1]) if stack else 0, len(lines), _loop_length(lines)
    )


def _loop_length(lines: list[tuple[int, str]]) -> int:
    jumps = ((_TARGET.search(text), at) for at, text in lines)
    loops = [(int(found[1], 16), at) for found, at in jumps if found]
    bodies = [[text for at, text in lines if begin <= at <= end] for begin, end in loops if begin < end]
    for wanted in (_PRODUCT, _LOAD):
        most, length = max(
            ((sum(bool(wanted.search(text)) for text in body), -len(body)) for body in bodies), default=(0, 0)
        )
        if most > 0:
            return -length
    return 0
