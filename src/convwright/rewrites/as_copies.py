"""A rewritten convolution as a convolution and copies: problems of their own, which others may share or leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.kinds.copy import CopyProblem
from convwright.core.problem import ConvProblem
from convwright.rewrites import rewrite
from convwright.rewrites.copies import Steps


@dataclass(frozen=True, slots=True)
class Copies:
    """What a rewritten candidate does: ``before`` brings operands in, by copies of which the first reads the operand;
    ``inner`` computes; ``after`` brings the output back, by copies of which the last writes it. A role that is in
    neither is used as it is.

    A copy of a weight is made when the weight is packed.
    """

    problem: ConvProblem
    before: Mapping[Role, Steps]
    inner: Candidate
    after: Steps

    @property
    def problems(self) -> tuple[CopyProblem, ...]:
        """All copies of a call, in their order."""
        at_each_call = [copy for role, steps in self.before.items() if role is not Role.W for copy in steps]
        return tuple(copy.problem for copy in (*at_each_call, *self.after))


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
    if candidate.inner is None or problem.epilogue.accumulate:
        return None
    steps = rewrite(candidate.algorithm).copies(problem, candidate.config)
    if steps is None:
        return None
    output = problem.direction.output
    before = {role: copies for role, copies in steps.items() if role is not output}
    return Copies(problem, before, candidate.inner, steps.get(output, ()))
