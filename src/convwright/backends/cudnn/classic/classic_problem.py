"""A problem as the classic API sees it: at least two spatial dimensions, channels counted per group."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convwright.backends.cudnn.classic.operands import filter_layout, is_dense
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

# cuDNN aligns its copies of operands to 16 bytes.
_ALIGNMENT = 16
# More groups than this share the workspace of groups that are done.
_GROUPS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ClassicProblem:
    """The sizes that all rules read. ``c`` and ``k`` are the channels of one group."""

    problem: ConvProblem
    arithmetic: Arithmetic
    layout: Layout
    n: int
    c: int
    k: int
    groups: int
    x: tuple[int, ...]
    y: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, problem: ConvProblem, arithmetic: Arithmetic) -> ClassicProblem:
        """The sizes of ``problem``, for which ``objection`` must return None. One spatial dimension becomes an image of
        height 1."""
        ones, flat = ((1,), (0,)) if problem.rank == 1 else ((), ())
        return cls(
            problem,
            arithmetic,
            filter_layout(problem),
            problem.n,
            problem.c // problem.groups,
            problem.k // problem.groups,
            problem.groups,
            (*ones, *problem.x.shape[2:]),
            (*ones, *problem.y.shape[2:]),
            (*ones, *problem.taps),
            (*ones, *problem.stride),
            (*flat, *(before for before, _ in problem.padding)),
            (*ones, *problem.dilation),
        )

    @property
    def rank(self) -> int:
        """Spatial dimensions as cuDNN counts them: 2 or 3."""
        return len(self.x)

    @property
    def itemsize(self) -> int:
        return self.problem.dtype.nbytes

    @property
    def x_is_dense(self) -> bool:
        return is_dense(self.problem.x, self.layout)

    @property
    def y_is_dense(self) -> bool:
        return is_dense(self.problem.y, self.layout)

    # Channel planes of one group, and bytes of its operands. Channels are rounded up to a multiple of ``padded``.

    @property
    def x_planes(self) -> int:
        return self.n * self.c

    @property
    def w_planes(self) -> int:
        return self.c * self.k

    @property
    def y_planes(self) -> int:
        return self.n * self.k

    @property
    def groups_at_once(self) -> int:
        return min(self.groups, _GROUPS_AT_ONCE)

    def x_bytes(self, padded: int = 1) -> int:
        return self.n * rounded_up(self.c, padded) * prod(self.x) * self.itemsize

    def w_bytes(self, padded: int = 1) -> int:
        return rounded_up(self.c, padded) * rounded_up(self.k, padded) * prod(self.taps) * self.itemsize

    def y_bytes(self, padded: int = 1) -> int:
        return self.n * rounded_up(self.k, padded) * prod(self.y) * self.itemsize

    def operand_bytes(self, padded: int = 1) -> int:
        """All three operands, all groups."""
        return self.groups * (self.x_bytes(padded) + self.w_bytes(padded) + self.y_bytes(padded))


def rounded_up(number: int, multiple: int = _ALIGNMENT) -> int:
    return -(-number // multiple) * multiple


def copied(number: int) -> int:
    """The workspace for a copy of ``number`` bytes, including alignment."""
    return number // _ALIGNMENT * _ALIGNMENT + _ALIGNMENT
