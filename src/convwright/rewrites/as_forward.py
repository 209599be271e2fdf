"""Compute an input's gradient as a forward convolution of dy with the rotated weight."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from convwright.core.candidate import Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.problem import ConvProblem
from convwright.core.turned import turned, turned_shape, why_not_turned
from convwright.rewrites.copying import CopyingRewrite, Embeddings
from convwright.rewrites.embedding import Embedding, Part, divided
from convwright.rewrites.nearest_layout import lay_like


class AsForward(CopyingRewrite):
    """``as-forward(…)``: with stride 1, dx is dy convolved with the mirrored weight, input and output channels swapped.

    That weight is made when the weight is prepared; a call copies nothing.
    """

    name = "as-forward"

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        reason = why_not_turned(problem)
        yield () if reason is None else Refusal(self.name, reason)

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        return turned(problem, lay_like(problem.w, turned_shape(problem), problem))

    def embeddings(self, problem: ConvProblem, arguments: Config) -> Embeddings:
        groups = problem.groups
        # A flip is a copy, which is then copied once more, so skip it where it changes nothing.
        taps = () if problem.flip else tuple(dim for dim, size in enumerate(problem.taps, 3) if size > 1)

        def mirrored(weight: Tensor) -> Tensor:
            changed = divided(weight, 0, (groups, weight.shape[0] // groups)).transpose(1, 2)
            return changed.flip(taps) if taps else changed

        def inside(weight: Tensor) -> Tensor:
            return divided(weight, 0, (groups, weight.shape[0] // groups))

        within = self.inner(problem, arguments)
        return {Role.W: Embedding(within.w, problem.w.nbytes, (Part(mirrored, inside),))}
