"""A rewritten convolution as a convolution and copies: problems of their own, which others may share or leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.kinds.copy import CopyProblem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.rewrites import rewrite


@dataclass(frozen=True, slots=True)
class Copies:
    """What a rewritten candidate does: ``before`` brings operands in, each a copy with the operand as its input;
    ``inner`` computes; ``after`` brings the output back. A role that is in neither is used as it is.

    A copy of a weight is made when the weight is packed.
    """

    before: Mapping[Role, CopyProblem]
    inner: Candidate
    after: CopyProblem | None

    @property
    def problems(self) -> tuple[CopyProblem, ...]:
        """All copies of a call, in their order."""
        at_each_call = (copy for role, copy in self.before.items() if role is not Role.W)
        return (*at_each_call, *([] if self.after is None else [self.after]))


def as_copies(candidate: Candidate) -> Copies | None:
    """The outermost rewrite of ``candidate`` as copies; None where it does more than lay out, pad, cut or cast, and
    where there is no rewrite.

    >>> from convwright.core.dtype import Arithmetic
    >>> from convwright.core.candidate import Source
    >>> problem = ConvProblem.parse("mb1ic3ih8oc4kh3 tag:nhwc")
    >>> arguments = (("multiple", 4),)
    >>> inner = rewrite("pad-c").inner(problem, arguments)
    >>> leaf = Candidate(inner, "reference", "gemm", (), Arithmetic.FP32, 0, True, Source.RULE)
    >>> copies = as_copies(rewrite("pad-c").wrap(problem, arguments, leaf))
    >>> [copy.key for copy in copies.problems]
    ['copy mb1ic3ih8iw8 nhwc->nhwc dt:fp32 pad:c=0:1']
    """
    problem: ConvProblem = candidate.problem
    if candidate.inner is None or not rewrite(candidate.algorithm).only_copies(problem, candidate.config):
        return None
    inner: ConvProblem = candidate.inner.problem
    output = problem.direction.output
    before = {
        role: _copy(spec, inner.operands[role])
        for role, spec in problem.operands.items()
        if role not in problem.outputs and inner.operands[role] != spec
    }
    after = None if inner.operands[output] == problem.output else _copy(inner.operands[output], problem.output)
    return Copies(before, candidate.inner, after)


def _copy(source: TensorSpec, target: TensorSpec) -> CopyProblem:
    """From one operand to another that begins with the same elements: the rest are zeros, or left out."""
    sizes = zip(source.shape, target.shape, strict=True)
    return CopyProblem(source, target, tuple((0, larger - size) for size, larger in sizes))
