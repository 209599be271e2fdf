"""A step of an engine as text: what runs, and in which layout."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from convwright.core.dtype import Arithmetic
from convwright.engine.planning.assignment import Step
from convwright.graph.layouts import layouts_of


def what_runs(step: Step) -> str:
    """The candidate, PyTorch's operator, or the kind of an operation that runs nothing."""
    return step.operation.key.partition(" ")[0] if step.candidate is None else step.candidate.id


def layouts(step: Step) -> str:
    """The distinct layouts of its images; empty if all layouts are the same in memory."""
    specs = [spec for role, spec in step.operation.operands.items() if str(role) != "w"]
    return "→".join(dict.fromkeys(spec.layout for spec in specs if len(layouts_of(spec)) > 1))


def types(step: Step) -> str:
    """The coarsest type that it reads and the type that it writes, or its arithmetic if that rounds fp32."""
    if step.candidate is not None and step.candidate.leaf.arithmetic in (Arithmetic.TF32, Arithmetic.SCALED_FP16):
        return str(step.candidate.leaf.arithmetic)
    *read, written = (spec.dtype for spec in step.operation.operands.values())
    return "→".join(dict.fromkeys(map(str, (max(read, key=lambda each: each.roundoff), written))))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Collection[int]) -> str:
    """Rows under headings. The columns ``numbers`` hold numbers."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
