"""Problems that cuDNN goes wrong on, as ``benchmarks/degenerate.py`` found on an H200 (cuDNN 9.19)."""

from __future__ import annotations

from convwright.core.limits import beyond_32_bits
from convwright.core.problem import ConvProblem


def fault_of(problem: ConvProblem) -> str | None:
    """Why cuDNN is not asked for anything; None where nothing is known against it.

    Where a tap or an output meets padding alone its heuristics end the process for some weight gradients (SIGSEGV).
    Engines 1, 20, 26, 29, 73, 76, those compiled at run time and algorithm 1 for an input's gradient leave memory
    unwritten there, or add what lies beside the operands.
    """
    if problem.meets_padding_alone:
        return "cuDNN crashes or computes wrong results on some problems where a tap or an output meets padding alone"
    return beyond_32_bits(problem)
