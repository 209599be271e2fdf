"""cuDNN's Winograd convolution in separate kernels: accepted sizes and exact workspace."""

from __future__ import annotations

from math import prod

from convwright.backends.cudnn.classic.classic_problem import ClassicProblem, copied, rounded_up
from convwright.core.direction import Direction
from convwright.core.dtype import DType

# Output pixels of a tile, by the filter's taps.
_OUTPUTS = {(3, 3): 4, (5, 5): 9}
_LARGEST_BUFFER = 2**31
_IMAGES_TOGETHER = 16


def winograd_taps(given: ClassicProblem) -> str | None:
    return None if given.taps in _OUTPUTS else f"takes filters of 3 x 3 and 5 x 5, got {given.problem.taps}"


def winograd_fits(given: ClassicProblem) -> str | None:
    """The elements of a group's transformed images and result are counted in 32 bits."""
    elements = _transform(given) * _tiles(given) * max(given.c, given.k)
    if elements < _LARGEST_BUFFER:
        return None
    return f"transforms up to {_LARGEST_BUFFER - 1:,} elements of a group, got {elements:,}"


def winograd_bytes(given: ClassicProblem) -> int:
    planes = given.w_planes + _tiles(given) * (given.c + given.k)
    need = given.groups_at_once * rounded_up(planes * _transform(given) * DType.FP32.nbytes)
    if given.problem.direction is Direction.BACKWARD_WEIGHT and not given.y_is_dense:
        need += copied(given.groups * given.y_bytes())
    return need


def _transform(given: ClassicProblem) -> int:
    """Elements of a transformed tile."""
    return (_OUTPUTS[given.taps[0], given.taps[1]] + given.taps[0] - 1) ** 2


def _tiles(given: ClassicProblem) -> int:
    outputs, direction = _OUTPUTS[given.taps[0], given.taps[1]], given.problem.direction
    alone = direction is Direction.BACKWARD_WEIGHT and given.taps == (3, 3)
    images = given.n if alone else rounded_up(given.n, _IMAGES_TOGETHER)
    result = given.x if direction is Direction.BACKWARD_DATA else given.y
    return images * prod(-(-size // outputs) for size in result)
