"""Arguments of a convolution's window: stride, padding and dilation, in the forms that PyTorch takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from reprlib import repr as brief

from convwright.core.geometry import Axis
from convwright.errors import BadInput
from convwright.naming import is_whole

IntOrTuple = int | Sequence[int]
Padding = IntOrTuple | str
AnyPadding = Padding | Sequence[int | Sequence[int]]
Sides = tuple[tuple[int, int], ...]


def whole_numbers(name: str, values: Iterable[object]) -> tuple[int, ...]:
    """``values`` as ints, which they must be already; ``name`` is for the error.

    >>> whole_numbers("input", [2, 3])
    (2, 3)
    """
    try:
        given = tuple(values)
    except TypeError:
        raise BadInput(f"`{name}` must be made of whole numbers, got {brief(values)}") from None
    if not all(is_whole(value) for value in given):
        raise BadInput(f"`{name}` must be made of whole numbers, got {brief(given)}")
    return tuple(int(value) for value in given)  # type: ignore[call-overload]


def shape_of(name: str, given: Iterable[object]) -> tuple[int, ...]:
    """A shape as ints; a tensor or array instead of its shape gets an error of its own.

    >>> shape_of("input", [8, 3, 32, 32])
    (8, 3, 32, 32)
    """
    shape = getattr(given, "shape", None)
    if shape is not None and len(shape) != 1:  # a 1-d array of sizes is a shape too
        kind = type(given).__name__
        raise BadInput(f"`{name}` must be a shape, for example (8, 3, 32, 32), got a {kind} of shape {tuple(shape)}")
    return whole_numbers(name, given)


def per_axis(name: str, value: IntOrTuple, rank: int) -> tuple[int, ...]:
    """One int for each of ``rank`` spatial dimensions.

    >>> per_axis("stride", 2, 2)
    (2, 2)
    """
    values = _repeated(value, rank)
    if values is None or not all(is_whole(each) for each in values):
        raise BadInput(f"`{name}` must be an int or {rank} ints, got {value!r}")
    return tuple(int(each) for each in values)  # type: ignore[call-overload]


def both_sides(padding: Padding, taps: Sequence[int], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Sides:
    """The padding before and after, for each spatial dimension, from PyTorch's argument.

    >>> both_sides("same", (4,), (1,), (1,))
    ((1, 2),)
    """
    if not isinstance(padding, str):
        return tuple((side, side) for side in per_axis("padding", padding, len(taps)))
    if padding == "valid":
        return ((0, 0),) * len(taps)
    if padding != "same":
        raise BadInput(f"`padding` must be an int, a tuple of ints, 'valid' or 'same', got {padding!r}")
    if any(step != 1 for step in stride):
        raise BadInput(f"padding='same' needs stride 1, got {stride}")
    totals = (Axis(0, size, 1, (0, 0), step).reach - 1 for size, step in zip(taps, dilation, strict=True))
    return tuple((total // 2, total - total // 2) for total in totals)


def all_sides(padding: AnyPadding, taps: Sequence[int], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Sides:
    """Like ``both_sides``, but a dimension may also have a pair: its padding before and after.

    >>> all_sides([(0, 1), 2], (3, 3), (1, 1), (1, 1))
    ((0, 1), (2, 2))
    """
    if isinstance(padding, str):
        return both_sides(padding, taps, stride, dilation)
    values = _repeated(padding, len(taps))
    pairs = [_pair(value) for value in values or ()]
    if values is None or None in pairs:
        raise BadInput(f"`padding` must be an int, or {len(taps)} ints or pairs of ints, got {padding!r}")
    return tuple(pair for pair in pairs if pair is not None)


def _repeated(value: object, rank: int) -> tuple[object, ...] | None:
    """One value per dimension; None if there is neither one nor ``rank`` of them."""
    if is_whole(value):
        return (value,) * rank
    values = _items(value)
    values = values * rank if len(values) == 1 else values
    return values if len(values) == rank else None


def _pair(value: object) -> tuple[int, int] | None:
    sides = (value, value) if is_whole(value) else _items(value)
    if len(sides) != 2 or not all(is_whole(side) for side in sides):
        return None
    return int(sides[0]), int(sides[1])  # type: ignore[call-overload]


def _items(value: object) -> tuple[object, ...]:
    """The items of ``value``; empty for a value without items, such as a 0-d tensor."""
    try:
        return tuple(value)  # type: ignore[arg-type]
    except TypeError:
        return ()
