"""The text form of a convolution: compact, as in oneDNN's benchdnn, or full, which is the key.

Compact: ``g32mb1ic32ih112oc32oh112kh3ph1``; missing parts are inferred, ``dh`` counts from 0.
Full: the same with nothing missing, then ``dt:`` ``dir:`` ``tag:`` ``ep:`` (and ``flip:1``). For int8 and fp8 ``dt:``
names the dtypes of input, weight and output: ``dt:int8:int8:fp32``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.epilogue import Epilogue
from convwright.core.kinds.sizes import read_flag, read_options, read_tag, tag_text
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from convwright.naming import one_of, whole_number

if TYPE_CHECKING:
    from convwright.core.problem import ConvProblem

_AXES = {1: "w", 2: "hw", 3: "dhw"}
_NUMBER = re.compile(r"([a-z]+)([0-9]+)")
_PIECE = re.compile(r"[a-z]*[^a-z0-9]*[0-9]*", re.IGNORECASE)
_SIZES = {"g", "mb", "ic", "oc"} | {part + axis for part in ("i", "o", "k", "s", "p", "d") for axis in "dhw"}


def full(problem: ConvProblem) -> str:
    """The full text of ``problem``; ``parse`` gives the same problem back."""
    axes = _AXES[problem.rank]
    sizes = "".join(
        name + axis + str(value)
        for name, values in (
            ("i", problem.x.shape[2:]), ("o", problem.y.shape[2:]), ("k", problem.taps), ("s", problem.stride),
            ("p", [lo for lo, _ in problem.padding]), ("d", [dilation - 1 for dilation in problem.dilation]),
        )
        for axis, value in zip(axes, values, strict=True)
    )  # fmt: skip
    text = (
        f"g{problem.groups}mb{problem.n}ic{problem.c}oc{problem.k}{sizes} "
        f"dt:{_dtypes(problem)} dir:{problem.direction} tag:{_tags(problem)} ep:{problem.epilogue}"
    )
    for name, side in _uneven_padding(problem):
        text += f" {name}:{side}"
    return text + (" flip:1" if problem.flip else "")


def parse(text: str, make: type[ConvProblem]) -> ConvProblem:
    """Read either form and build the problem by ``make``."""
    if not isinstance(text, str):
        raise BadInput(f"a problem's text must be a str, for example 'mb32ic256ih14oc256kh3ph1', got {text!r}")
    words = text.split()
    if not words:
        raise BadInput("a problem's text must not be empty, for example mb32ic256ih14oc256kh3ph1")
    sizes = _read_sizes(words[0])
    options = read_options(words[1:])
    axes = _which_axes(sizes, words[0])
    rights = {axis: options.pop(f"r{axis}", None) for axis in axes}
    dims = [_read_axis(sizes, axes, axis, rights[axis]) for axis in axes]
    groups, channels = sizes.get("g", 1), _need(sizes, "ic", words[0])
    if channels % groups:
        raise BadInput(f"`ic` (={channels}) must be divisible by `g` (={groups}) in {words[0]!r}")
    shapes = {
        "x": (sizes.get("mb", 1), channels, *(dim["i"] for dim in dims)),
        "w": (_need(sizes, "oc", words[0]), channels // groups, *(dim["k"] for dim in dims)),
    }
    shapes["y"] = (shapes["x"][0], shapes["w"][0], *(dim["o"] for dim in dims))
    specs = _read_tags(options.pop("tag", "nchw"), shapes, _read_dtypes(options.pop("dt", "fp32")))
    problem = make(
        **specs,
        stride=tuple(dim["s"] for dim in dims),
        padding=tuple((dim["p"], dim["r"]) for dim in dims),
        dilation=tuple(dim["d"] + 1 for dim in dims),
        groups=groups,
        direction=one_of(Direction, "dir", options.pop("dir", "forward")),
        epilogue=Epilogue.parse(options.pop("ep", "none")),
        flip=read_flag("flip", options.pop("flip", "0")),
    )
    if options:
        raise BadInput(f"a problem's options are dt, dir, tag, ep and flip, got {next(iter(options))!r} in {text!r}")
    return problem


def _read_sizes(word: str) -> dict[str, int]:
    pairs = _NUMBER.findall(word)
    if ".py" in word:
        raise BadInput(f"{word!r} is a file and no problem such as mb32ic256ih14oc256kh3ph1: give the model itself")
    if "".join(name + number for name, number in pairs) != word:
        raise BadInput(f"a problem is written like mb32ic256ih14oc256kh3ph1, {_not_a_size(word)}")
    sizes: dict[str, int] = {}
    for name, number in pairs:
        if name not in _SIZES:
            raise BadInput(
                f"{name!r} in {word!r} is no size; the sizes are g, mb, ic, oc and i, o, k, s, p, d + d, h, w"
            )
        if name in sizes:
            raise BadInput(f"{name!r} stands twice in {word!r}")
        sizes[name] = whole_number(f"the size {name}", number)
        if sizes[name] < 1 and name != "mb" and name[0] not in "pd":
            raise BadInput(f"`{name}` must be at least 1, got {number} in {word!r}")
    return sizes


def _not_a_size(word: str) -> str:
    """The first piece of ``word`` that is not a size with its number, for an error."""
    end = 0
    while (size := _NUMBER.match(word, end)) is not None:
        end = size.end()
    piece = _PIECE.match(word, end)
    assert piece is not None, "it matches whatever is there"
    case = ": sizes are in lower case" if _NUMBER.fullmatch(piece[0].lower()) else ""
    if piece[0] == word and not case:
        return f"got {word!r}"
    return f"and {piece[0]!r} in {word!r} is no size with its number{case}"


def _which_axes(sizes: dict[str, int], word: str) -> str:
    present = {name[1] for name in sizes if len(name) == 2 and name[0] in "iok" and name[1] in "dhw"}
    if not present:
        raise BadInput(f"a problem needs a spatial size such as ih14 and a filter such as kh3, got {word!r}")
    axes = "dhw" if "d" in present else "hw" if "h" in present else "w"
    for name in sizes:
        if len(name) == 2 and name[1] in "dhw" and name[1] not in axes:
            wanted = " or ".join(name[0] + axis for axis in axes)
            raise BadInput(f"{name!r} in {word!r} belongs to no dimension that it has; is {wanted} meant?")
    return axes


def _read_axis(sizes: dict[str, int], axes: str, axis: str, right: str | None) -> dict[str, int]:
    """The numbers of one dimension; missing ones are taken from the dimension before it, or inferred."""
    donors = axis + "".join(other for other in reversed("dhw") if other in axes and other != axis)

    def given(part: str) -> int | None:
        return next((sizes[part + donor] for donor in donors if part + donor in sizes), None)

    taps = given("k")
    if taps is None:
        raise BadInput(f"the filter's size k{axis} is missing")
    stride, dilation, pad = given("s"), given("d") or 0, given("p")
    stride = 1 if stride is None else stride
    if stride < 1:
        raise BadInput(f"the stride s{axis} must be at least 1, got {stride}")
    size, out = given("i"), given("o")
    reach = (taps - 1) * (dilation + 1) + 1
    if size is None and out is None:
        raise BadInput(f"the input's size i{axis} is missing")
    if size is None:
        size = ((out or 1) - 1) * stride - 2 * (pad or 0) + reach
    if pad is None:
        pad = max(0, ((out - 1) * stride - size + reach) // 2) if out else 0
    usual = (size + 2 * pad - reach) // stride + 1
    if right is not None:
        after = whole_number(f"the padding r{axis}", right)
    else:
        after = pad if out is None or out == usual else (out - 1) * stride - size + reach - pad
    if after < 0:
        raise BadInput(f"o{axis}{out} is too small for i{axis}{size}k{axis}{taps}s{axis}{stride}p{axis}{pad}")
    out = max((size + pad + after - reach) // stride + 1, 0) if out is None else out
    return {"i": size, "k": taps, "s": stride, "d": dilation, "p": pad, "r": after, "o": out}


def _need(sizes: dict[str, int], name: str, word: str) -> int:
    if name not in sizes:
        raise BadInput(f"{name!r} is missing in {word!r}")
    return sizes[name]


def _uneven_padding(problem: ConvProblem) -> list[tuple[str, int]]:
    """The right padding of each dimension whose sizes do not determine it."""
    axes = _AXES[problem.rank]
    uneven = []
    for axis, dim in zip(axes, problem.axes, strict=True):
        lo, hi = dim.pad
        usual = (dim.size + 2 * lo - dim.reach) // dim.stride + 1
        inferred = lo if dim.out == usual else (dim.out - 1) * dim.stride - dim.size + dim.reach - lo
        if inferred != hi:
            uneven.append((f"r{axis}", hi))
    return uneven


def _dtypes(problem: ConvProblem) -> str:
    dtypes = (problem.x.dtype, problem.w.dtype, problem.y.dtype)
    return ":".join(dtypes) if problem.dtype.narrow else problem.dtype


def _read_dtypes(text: str) -> dict[str, DType]:
    """The dtypes of x, w and y: three names, or one for the operands."""
    given = [DType.parse(name) for name in text.split(":")]
    if len(given) not in (1, 3):
        raise BadInput(f"`dt` names one dtype, or those of x, w and y, for example dt:int8:int8:fp32, got {text!r}")
    x, w, y = given if len(given) == 3 else (given[0], given[0], given[0].outputs[0])
    return {"x": x, "w": w, "y": y}


def _tags(problem: ConvProblem) -> str:
    tags = {name: tag_text(spec) for name, spec in (("x", problem.x), ("w", problem.w), ("y", problem.y))}
    if len(set(tags.values())) == 1:
        return tags["x"]
    return ",".join(f"{name}={tag}" for name, tag in tags.items())


def _read_tags(text: str, shapes: dict[str, tuple[int, ...]], dtypes: dict[str, DType]) -> dict[str, TensorSpec]:
    tags = dict.fromkeys(shapes, text)
    if "=" in text:
        parts = [part.partition("=")[::2] for part in text.split(",")]
        tags = dict(parts)
        if set(tags) != set(shapes) or len(parts) != len(shapes):
            raise BadInput(f"`tag` must name x, w and y once each, for example tag:x=nchw,w=nchw,y=nhwc, got {text!r}")
    return {name: read_tag(tags[name], shape, dtypes[name]) for name, shape in shapes.items()}
