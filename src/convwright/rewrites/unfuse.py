"""Compute an epilogue separately, so that algorithms without fusion can compete for conv + bias + ReLU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.epilogue_math import ahead, finish_
from convwright.rewrites.copying import Embeddings
from convwright.rewrites.embedding import Embedded, Embedding
from convwright.rewrites.rewrite import Rewrite
from convwright.rewrites.scratch import Scratch, scratch_bytes


class Unfuse(Rewrite):
    """``unfuse(…)``: the inner problem has no epilogue. A convolution's epilogue is applied to its output, a gradient's
    to a copy of dy. With accumulation the inner output is added to the outer one."""

    name = "unfuse"

    def arguments(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        yield from self.possible(problem, device)

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        if problem.dtype.narrow and problem.y.dtype is not DType.FP32:
            yield Refusal(self.name, f"sums are rounded to {problem.y.dtype} ahead of what would be applied to them")
        else:
            yield () if problem.epilogue else Refusal(self.name, f"its epilogue is {problem.epilogue}")

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        beside = _beside(problem)
        y = beside[Role.DY].spec if Role.DY in beside else problem.y
        return replace(problem, epilogue=Epilogue(), y=y)

    def scratch_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return scratch_bytes(_beside(problem))

    def moved_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        """Each step reads and writes its operand in place, and reads what it adds."""
        epilogue, operands, output = problem.epilogue, problem.operands, problem.output
        forward = problem.direction is Direction.FORWARD
        applied = epilogue.scale + (epilogue.activation is not Activation.NONE)
        steps = applied + forward * (epilogue.residual + epilogue.bias)
        sums = problem.y.nbytes if Role.DB in operands else 0
        read = (Role.SCALE, Role.RESIDUAL, Role.BIAS, Role.Z)
        added = sum(operands[role].nbytes for role in read if role in operands)
        return 2 * steps * problem.y.nbytes + sums + added + 3 * epilogue.accumulate * output.nbytes

    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        forward = candidate.problem.direction is Direction.FORWARD
        return UnfuseForward(candidate, inner_plan) if forward else UnfuseBackward(candidate, inner_plan)


class _Unfused:
    """The common part of both plans: where the inner output goes, and how it gets into the outer one."""

    def __init__(self, candidate: Candidate, inner_plan: Plan) -> None:
        problem = candidate.problem
        self.candidate = candidate
        self.writes_out = inner_plan.writes_out
        self._inner = inner_plan
        self._epilogue = problem.epilogue
        self._scratch = Scratch(_beside(problem), inner_plan.workspace_bytes)
        self.workspace_bytes = self._scratch.workspace_bytes
        self._output = problem.direction.output

    def prepare(self, weight: Tensor) -> Tensor:
        return self._inner.prepare(weight)

    def _target(self, scratch: Mapping[Role, Embedded], out: Tensor | None) -> Tensor | None:
        """Where the inner output goes; None if the inner plan allocates it."""
        if not self._epilogue.accumulate:
            return out
        return scratch[self._output].tensor if self._inner.writes_out else None


class UnfuseForward(_Unfused):
    """Runs the inner plan, then the epilogue in place on its output."""

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        *,
        scale: Tensor | None = None,
    ) -> Tensor:
        scratch, inner_workspace = self._scratch.of(workspace, first.device)
        y = self._inner(first, second, None, None, self._target(scratch, out), inner_workspace)
        y = finish_(y, self._epilogue.activation, scale=scale, residual=residual, bias=bias)
        return y if out is None or not self._epilogue.accumulate else out.add_(y)


class UnfuseBackward(_Unfused):
    """Multiplies dy by the activation's derivative, which gives the bias's gradient, and by the scale; then runs the
    inner plan on the product."""

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        *,
        scale: Tensor | None = None,
        z: Tensor | None = None,
        db: Tensor | None = None,
    ) -> Tensor:
        scratch, inner_workspace = self._scratch.of(workspace, first.device)
        dy_first = self._output is Role.DX
        into, through = (scratch[role].tensor if role in scratch else None for role in (Role.DY, Role.DB))
        dy = first if dy_first else second
        dz = ahead(dy, self._epilogue.activation, z=z, scale=scale, db=db, into=into, through=through)
        operands = (dz, second) if dy_first else (first, dz)
        made = self._inner(*operands, None, None, self._target(scratch, out), inner_workspace)
        return made if out is None or not self._epilogue.accumulate else out.add_(made)


def _beside(problem: ConvProblem) -> Embeddings:
    """Dense scratch memory for the multiplied dy, and for outputs that are added to others."""
    backward, epilogue = problem.direction is not Direction.FORWARD, problem.epilogue
    specs: dict[Role, TensorSpec] = {}
    if backward and (epilogue.scale or epilogue.activation is not Activation.NONE):
        channels_last = problem.y.layout is not Layout.NCHW and problem.y.strides[1] == 1
        specs[Role.DY] = problem.y.dense(Layout.NHWC if channels_last else Layout.NCHW)
    if epilogue.accumulate:
        specs |= {role: problem.operands[role] for role in problem.outputs}
    return {role: Embedding(spec, used_bytes=spec.nbytes) for role, spec in specs.items()}
