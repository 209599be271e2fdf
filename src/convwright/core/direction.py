"""The three computations of a convolution, and the roles of their operands."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The role of an operand. ``Z`` is the input of the activation, ``BEFORE`` the previous contents of an output."""

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
    """The computation asked for. Sizes are always those of the forward convolution."""

    FORWARD = "forward"
    BACKWARD_DATA = "backward_data"
    BACKWARD_WEIGHT = "backward_weight"

    @property
    def operands(self) -> tuple[Role, Role]:
        """The two operands that are multiplied, in a plan's order."""
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
