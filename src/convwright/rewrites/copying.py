"""The base of rewrites that copy operands into scratch memory and an output back."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from convwright.core.candidate import Candidate, Config
from convwright.core.direction import Role
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.rewrites.embedding import Embedded, Embedding
from convwright.rewrites.rewrite import Rewrite
from convwright.rewrites.scratch import Scratch, scratch_bytes
from convwright.tensors import empty, laid_

Embeddings = dict[Role, Embedding]


class CopyingRewrite(Rewrite):
    """Defined by its inner problem and by the place of each changed operand in it."""

    @abstractmethod
    def embeddings(self, problem: ConvProblem, arguments: Config) -> Embeddings:
        """How each changed operand lies in the inner problem. A weight is copied when it is prepared."""

    def scratch_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return scratch_bytes(_at_each_call(self.embeddings(problem, arguments)))

    def moved_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        embeddings = _at_each_call(self.embeddings(problem, arguments))
        output = embeddings.pop(problem.direction.output, None)
        back = output.used_bytes + problem.output.nbytes if output is not None else 0
        return back + sum(embedding.held_bytes for embedding in embeddings.values())

    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        return CopyingPlan(candidate, inner_plan, self.embeddings(candidate.problem, candidate.config))


class CopyingPlan:
    """Copies operands into scratch memory, runs the inner plan, and copies its output back, each only if needed."""

    def __init__(self, candidate: Candidate, inner_plan: Plan, embeddings: Embeddings) -> None:
        problem = candidate.problem
        self.candidate = candidate
        self.writes_out = inner_plan.writes_out
        self._inner = inner_plan
        self._weight = embeddings.get(Role.W)
        self._scratch = Scratch(_at_each_call(embeddings), inner_plan.workspace_bytes)
        self.workspace_bytes = self._scratch.workspace_bytes
        self._first, self._second = problem.direction.operands
        self._output = problem.direction.output
        self._out_spec = problem.output

    def prepare(self, weight: Tensor) -> Tensor:
        return self._inner.prepare(weight if self._weight is None else self._weight.pack(weight))

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
        if self._first in scratch:
            first = scratch[self._first].hold(first)
        if self._second in scratch:
            second = scratch[self._second].hold(second)
        if bias is not None and Role.BIAS in scratch:
            bias = scratch[Role.BIAS].hold(bias)
        if residual is not None and Role.RESIDUAL in scratch:
            residual = scratch[Role.RESIDUAL].hold(residual)
        inside = scratch.get(self._output)
        if inside is None:
            made = self._inner(first, second, bias, residual, out, inner_workspace)
            return made if out is not None or self.writes_out else laid_(made, self._out_spec)
        if out is None:
            out = empty(self._out_spec, first.device)
        if self.writes_out:
            self._inner(first, second, bias, residual, inside.tensor, inner_workspace)
            return inside.release(out)
        # The inner plan allocates its output; copying that to scratch memory would only cost another copy.
        made = self._inner(first, second, bias, residual, None, inner_workspace)
        return Embedded(self._scratch.embeddings[self._output], made).release(out)


def _at_each_call(embeddings: Embeddings) -> Embeddings:
    return {role: embedding for role, embedding in embeddings.items() if role is not Role.W}
