"""Supported problems and candidates of kernels for problems whose operands have roles."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.backends.triton.launching.kernel_call import interpreting
from convwright.core.candidate import Candidate, Config, Source
from convwright.core.dtype import DType, plain_arithmetic
from convwright.core.kinds.problem import Problem

DTYPES = (DType.FP32, DType.FP16, DType.BF16)
MOST_PROGRAMS = 2**31 - 1
_MOST_BYTES = 2**40


def why_not_served(problem: Problem, *, computed: Iterable[DType], rounded: Iterable[DType]) -> str | None:
    """Why no such kernel computes a problem with ``computed`` and ``rounded`` dtypes; None if one can."""
    for dtype in sorted(computed):
        if dtype not in DTYPES:
            return f"computes only {', '.join(DTYPES)}, got {dtype}"
    if not problem.output.numel:
        return f"needs a non-empty output, got {problem.output.shape}"
    for name, spec in problem.operands.items():
        if any(stride < 0 for stride in spec.strides):
            return f"needs strides of at least 0, got {spec.strides} of `{name}`"
        if spec.span_bytes >= _MOST_BYTES:
            return f"needs operands that span less than 2^40 bytes, got {spec.span_bytes:,} of `{name}`"
    if DType.BF16 in rounded and interpreting():
        return "cannot run in Triton's interpreter, which truncates bf16 instead of rounding"
    return None


def offered(
    problem: Problem, algorithm: str, config: Config, estimated_us: float | None, workspace_bytes: int = 0
) -> Candidate:
    """A compiled candidate."""
    return Candidate(
        problem, "triton", algorithm, config, plain_arithmetic(problem.dtype), workspace_bytes, True, Source.RULE,
        compiles=True, estimated_us=estimated_us,
    )  # fmt: skip
