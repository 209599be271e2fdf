"""The text form of a resize: ``resize linear mb32ic64ih28 oh56 dt:fp16 tag:nhwc align:corners``.

The first sizes are the input's, the next ones the output's. ``scale`` names scale factors that differ from the ratios
of these sizes, by dimension: ``scale:h=1.7,w=1.7``.

>>> from convwright.core.kinds.resize import ResizeProblem
>>> ResizeProblem.parse("resize nearest ic64ih28 oh56").key
'resize nearest mb1ic64ih28iw28 oh56ow56 dt:fp32 tag:nchw'
>>> ResizeProblem.parse("resize nearest ic64ih10 oh17 scale:1.75").key
'resize nearest mb1ic64ih10iw10 oh17ow17 dt:fp32 tag:nchw scale:h=1.75,w=1.75'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.dtype import DType
from convwright.core.kinds.sizes import (
    LETTERS,
    along,
    named_sizes,
    no_more,
    read_options,
    read_sizes,
    read_tag,
    read_tags,
    sizes_text,
    tags_text,
)
from convwright.errors import BadInput

if TYPE_CHECKING:
    from convwright.core.kinds.resize import ResizeProblem

_EXAMPLE = "resize nearest mb32ic64ih28 oh56"
_HOW = ("nearest", "linear")
_CORNERS = "corners"


def full(problem: ResizeProblem) -> str:
    """The full text of ``problem``; ``parse`` gives the same problem back."""
    x, y, names = problem.x, problem.y, _names(len(problem.x.shape))
    out = "".join(f"o{name}{size}" for name, size in zip(names, y.shape[2:], strict=True))
    words = [f"resize {problem.interpolation} {sizes_text(x.shape)} {out} dt:{x.dtype} tag:{tags_text(x, y)}"]
    words += [f"align:{_CORNERS}"] * problem.aligned_corners
    given = [f"{name}={scale!r}" for name, scale in zip(names, problem.scales, strict=False) if scale is not None]
    return " ".join(words + [f"scale:{','.join(given)}"] * bool(given))


def parse(text: str, make: type[ResizeProblem]) -> ResizeProblem:
    """Read the text form and build the problem by ``make``."""
    kind, *words = text.split()
    if kind != "resize" or len(words) < 3 or words[0] not in _HOW:
        raise BadInput(f"a resize is written like {_EXAMPLE}, nearest or linear, got {text!r}")
    how, shape, options = words[0], read_sizes(words[1]), read_options(words[3:])
    if not 3 <= len(shape) <= 5:
        raise BadInput(f"a resize has 1 to 3 spatial dimensions, got {words[1]!r}")
    y_shape = (*shape[:2], *_output(words[2], shape))
    dtype, tags = DType.parse(options.pop("dt", "fp32")), read_tags(options.pop("tag", "nchw"))
    align, scale = options.pop("align", None), options.pop("scale", "")
    no_more(options, "a resize", "dt, tag, align and scale", text)
    if align not in (None, _CORNERS):
        raise BadInput(f"`align` is written align:{_CORNERS} or left out, got {align!r}")
    x, y = (read_tag(tag, each, dtype) for tag, each in zip(tags, (shape, y_shape), strict=True))
    scales = _scales(scale, _names(len(shape))) if scale else ()
    return make(x, y, how, aligned_corners=align is not None, scales=scales)  # type: ignore[arg-type]


def _names(rank: int) -> str:
    """The letters of the spatial dimensions."""
    return LETTERS[rank][2:]


def _output(word: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output's sizes. A missing size is taken from the dimension before it."""
    names = tuple(f"o{name}" for name in _names(len(shape)))
    sizes = named_sizes(word, names, "oh56")
    if names[0] not in sizes:
        raise BadInput(f"{names[0]!r} is missing in {word!r}")
    return along(names, sizes, shape[2:])


def _scales(text: str, names: str) -> tuple[float | None, ...]:
    """One scale for all dimensions, or one for each named dimension."""
    if "=" not in text:
        return (_number(text),) * len(names)
    found = dict[str, float]()
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in names or len(name) != 1 or name in found:
            raise BadInput(f"scale is written like scale:h=1.7,w=1.7, of dimensions {', '.join(names)}, got {text!r}")
        found[name] = _number(number)
    return tuple(found.get(name) for name in names)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"a scale is a number, got {text!r}") from None
