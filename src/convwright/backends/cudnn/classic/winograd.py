"""cuDNN's Winograd convolution in separate kernels: accepted sizes and exact workspace."""

from __future__ import annotations

from math import prod

from convwright.backends.cudnn.classic.asked import Asked, copied, rounded_up
from convwright.core.direction import Direction
from convwright.core.dtype import DType

# Output pixels of a tile, by the filter's taps.
_OUTPUTS = {(3, 3): 4, (5, 5): 9}
_LARGEST_BUFFER = 2**31
_IMAGES_TOGETHER = 16


def winograd_taps(asked: Asked) -> str | None:
    return None if asked.taps in _OUTPUTS else f"takes filters of 3 x 3 and 5 x 5, got {asked.problem.taps}"


def winograd_fits(asked: Asked) -> str | None:
    """The elements of a group's transformed images and result are counted in 32 bits."""
    elements = _transform(asked) * _tiles(asked) * max(asked.c, asked.k)
    if elements < _LARGEST_BUFFER:
        return None
    return f"transforms up to {_LARGEST_BUFFER - 1:,} elements of a group, got {elements:,}"


def winograd_bytes(asked: Asked) -> int:
    planes = asked.w_planes + _tiles(asked) * (asked.c + asked.k)
    need = asked.groups_at_once * rounded_up(planes * _transform(asked) * DType.FP32.nbytes)
    if asked.problem.direction is Direction.BACKWARD_WEIGHT and not asked.y_is_dense:
        need += copied(asked.groups * asked.y_bytes())
    return need


def _transform(asked: Asked) -> int:
    """Elements of a transformed tile."""
    return (_OUTPUTS[asked.taps[0], asked.taps[1]] + asked.taps[0] - 1) ** 2


def _tiles(asked: Asked) -> int:
    outputs, direction = _OUTPUTS[asked.taps[0], asked.taps[1]], asked.problem.direction
    alone = direction is Direction.BACKWARD_WEIGHT and asked.taps == (3, 3)
    images = asked.n if alone else rounded_up(asked.n, _IMAGES_TOGETHER)
    result = asked.x if direction is Direction.BACKWARD_DATA else asked.y
    return images * prod(-(-size // outputs) for size in result)
