"""About how long Triton takes to compile a kernel."""

from __future__ import annotations

# Seconds for a kernel whose taps are loops, and more for each instruction that is written out. A pass walks all of them
# for each access to memory (TritonGPUCoalesce, Triton 3.6).
COMPILE_S, _INSTRUCTION_S, _ACCESS_S = 0.7, 1e-3, 3e-5


def seconds_to_compile(instructions: int, accesses: int) -> float:
    """Of a kernel with so many instructions written out, ``accesses`` of them to memory."""
    return COMPILE_S + _INSTRUCTION_S * instructions + _ACCESS_S * accesses * instructions
