"""Compute an input's gradient as a forward convolution of dy with the weight turned around, as kernels for it can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from convwright.core.candidate import Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction, Role
from convwright.core.problem import ConvProblem
from convwright.rewrites.copying import CopyingRewrite, Embeddings
from convwright.rewrites.embedding import Embedding, Part, divided
from convwright.rewrites.nearest_layout import lay_like


class AsForward(CopyingRewrite):
    """``as-forward(…)``: with stride 1, dx is dy convolved with the mirrored weight whose channels have changed places.

    That weight is made when the weight is prepared; nothing is copied at a call.
    """

    name = "as-forward"

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        reason = _refusal_reason(problem)
        yield () if reason is None else Refusal(self.name, reason)

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        shape = (problem.c, problem.k // problem.groups, *problem.taps)
        return replace(
            problem,
            x=problem.y,
            w=lay_like(problem.w, shape, problem),
            y=problem.x,
            padding=_padding(problem),
            direction=Direction.FORWARD,
            flip=False,
        )

    def embeddings(self, problem: ConvProblem, arguments: Config) -> Embeddings:
        groups, flip = problem.groups, problem.flip
        taps = tuple(range(3, problem.rank + 3))

        def turned(weight: Tensor) -> Tensor:
            changed = divided(weight, 0, (groups, weight.shape[0] // groups)).transpose(1, 2)
            return changed if flip else changed.flip(taps)

        def inside(weight: Tensor) -> Tensor:
            return divided(weight, 0, (groups, weight.shape[0] // groups))

        within = self.inner(problem, arguments)
        return {Role.W: Embedding(within.w, problem.w.nbytes, (Part(turned, inside),))}


def _padding(problem: ConvProblem) -> tuple[tuple[int, int], ...]:
    """What is left of the filter's reach beyond each border; less than 0 where padding reaches further than it."""
    return tuple((axis.reach - 1 - axis.pad[0], axis.reach - 1 - axis.pad[1]) for axis in problem.axes)


def _refusal_reason(problem: ConvProblem) -> str | None:
    if problem.direction is not Direction.BACKWARD_DATA:
        return f"turns an input's gradient around, not {problem.direction}"
    if any(stride > 1 for stride in problem.stride):
        return f"stride {problem.stride}: between the elements of dy there would have to be zeros"
    if any(side < 0 for pair in _padding(problem) for side in pair):
        return f"padding {problem.padding} reaches further than the filter, so dy would have to be cut"
    return None
