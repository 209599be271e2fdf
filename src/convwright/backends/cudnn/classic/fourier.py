"""cuDNN's convolutions by Fourier transforms: accepted sizes and workspace.

Transforms are real, and their size is a power of two. Half of each spectrum is stored, in complex fp32, or complex fp64
for fp64 operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convwright.backends.cudnn.classic.asked import Asked, copied, rounded_up
from convwright.core.direction import Direction
from convwright.core.dtype import DType

_SMALLEST, LARGEST = 16, 256
# The edge of a tile in two dimensions, in three, and along a line, which also has a long tile.
TILE, TILE_3D, LINE, LONG_LINE = 32, 16, 32, 256
_MARGIN = 30
# Bytes of one group's spectra: the largest that was recorded, and the smallest that was refused.
_MOST_RECORDED, _LEAST_REFUSED = 132_941_414_400, 162_962_079_744


@dataclass(frozen=True, slots=True)
class _Roles:
    """The planes that are transformed: of the signal, of the filter that slides over it, and of the result."""

    signal: int
    filter: int
    result: int
    taps: tuple[int, ...]
    result_size: tuple[int, ...]
    extent: tuple[int, ...]


def _roles(asked: Asked) -> _Roles:
    x, w, y = asked.x_planes, asked.w_planes, asked.y_planes
    padded = tuple(size + 2 * padding for size, padding in zip(asked.x, asked.padding, strict=True))
    if asked.problem.direction is Direction.FORWARD:
        return _Roles(x, w, y, asked.taps, asked.y, padded)
    if asked.problem.direction is Direction.BACKWARD_WEIGHT:
        return _Roles(x, y, w, asked.y, asked.taps, padded)
    return _Roles(y, w, x, asked.taps, asked.x, _spread(asked))


def _spread(asked: Asked) -> tuple[int, ...]:
    """dy with stride - 1 zeros between its elements, padded so that the flipped filter slides over all of it."""
    axes = zip(asked.y, asked.stride, asked.taps, asked.padding, strict=True)
    return tuple((size - 1) * stride + 1 + 2 * (taps - 1 - padding) for size, stride, taps, padding in axes)


# Transforms of whole images.


def fits_a_transform(asked: Asked) -> str | None:
    extent = max(_roles(asked).extent)
    if asked.problem.direction is Direction.BACKWARD_DATA:
        # cuDNN also applies the limit to dx, padded as dy is.
        axes = zip(asked.x, asked.taps, asked.padding, strict=True)
        extent = max(extent, *(size + 2 * (taps - 1 - padding) for size, taps, padding in axes))
    return None if extent <= LARGEST else f"transforms padded images of up to {LARGEST} pixels a side, got {extent}"


def spectra_fit(asked: Asked) -> str | None:
    need = _spectra_bytes(asked)
    if need <= _MOST_RECORDED:
        return None
    if need < _LEAST_REFUSED:
        return f"unknown: needs {need:,} bytes for spectra, and only {_MOST_RECORDED:,} are verified"
    return f"needs {need:,} bytes for the spectra of one group, more than cuDNN allows"


def fft_bytes(asked: Asked) -> int:
    roles = _roles(asked)
    filter_copy = rounded_up(roles.filter * prod(roles.taps) * DType.FP32.nbytes)
    return asked.groups_at_once * (filter_copy + _spectra_bytes(asked) + _group_copies(asked))


def _spectra_bytes(asked: Asked) -> int:
    """Bytes for one group, twice because they are reordered: the spectra of both operands, or of the result if these
    are larger."""
    roles = _roles(asked)
    edge = max(_SMALLEST, 1 << (max(roles.extent) - 1).bit_length())
    return 2 * max(roles.signal + roles.filter, roles.result) * _spectrum(asked, edge, edge)


def _spectrum(asked: Asked, *edges: int) -> int:
    return prod(edges[:-1]) * (edges[-1] // 2 + 1) * 2 * max(asked.itemsize, DType.FP32.nbytes)


def _group_copies(asked: Asked) -> int:
    """With groups and more than one image, the planes of a group are not contiguous, and cuDNN copies them."""
    return copied(asked.x_bytes() + asked.y_bytes()) if asked.groups > 1 and asked.n > 1 else 0


# Transforms of tiles.


def fits_a_tile(asked: Asked) -> str | None:
    roles = _roles(asked)
    most = TILE_3D if asked.rank == 3 else LONG_LINE if _is_line(roles) else TILE
    if max(roles.taps) <= most:
        return None
    noun = "dy" if asked.problem.direction is Direction.BACKWARD_WEIGHT else "filters"
    return f"takes {noun} of up to {most} a side if its shortest side is {min(roles.taps)}, got {roles.taps}"


def a_line(asked: Asked) -> str | None:
    """One side of the filter must be 1 where only one-dimensional tiles exist."""
    roles = _roles(asked)
    if _is_line(roles):
        return None
    noun = "dy" if asked.problem.direction is Direction.BACKWARD_WEIGHT else "a filter"
    return f"takes {noun} that is 1 high or 1 wide, got {roles.taps}"


def line_in_fp64(asked: Asked) -> str | None:
    if asked.problem.dtype is not DType.FP64 or asked.rank == 3:
        return None
    return f"in fp64 {reason}" if (reason := a_line(asked)) else None


def tile_strides(asked: Asked) -> str | None:
    """Strides of 1, or up to 2 with two-dimensional tiles."""
    most = 1 if asked.rank == 3 or _is_line(_roles(asked)) else 2
    if max(asked.stride) <= most:
        return None
    if _may_have_phases(asked) and min(asked.stride) == 2 and len(set(asked.stride)) > 1:
        return f"unknown: cuDNN computes some problems with strides of {asked.problem.stride} and refuses others"
    return f"takes strides of up to {most}, got {asked.problem.stride}"


def _may_have_phases(asked: Asked) -> bool:
    """True if cuDNN may split dx into phases, one for each remainder of a position modulo the stride."""
    backward_data = asked.problem.direction is Direction.BACKWARD_DATA
    is_plane = asked.rank == 2 and min(asked.taps) > 1
    return backward_data and is_plane and min(asked.stride) > 1 and not asked.problem.flip


def tiled_fft_bytes(asked: Asked) -> int:
    """Exact, except for two choices of cuDNN that are bounded: long tiles of a line, and phases of a strided dx."""
    roles = _roles(asked)
    if asked.rank == 3:
        planes = 2 * (roles.filter + _tiles(roles, TILE_3D) * max(roles.signal, roles.result))
        need = planes * _spectrum(asked, *[TILE_3D] * 3) + _group_copies(asked)
    elif _is_line(roles):
        need = rounded_up(_line_bytes(asked, roles), 16 if asked.groups > 1 else 1)
        if asked.problem.direction is Direction.BACKWARD_WEIGHT and min(roles.extent) > 1:
            need += _group_copies(asked)  # a dy of one pixel counts as a line, but its x does not
    else:
        planes = roles.filter + _tiles(roles, TILE) * (roles.signal + roles.result)
        need = planes * _spectrum(asked, TILE, TILE) + _group_copies(asked)
    if _may_have_phases(asked):
        need = max(need, _phases_bytes(asked))
    return asked.groups_at_once * need


def _tiles(roles: _Roles, edge: int) -> int:
    """One tile if everything fits into it, else two that alternate."""
    return 1 if max(roles.extent) <= edge else 2


def _is_line(roles: _Roles) -> bool:
    return len(roles.taps) == 2 and min(roles.taps) == 1


def _line_bytes(asked: Asked, roles: _Roles) -> int:
    axis = 0 if roles.taps[0] > 1 else 1
    taps, extent, lines = roles.taps[axis], roles.extent[axis], roles.result_size[1 - axis]
    edge = LINE if _takes_short_tiles(taps, extent, roles.filter) else LONG_LINE
    tiles = 1 if extent <= edge else 2
    return (roles.filter + tiles * lines * (roles.signal + roles.result)) * _spectrum(asked, edge)


def _takes_short_tiles(taps: int, extent: int, planes: int) -> bool:
    """True if cuDNN certainly does. Its cost model is not known.

    Long tiles need more memory. cuDNN uses them for long lines, for filters that leave little of a short tile, and for
    filters with few planes. All recorded long tiles miss this condition by at least a factor of three.
    """
    return taps <= LINE and extent**4 << _MARGIN < (LINE + 1 - taps) ** 8 * planes


def _phases_bytes(asked: Asked) -> int:
    """Each phase of dx is a convolution of dy with every stride-th tap. dx and the filter are split into copies."""
    axes = [_phase(*axis) for axis in zip(asked.x, asked.y, asked.taps, asked.stride, asked.padding, strict=True)]
    sizes, dys, taps = zip(*axes, strict=True)
    phases, c, k = prod(asked.stride), rounded_up(asked.c, 2), rounded_up(asked.k, 8)
    copies = phases * (asked.n * c * prod(sizes) + c * k * prod(taps)) + asked.n * k * prod(dys)
    tiles = 1 if max(dy + 2 * taps for dy, taps in zip(dys, taps, strict=True)) <= TILE else 2
    planes = phases * c * k + tiles * asked.n * (phases * c + k)
    return planes * _spectrum(asked, TILE, TILE) + copied(copies * asked.itemsize)


def _phase(x: int, y: int, taps: int, stride: int, padding: int) -> tuple[int, int, int]:
    """Along one axis: the pixels of dx in a phase, the pixels of dy that they need, and the taps."""
    ahead = -(-padding // stride)
    most = -(-(taps + -padding % stride) // stride)
    size = -(-min(x, (y - 1) * stride + taps - padding) // stride)
    return size, size + most - 1 - 2 * (most - 1 - ahead), most
