"""Compute a batch in equal parts, one after the other, which needs the workspace of one part only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction, Role
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.rewrites.copying import Embeddings
from convwright.rewrites.embedding import Embedding
from convwright.rewrites.rewrite import Rewrite
from convwright.rewrites.scratch import Scratch, scratch_bytes
from convwright.tensors import empty

PARTS = (2, 4, 8)


class SplitBatch(Rewrite):
    """``split-batch(4, …)``: four problems of a quarter of the batch. Weight gradients are summed."""

    name = "split-batch"
    written = r"\d+, "

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        if not problem.n or all(problem.n % parts for parts in PARTS):
            counts = ", ".join(map(str, PARTS[:-1]))
            yield Refusal(self.name, f"a batch of {problem.n} cannot be split into {counts} or {PARTS[-1]} equal parts")
            return
        for parts in PARTS:
            if problem.n % parts == 0:
                yield (("parts", parts),)
            else:
                reason = f"a batch of {problem.n} cannot be split into {parts} equal parts"
                yield Refusal(f"{self.name}({parts})", reason)

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        size = problem.n // _parts(arguments)
        return replace(problem, x=_slice(problem.x, size), y=_slice(problem.y, size))

    def scratch_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return scratch_bytes(_partial(problem))

    def moved_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        each = 3 * sum(partial.used_bytes for partial in _partial(problem).values())
        return (_parts(arguments) - 1) * each

    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        if candidate.problem.direction is Direction.BACKWARD_WEIGHT:
            return SplitWeightGradient(candidate, inner_plan)
        return SplitBatchPlan(candidate, inner_plan)


class _Split:
    """The common part of both plans."""

    def __init__(self, candidate: Candidate, inner_plan: Plan) -> None:
        self.candidate = candidate
        self.writes_out = inner_plan.writes_out
        self._inner = inner_plan
        self._scratch = Scratch(_partial(candidate.problem), inner_plan.workspace_bytes)
        self.workspace_bytes = self._scratch.workspace_bytes
        self._parts = _parts(candidate.config)
        self._out_spec = candidate.problem.output

    def prepare(self, weight: Tensor) -> Tensor:
        return self._inner.prepare(weight)


class SplitBatchPlan(_Split):
    """Forward or backward data: every part writes its own slice of the output."""

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        _, inner_workspace = self._scratch.of(workspace, first.device)
        if out is None:
            out = empty(self._out_spec, first.device)
        outs = out.chunk(self._parts)
        residuals = (None,) * len(outs) if residual is None else residual.chunk(self._parts)
        for part, part_residual, part_out in zip(first.chunk(self._parts), residuals, outs, strict=True):
            self._inner(part, second, bias, part_residual, part_out, inner_workspace)
        return out


class SplitWeightGradient(_Split):
    """Backward weight: the first part writes the gradient, the others are added to it."""

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        scratch, inner_workspace = self._scratch.of(workspace, first.device)
        if out is None:
            out = empty(self._out_spec, first.device)
        parts = zip(first.chunk(self._parts), second.chunk(self._parts), strict=True)
        self._inner(*next(parts), None, None, out, inner_workspace)
        for x, dy in parts:
            out.add_(self._inner(x, dy, None, None, scratch[Role.DW].tensor, inner_workspace))
        return out


def _parts(arguments: Config) -> int:
    return int(dict(arguments)["parts"])


def _partial(problem: ConvProblem) -> Embeddings:
    """Scratch memory for the weight gradient of every part except the first."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return {}
    return {Role.DW: Embedding(problem.w, used_bytes=problem.w.nbytes)}


def _slice(spec: TensorSpec, size: int) -> TensorSpec:
    """``size`` images of ``spec`` in place: a later slice may be less aligned than the first."""
    step_bytes = size * spec.strides[0] * spec.dtype.nbytes
    alignment = min(spec.alignment, step_bytes & -step_bytes) if step_bytes else spec.alignment
    return replace(spec, shape=(size, *spec.shape[1:]), alignment=alignment)
