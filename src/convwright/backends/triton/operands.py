"""Requirements of kernels on the layout of operands, and the constants that describe it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convwright.core.fusing import why_not_fused
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

OFFSETS_32_BITS = 2**31
MOST_ELEMENTS = OFFSETS_32_BITS // 2
# With fewer channels a tile of a matrix product contains mostly zeros.
LEAST_OF_A_GROUP = 8


def shape_reason(
    problem: ConvProblem,
    dtypes: Iterable[str],
    *,
    groups: bool = False,
    volumes: bool = False,
    ahead: bool = False,
    scaled: bool = False,
) -> str | None:
    """Why a kernel for 1 or 2 dimensions (3 with ``volumes``), with or without ``groups``, cannot compute ``problem``;
    None if it can. ``ahead``: the kernel fuses operations before a gradient. ``scaled``: it fuses the scale after a
    convolution."""
    unfused = why_not_fused(problem, ahead=ahead, scaled=scaled)
    if unfused is not None:
        return unfused
    if problem.dtype not in dtypes:
        return f"computes only {', '.join(dtypes)}, got {problem.dtype}"
    if problem.rank > 2 and not volumes:
        return f"needs 1 or 2 spatial dimensions, got {problem.rank}"
    if problem.groups != 1 and not groups:
        return f"needs `groups` = 1, got {problem.groups}"
    return None


def group_reason(problem: ConvProblem, *, least_outputs: int = LEAST_OF_A_GROUP) -> str | None:
    """Why matrix products cannot compute each group of ``problem`` separately; None if they can."""
    inputs, outputs = group_sizes(problem)
    if problem.groups > 1 and (inputs < LEAST_OF_A_GROUP or outputs < least_outputs):
        least = f"at least {LEAST_OF_A_GROUP} input and {least_outputs} output channels"
        return f"needs groups with {least}, got {inputs} and {outputs}"
    return None


def operand_reason(problem: ConvProblem, named: Mapping[str, TensorSpec]) -> str | None:
    """The same for operands that are accessed pixel by pixel: their channels must be contiguous, and their size
    limited."""
    for name, spec in named.items():
        if not is_channels_last(spec):
            return f"needs a channels-last `{name}` (stride 1 along channels), got stride {spec.strides[1]}"
    return size_reason(problem, named)


def layout_reason(named: Mapping[str, TensorSpec]) -> str | None:
    """The same for operands that are accessed along the channels, or along the pixels of a row."""
    for name, spec in named.items():
        if not is_channels_last(spec) and not is_in_planes(spec):
            strides = ", ".join(map(str, spec.strides))
            return f"needs stride 1 along the channels or the width of `{name}`, got strides {strides}"
    return None


def is_channels_last(spec: TensorSpec) -> bool:
    """Whether the channels of a pixel are contiguous."""
    return spec.shape[1] == 1 or spec.strides[1] == 1


def is_in_planes(spec: TensorSpec) -> bool:
    """Whether the pixels of a row are contiguous, and not the channels."""
    return not is_channels_last(spec) and (spec.shape[-1] == 1 or spec.strides[-1] == 1)


def size_reason(problem: ConvProblem, named: Mapping[str, TensorSpec]) -> str | None:
    """The same for sizes."""
    pixels = pixel_count(problem)
    if pixels == 0:
        return f"needs a batch of at least 1, got {problem.n}"
    if pixels >= MOST_ELEMENTS:
        return f"needs at most 2^30 output pixels, got {pixels:,}"
    if problem.w.numel >= MOST_ELEMENTS:
        return f"needs at most 2^30 weights, got {problem.w.numel:,}"
    for axis in problem.axes:
        if axis.size + sum(axis.pad) >= OFFSETS_32_BITS:
            return f"needs padded sizes below 2^31, got {axis.size + sum(axis.pad):,}"
    for name, spec in named.items():
        image = span(spec.shape[1:], spec.strides[1:])
        if image >= MOST_ELEMENTS:
            return f"needs images that span at most 2^30 elements, got {image:,} in `{name}`"
        reached = _reached(problem, spec)
        if reached >= OFFSETS_32_BITS:
            return f"needs offsets below 2^31, but taps span {reached:,} elements of an image of `{name}`"
    return None


def _reached(problem: ConvProblem, spec: TensorSpec) -> int:
    """Elements from the first of an image to the last that a tap accesses, including padding or positions outside a
    gradient."""
    padded = [axis.size + sum(axis.pad) if spec == problem.x else axis.out + axis.reach for axis in problem.axes]
    return span((spec.shape[1], *padded), spec.strides[1:])


def weight_reason(problem: ConvProblem) -> str | None:
    """The same for a weight that is accessed by its strides."""
    spanned = span(problem.w.shape, problem.w.strides)
    return None if spanned < MOST_ELEMENTS else f"needs a weight that spans at most 2^30 elements, got {spanned:,}"


def pixel_count(problem: ConvProblem) -> int:
    """Output pixels of the whole batch."""
    return problem.y.numel // problem.k


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last, inclusive."""
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1


def moves(spec: TensorSpec) -> tuple[int, ...]:
    """The strides; 0 for dimensions of size 1, whose strides are irrelevant and could hide the alignment of other
    offsets from the compiler."""
    return tuple(stride if size > 1 else 0 for size, stride in zip(spec.shape, spec.strides, strict=True))


def group_sizes(problem: ConvProblem) -> tuple[int, int]:
    """Input and output channels of one group."""
    return problem.w.shape[1], problem.k // problem.groups


def group_constants(problem: ConvProblem) -> dict[str, int]:
    """Groups, and the channels of each, for a kernel that computes each group separately."""
    inputs, outputs = group_sizes(problem)
    return {"G": problem.groups, "C": inputs, "K": outputs}


def window_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """Sizes, strides and window for a kernel. One spatial dimension becomes the second of two; of three, these are the
    last two."""
    (H, W), (R, S), (P, Q) = (pair(spec.shape[2:], 1) for spec in (problem.x, problem.w, problem.y))
    (x_n, _, *x_strides), (y_n, _, *y_strides) = map(moves, (problem.x, problem.y))
    (x_h, x_w), (y_p, y_q) = (pair(tuple(strides), 0) for strides in (x_strides, y_strides))
    (stride_h, stride_w), (dilation_h, dilation_w) = pair(problem.stride, 1), pair(problem.dilation, 1)
    top, left = pair(tuple(before for before, _ in problem.padding), 0)
    return {
        "N": problem.n, "C": problem.c, "H": H, "W": W, "K": problem.k, "R": R, "S": S, "P": P, "Q": Q,
        "X_N": x_n, "X_H": x_h, "X_W": x_w,
        "Y_N": y_n, "Y_P": y_p, "Y_Q": y_q,
        "STRIDE_H": stride_h, "STRIDE_W": stride_w, "TOP": top, "LEFT": left,
        "DILATION_H": dilation_h, "DILATION_W": dilation_w,
        "FLIP": problem.flip, "PADDED": any(side for sides in problem.padding for side in sides),
        "WIDE": offsets_are_wide(problem.x, problem.y),
    }  # fmt: skip


def offsets_are_wide(*specs: TensorSpec) -> bool:
    """Whether offsets in one of them need more than 32 bits."""
    return any(span(spec.shape, spec.strides) >= MOST_ELEMENTS for spec in specs)


def channel_constants(problem: ConvProblem) -> dict[str, int]:
    """The same along the channels."""
    return {"X_C": moves(problem.x)[1], "Y_K": moves(problem.y)[1]}


def plane_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """The same for operands that may be NCHW."""
    return channel_constants(problem) | {"X_PLANES": is_in_planes(problem.x), "Y_PLANES": is_in_planes(problem.y)}


def depth_constants(problem: ConvProblem) -> dict[str, int]:
    """The same along the first of three spatial dimensions. With fewer, there is one plane."""
    front = tuple(before for before, _ in problem.padding)
    return {
        "D": depth(problem.x.shape[2:], 1), "T": depth(problem.taps, 1), "Z": depth(problem.y.shape[2:], 1),
        "X_D": depth(moves(problem.x)[2:], 0), "Y_Z": depth(moves(problem.y)[2:], 0),
        "STRIDE_D": depth(problem.stride, 1), "FRONT": depth(front, 0), "DILATION_D": depth(problem.dilation, 1),
    }  # fmt: skip


def weight_strides(problem: ConvProblem) -> dict[str, int]:
    """The same for the weight, which may have any strides."""
    W_K, W_C, *taps = moves(problem.w)
    W_R, W_S = pair(tuple(taps), 0)
    return {"W_K": W_K, "W_C": W_C, "W_R": W_R, "W_S": W_S}


def weight_depth(problem: ConvProblem) -> dict[str, int]:
    """The same along the first of three dimensions."""
    return {"T": depth(problem.taps, 1), "W_T": depth(moves(problem.w)[2:], 0)}


def pair(values: tuple[int, ...], missing: int) -> tuple[int, int]:
    """The values of the last two spatial dimensions."""
    return (missing, values[0]) if len(values) == 1 else (values[-2], values[-1])


def depth(values: tuple[int, ...], missing: int) -> int:
    """The value of the first of three spatial dimensions."""
    return values[0] if len(values) == 3 else missing


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least ``least``."""
    return 1 << (least - 1).bit_length()
