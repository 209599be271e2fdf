"""cuDNN's convolutions by Fourier transforms: accepted sizes and workspace.

Transforms are real, and their size is a power of two. Half of each spectrum is stored, in complex fp32, or complex fp64
for fp64 operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convwright.backends.cudnn.classic.classic_problem import ClassicProblem, copied, rounded_up
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


def _roles(given: ClassicProblem) -> _Roles:
    x, w, y = given.x_planes, given.w_planes, given.y_planes
    padded = tuple(size + 2 * padding for size, padding in zip(given.x, given.padding, strict=True))
    if given.problem.direction is Direction.FORWARD:
        return _Roles(x, w, y, given.taps, given.y, padded)
    if given.problem.direction is Direction.BACKWARD_WEIGHT:
        return _Roles(x, y, w, given.y, given.taps, padded)
    return _Roles(y, w, x, given.taps, given.x, _spread(given))


def _spread(given: ClassicProblem) -> tuple[int, ...]:
    """dy with stride - 1 zeros between its elements, padded so that the flipped filter slides over all of it."""
    axes = zip(given.y, given.stride, given.taps, given.padding, strict=True)
    return tuple((size - 1) * stride + 1 + 2 * (taps - 1 - padding) for size, stride, taps, padding in axes)


# Transforms of whole images.


def fits_a_transform(given: ClassicProblem) -> str | None:
    extent = max(_roles(given).extent)
    if given.problem.direction is Direction.BACKWARD_DATA:
        # cuDNN also applies the limit to dx, padded as dy is.
        axes = zip(given.x, given.taps, given.padding, strict=True)
        extent = max(extent, *(size + 2 * (taps - 1 - padding) for size, taps, padding in axes))
    return None if extent <= LARGEST else f"transforms padded images of up to {LARGEST} pixels a side, got {extent}"


def spectra_fit(given: ClassicProblem) -> str | None:
    need = _spectra_bytes(given)
    if need <= _MOST_RECORDED:
        return None
    if need < _LEAST_REFUSED:
        return f"unknown: needs {need:,} bytes for spectra, and only {_MOST_RECORDED:,} are verified"
    return f"needs {need:,} bytes for the spectra of one group, more than cuDNN allows"


def fft_bytes(given: ClassicProblem) -> int:
    roles = _roles(given)
    filter_copy = rounded_up(roles.filter * prod(roles.taps) * DType.FP32.nbytes)
    return given.groups_at_once * (filter_copy + _spectra_bytes(given) + _group_copies(given))


def _spectra_bytes(given: ClassicProblem) -> int:
    """Bytes for one group, twice because they are reordered: the spectra of both operands, or of the result if these
    are larger."""
    roles = _roles(given)
    edge = max(_SMALLEST, 1 << (max(roles.extent) - 1).bit_length())
    return 2 * max(roles.signal + roles.filter, roles.result) * _spectrum(given, edge, edge)


def _spectrum(given: ClassicProblem, *edges: int) -> int:
    return prod(edges[:-1]) * (edges[-1] // 2 + 1) * 2 * max(given.itemsize, DType.FP32.nbytes)


def _group_copies(given: ClassicProblem) -> int:
    """With groups and more than one image, the planes of a group are not contiguous, and cuDNN copies them."""
    return copied(given.x_bytes() + given.y_bytes()) if given.groups > 1 and given.n > 1 else 0


# Transforms of tiles.


def fits_a_tile(given: ClassicProblem) -> str | None:
    roles = _roles(given)
    most = TILE_3D if given.rank == 3 else LONG_LINE if _is_line(roles) else TILE
    if max(roles.taps) <= most:
        return None
    noun = "dy" if given.problem.direction is Direction.BACKWARD_WEIGHT else "filters"
    return f"takes {noun} of up to {most} a side if its shortest side is {min(roles.taps)}, got {roles.taps}"


def a_line(given: ClassicProblem) -> str | None:
    """One side of the filter must be 1 where only one-dimensional tiles exist."""
    roles = _roles(given)
    if _is_line(roles):
        return None
    noun = "dy" if given.problem.direction is Direction.BACKWARD_WEIGHT else "a filter"
    return f"takes {noun} that is 1 high or 1 wide, got {roles.taps}"


def line_in_fp64(given: ClassicProblem) -> str | None:
    if given.problem.dtype is not DType.FP64 or given.rank == 3:
        return None
    return f"in fp64 {reason}" if (reason := a_line(given)) else None


def tile_strides(given: ClassicProblem) -> str | None:
    """Strides of 1, or up to 2 with two-dimensional tiles."""
    most = 1 if given.rank == 3 or _is_line(_roles(given)) else 2
    if max(given.stride) <= most:
        return None
    if _may_have_phases(given) and min(given.stride) == 2 and len(set(given.stride)) > 1:
        return f"unknown: cuDNN computes some problems with strides of {given.problem.stride} and refuses others"
    return f"takes strides of up to {most}, got {given.problem.stride}"


def _may_have_phases(given: ClassicProblem) -> bool:
    """True if cuDNN may split dx into phases, one for each remainder of a position modulo the stride."""
    backward_data = given.problem.direction is Direction.BACKWARD_DATA
    is_plane = given.rank == 2 and min(given.taps) > 1
    return backward_data and is_plane and min(given.stride) > 1 and not given.problem.flip


def tiled_fft_bytes(given: ClassicProblem) -> int:
    """Exact, except for two choices of cuDNN that are bounded: long tiles of a line, and phases of a strided dx."""
    roles = _roles(given)
    if given.rank == 3:
        planes = 2 * (roles.filter + _tiles(roles, TILE_3D) * max(roles.signal, roles.result))
        need = planes * _spectrum(given, *[TILE_3D] * 3) + _group_copies(given)
    elif _is_line(roles):
        need = rounded_up(_line_bytes(given, roles), 16 if given.groups > 1 else 1)
        if given.problem.direction is Direction.BACKWARD_WEIGHT and min(roles.extent) > 1:
            need += _group_copies(given)  # a dy of one pixel counts as a line, but its x does not
    else:
        planes = roles.filter + _tiles(roles, TILE) * (roles.signal + roles.result)
        need = planes * _spectrum(given, TILE, TILE) + _group_copies(given)
    if _may_have_phases(given):
        need = max(need, _phases_bytes(given))
    return given.groups_at_once * need


def _tiles(roles: _Roles, edge: int) -> int:
    """One tile if everything fits into it, else two that alternate."""
    return 1 if max(roles.extent) <= edge else 2


def _is_line(roles: _Roles) -> bool:
    return len(roles.taps) == 2 and min(roles.taps) == 1


def _line_bytes(given: ClassicProblem, roles: _Roles) -> int:
    axis = 0 if roles.taps[0] > 1 else 1
    taps, extent, lines = roles.taps[axis], roles.extent[axis], roles.result_size[1 - axis]
    edge = LINE if _takes_short_tiles(taps, extent, roles.filter) else LONG_LINE
    tiles = 1 if extent <= edge else 2
    return (roles.filter + tiles * lines * (roles.signal + roles.result)) * _spectrum(given, edge)


def _takes_short_tiles(taps: int, extent: int, planes: int) -> bool:
    """True if cuDNN certainly does. Its cost model is not known.

    Long tiles need more memory. cuDNN uses them for long lines, for filters that leave little of a short tile, and for
    filters with few planes. All recorded long tiles miss this condition by at least a factor of three.
    """
    return taps <= LINE and extent**4 << _MARGIN < (LINE + 1 - taps) ** 8 * planes


def _phases_bytes(given: ClassicProblem) -> int:
    """Each phase of dx is a convolution of dy with every stride-th tap. dx and the filter are split into copies."""
    axes = [_phase(*axis) for axis in zip(given.x, given.y, given.taps, given.stride, given.padding, strict=True)]
    sizes, dys, taps = zip(*axes, strict=True)
    phases, c, k = prod(given.stride), rounded_up(given.c, 2), rounded_up(given.k, 8)
    copies = phases * (given.n * c * prod(sizes) + c * k * prod(taps)) + given.n * k * prod(dys)
    tiles = 1 if max(dy + 2 * taps for dy, taps in zip(dys, taps, strict=True)) <= TILE else 2
    planes = phases * c * k + tiles * given.n * (phases * c + k)
    return planes * _spectrum(given, TILE, TILE) + copied(copies * given.itemsize)


def _phase(x: int, y: int, taps: int, stride: int, padding: int) -> tuple[int, int, int]:
    """Along one axis: the pixels of dx in a phase, the pixels of dy that they need, and the taps."""
    ahead = -(-padding // stride)
    most = -(-(taps + -padding % stride) // stride)
    size = -(-min(x, (y - 1) * stride + taps - padding) // stride)
    return size, size + most - 1 - 2 * (most - 1 - ahead), most
