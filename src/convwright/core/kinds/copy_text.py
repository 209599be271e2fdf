"""The text form of a copy: ``copy mb32ic64ih56 nchw->nhwc dt:fp32->fp16 slice:c=8:24 pad:h=1:2,w=1``.

Sizes are the input's. ``slice`` names the kept elements, from the first to the one after the last; ``pad`` the zeros
before and after, or one number for both. Dimensions are n, c, d, h and w, or numbers.

>>> from convwright.core.kinds.copy import CopyProblem
>>> CopyProblem.parse("copy ic64ih56 nchw->nhwc slice:c=0:32").key
'copy mb1ic64ih56iw56 nchw->nhwc dt:fp32 slice:c=0:32'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.dtype import DType
from convwright.core.kinds.sizes import LETTERS, no_more, read_options, read_sizes, read_tag, sizes_text, tag_text
from convwright.errors import BadInput
from convwright.naming import whole_number

if TYPE_CHECKING:
    from convwright.core.kinds.copy import CopyProblem

_EXAMPLE = "copy mb32ic64ih56 nchw->nhwc"
_ARROW = "->"


def full(problem: CopyProblem) -> str:
    """The full text of ``problem``; ``parse`` gives the same problem back."""
    x, y, names = problem.x, problem.y, _names(len(problem.x.shape))
    dtypes = x.dtype if x.dtype is y.dtype else f"{x.dtype}{_ARROW}{y.dtype}"
    words = [f"copy {sizes_text(x.shape)} {tag_text(x)}{_ARROW}{tag_text(y)} dt:{dtypes}"]
    cut, padded = [], []
    for name, size, (before, after) in zip(names, x.shape, problem.margins, strict=True):
        if before < 0 or after < 0:
            cut.append(f"{name}={max(-before, 0)}:{size + min(after, 0)}")
        if before > 0 or after > 0:
            pair = max(before, 0), max(after, 0)
            padded.append(f"{name}={pair[0]}" if pair[0] == pair[1] else f"{name}={pair[0]}:{pair[1]}")
    words += [f"slice:{','.join(cut)}"] * bool(cut) + [f"pad:{','.join(padded)}"] * bool(padded)
    return " ".join(words)


def parse(text: str, make: type[CopyProblem]) -> CopyProblem:
    """Read the text form and build the problem by ``make``."""
    kind, *words = text.split()
    if kind != "copy" or not words:
        raise BadInput(f"a copy is written like {_EXAMPLE}, got {text!r}")
    shape = read_sizes(words.pop(0))
    layouts = words.pop(0) if words and _ARROW in words[0] and ":" not in words[0] else f"nchw{_ARROW}nchw"
    options = read_options(words)
    tags, dtypes = _pair("layouts", layouts), _pair("dtypes", options.pop("dt", "fp32"))
    cut, padded = options.pop("slice", ""), options.pop("pad", "")
    no_more(options, "a copy", "dt, slice and pad", text)
    margins = _margins(shape, cut, padded)
    y_shape = tuple(size + before + after for size, (before, after) in zip(shape, margins, strict=True))
    if any(size < 0 for size in y_shape):
        raise BadInput(f"nothing is left of {shape} in {text!r}")
    x = read_tag(tags[0], shape, DType.parse(dtypes[0]))
    return make(x, read_tag(tags[1], y_shape, DType.parse(dtypes[1])), margins)


def _pair(what: str, text: str) -> tuple[str, str]:
    parts = text.split(_ARROW)
    if len(parts) > 2 or not all(parts):
        raise BadInput(f"{what} of a copy are written from{_ARROW}to, got {text!r}")
    return parts[0], parts[-1]


def _names(rank: int) -> list[str]:
    return [*LETTERS[rank]] if rank in LETTERS else [str(dim) for dim in range(rank)]


def _margins(shape: tuple[int, ...], cut: str, padded: str) -> tuple[tuple[int, int], ...]:
    margins = [[0, 0] for _ in shape]
    for dim, (first, end) in _read_pairs("slice", cut, len(shape)):
        if not first <= end <= shape[dim]:
            raise BadInput(f"a slice lies within 0:{shape[dim]}, got {first}:{end} in {cut!r}")
        margins[dim] = [-first, end - shape[dim]]
    for dim, sides in _read_pairs("pad", padded, len(shape)):
        for side, zeros in enumerate(sides):
            if zeros and margins[dim][side]:
                raise BadInput(f"{_names(len(shape))[dim]} is both cut and padded at one end: {cut!r}, {padded!r}")
            margins[dim][side] += zeros
    return tuple((before, after) for before, after in margins)


def _read_pairs(option: str, text: str, rank: int) -> list[tuple[int, tuple[int, int]]]:
    names, found = _names(rank), dict[int, tuple[int, int]]()
    for piece in text.split(",") if text else ():
        name, equals, numbers = piece.partition("=")
        first, colon, second = numbers.partition(":")
        if not equals or name not in names or (option == "slice" and not colon):
            example = "c=8:24" if option == "slice" else "h=1:2,w=1"
            raise BadInput(
                f"{option} is written like {option}:{example}, of dimensions {', '.join(names)}, got {text!r}"
            )
        if names.index(name) in found:
            raise BadInput(f"{name} is given twice in {option}:{text}")
        pair = whole_number(f"a number in {option}", first), whole_number(f"a number in {option}", second or first)
        found[names.index(name)] = pair
    return list(found.items())
