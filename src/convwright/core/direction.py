"""The three computations that belong to one convolution, and the roles of their operands."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What an operand is: ``Z`` what an activation was applied to, ``BEFORE`` what an output held that is added to."""

    X = "x"
    W = "w"
    BIAS = "bias"
    RESIDUAL = "residual"
    Y = "y"
    DY = "dy"
    DX = "dx"
    DW = "dw"
    SCALE = "scale"
    Z = "z"
    BEFORE = "before"
    DB = "db"


class Direction(StrEnum):
    """Which of the three is asked for. Sizes are always those of the forward convolution."""

    FORWARD = "forward"
    BACKWARD_DATA = "backward_data"
    BACKWARD_WEIGHT = "backward_weight"

    @property
    def operands(self) -> tuple[Role, Role]:
        """The two operands that are multiplied, in the order in which a plan takes them."""
        return _OPERANDS[self]

    @property
    def output(self) -> Role:
        return _OUTPUT[self]


_OPERANDS = {
    Direction.FORWARD: (Role.X, Role.W),
    Direction.BACKWARD_DATA: (Role.DY, Role.W),
    Direction.BACKWARD_WEIGHT: (Role.X, Role.DY),
}
_OUTPUT = {Direction.FORWARD: Role.Y, Direction.BACKWARD_DATA: Role.DX, Direction.BACKWARD_WEIGHT: Role.DW}
