"""Which epilogues one kernel may fuse; all others are separate work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.direction import Direction, Role

if TYPE_CHECKING:
    from convwright.core.problem import ConvProblem


def has_extended_epilogue(problem: ConvProblem) -> bool:
    """True for an epilogue with more than residual, bias and activation of a forward convolution."""
    epilogue = problem.epilogue
    backward = problem.direction is not Direction.FORWARD
    return epilogue.scale or epilogue.accumulate or (backward and bool(epilogue))


def rare_operands(problem: ConvProblem) -> tuple[Role, ...]:
    """The operands that a plan for ``problem`` takes by name."""
    return tuple(role for role in (Role.SCALE, Role.Z, Role.DB) if role in problem.operands)


def why_not_fused(problem: ConvProblem, *, ahead: bool = False, scaled: bool = False) -> str | None:
    """Why a kernel that fuses only residual, bias and activation cannot serve; None if it may. ``ahead``: it also fuses
    the activation's derivative into a gradient, and the bias's gradient into a weight's gradient. ``scaled``: it also
    fuses the scale of a forward convolution."""
    if not has_extended_epilogue(problem) or (ahead and _is_ahead(problem)) or (scaled and _is_scaled(problem)):
        return None
    where = "" if problem.direction is Direction.FORWARD else f" into {problem.direction}"
    return f"does not fuse {problem.epilogue}{where}; `unfuse` makes that work of its own"


def _is_ahead(problem: ConvProblem) -> bool:
    """True for a gradient with no more than a derivative and the bias's gradient."""
    epilogue = problem.epilogue
    return problem.direction is not Direction.FORWARD and not (epilogue.scale or epilogue.accumulate)


def _is_scaled(problem: ConvProblem) -> bool:
    """True for a forward convolution whose only extended part is its scale."""
    return problem.direction is Direction.FORWARD and not problem.epilogue.accumulate
