"""The approximate time that Triton takes to compile a kernel."""

from __future__ import annotations

# Seconds for a kernel whose taps are loops, and additional seconds per unrolled instruction. For each memory access a
# compiler pass walks all instructions (TritonGPUCoalesce, Triton 3.6).
COMPILE_S, _INSTRUCTION_S, _ACCESS_S = 0.7, 1e-3, 3e-5


def seconds_to_compile(instructions: int, accesses: int) -> float:
    """For a kernel with ``instructions`` unrolled instructions, ``accesses`` of them to memory."""
    return COMPILE_S + _INSTRUCTION_S * instructions + _ACCESS_S * accesses * instructions
