"""Split a rewritten convolution into a convolution and copies, which can be shared or left out."""

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
    """The steps of a rewritten candidate. ``before`` has for each role the copies that bring the operand in; the first
    reads the operand. ``inner`` computes. ``after`` has the copies that bring the output back; the last writes it.
    Other roles are used as they are.

    A weight is copied when it is packed.
    """

    problem: ConvProblem
    before: Mapping[Role, Steps]
    inner: Candidate
    after: Steps

    @property
    def problems(self) -> tuple[CopyProblem, ...]:
        """All copies of a call, in order."""
        at_each_call = [copy for role, steps in self.before.items() if role is not Role.W for copy in steps]
        return tuple(copy.problem for copy in (*at_each_call, *self.after))


def as_copies(candidate: Candidate) -> Copies | None:
    """The outermost rewrite of ``candidate`` as copies; None if there is none, or if it does more than change layouts,
    pad, cut or cast.

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
