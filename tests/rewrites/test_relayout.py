"""Operands copied into another layout, where they lie otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convwright.core.candidate import Refusal
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.graph.memory_plan import aligned
from convwright.rewrites import rewrite
from rewrites.around import CPU


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_a_layout_that_is_there_already_is_refused(layout: Layout) -> None:
    problem = ConvProblem.of((2, 8, 9, 9), (8, 8, 3, 3), layout=layout)
    refused, other = sorted(rewrite("relayout").arguments(problem, CPU), key=lambda each: isinstance(each, tuple))
    assert refused == Refusal(f"relayout({layout})", f"all operands are dense in {layout} already")
    assert other == (("layout", "nhwc" if layout is Layout.NCHW else "nchw"),)


def test_only_what_lies_otherwise_is_copied() -> None:
    problem = ConvProblem.of((2, 8, 9, 9), (8, 8, 3, 3), epilogue="residual+bias")
    mixed = replace(problem, x=replace(problem.x.dense(Layout.NHWC), alignment=4))
    arguments = (("layout", "nhwc"),)
    inner = rewrite("relayout").inner(mixed, arguments)
    assert inner.x == mixed.x
    assert {inner.w.layout, inner.y.layout} == {Layout.NHWC}
    assert rewrite("relayout").moved_bytes(mixed, arguments) == 4 * problem.y.nbytes  # y and the residual, in and out
    forward = rewrite("relayout").scratch_bytes(problem, arguments)
    backward = rewrite("relayout").scratch_bytes(problem.asking(Direction.BACKWARD_WEIGHT), arguments)
    assert forward - 2 * aligned(problem.y.nbytes) == aligned(problem.x.nbytes)
    assert backward == aligned(problem.x.nbytes) + aligned(problem.y.nbytes) + aligned(problem.w.nbytes)
