"""Compute in another memory layout: copy operands into it, and the output back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from convwright.core.candidate import Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.rewrites.copies import Steps, whole_copies
from convwright.rewrites.copying import CopyingRewrite, Embeddings
from convwright.rewrites.embedding import Embedding


class Relayout(CopyingRewrite):
    """``relayout(nhwc, …)``: the inner problem has all operands dense in NHWC. Operands that are so are not copied."""

    name = "relayout"
    written = r"(nchw|nhwc), "

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        for layout in (Layout.NHWC, Layout.NCHW):
            arguments = (("layout", str(layout)),)
            if self.inner(problem, arguments) != problem:
                yield arguments
            else:
                yield Refusal(f"{self.name}({layout})", f"all operands are dense in {layout} already")

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        layout = Layout(str(dict(arguments)["layout"]))
        x, w, y = (_in_layout(spec, layout) for spec in (problem.x, problem.w, problem.y))
        return replace(problem, x=x, w=w, y=y)

    def embeddings(self, problem: ConvProblem, arguments: Config) -> Embeddings:
        within = self.inner(problem, arguments).operands
        return {
            role: Embedding(within[role], used_bytes=spec.nbytes)
            for role, spec in problem.operands.items()
            if within[role] != spec
        }

    def copies(self, problem: ConvProblem, arguments: Config) -> dict[Role, Steps]:
        return whole_copies(problem, self.inner(problem, arguments))


def _in_layout(spec: TensorSpec, layout: Layout) -> TensorSpec:
    dense = spec.dense(layout)
    return spec if dense.strides == spec.strides else dense
