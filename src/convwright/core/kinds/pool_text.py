"""The text form of pooling: ``pool max mb32ic64ih112 kh3sh2ph1 dt:fp16 tag:nhwc``, or ``pool avg …``.

Sizes are the input's. The second word is the window: ``k`` its size, ``s`` the stride (default: the window), ``p`` the
padding on both sides, ``d`` the dilation counted from 0, each with d, h or w. A missing number is taken from the
dimension before it. ``ceil:1`` adds windows that end after the image. For an average, ``include_pad:0`` does not count
padding, and ``divisor:8`` divides by 8.

>>> from convwright.core.kinds.pool import PoolProblem
>>> PoolProblem.parse("pool max mb32ic64ih112 kh3sh2ph1").key
'pool max mb32ic64ih112iw112 kh3kw3sh2sw2ph1pw1dh0dw0 dt:fp32 tag:nchw'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.dtype import DType
from convwright.core.kinds.pool_window import Pooling, output_shape
from convwright.core.kinds.sizes import (
    along,
    named_sizes,
    no_more,
    read_flag,
    read_options,
    read_sizes,
    read_tag,
    read_tags,
    sizes_text,
    tags_text,
)
from convwright.errors import BadInput
from convwright.naming import one_of, whole_number

if TYPE_CHECKING:
    from convwright.core.kinds.pool import PoolProblem

_EXAMPLE = "pool max mb32ic64ih112 kh3sh2ph1"
_AXES = {3: "w", 4: "hw", 5: "dhw"}


def full(problem: PoolProblem) -> str:
    """The full text of ``problem``; ``parse`` gives the same problem back."""
    x, y = problem.x, problem.y
    window = "".join(
        f"{name}{axis}{value}"
        for name, values in (
            ("k", problem.taps), ("s", problem.stride), ("p", problem.padding),
            ("d", [dilation - 1 for dilation in problem.dilation]),
        )
        for axis, value in zip(_AXES[len(x.shape)], values, strict=True)
    )  # fmt: skip
    words = [f"pool {problem.pooling} {sizes_text(x.shape)} {window} dt:{problem.dtype} tag:{tags_text(x, y)}"]
    words += ["ceil:1"] * problem.ceil + ["include_pad:0"] * (not problem.includes_padding)
    words += [] if problem.divisor is None else [f"divisor:{problem.divisor}"]
    return " ".join(words)


def parse(text: str, make: type[PoolProblem]) -> PoolProblem:
    """Read the text form and build the problem by ``make``."""
    kind, *words = text.split()
    if kind != "pool" or len(words) < 3:
        raise BadInput(f"a pool is written like {_EXAMPLE}, got {text!r}")
    pooling, shape = one_of(Pooling, "the pooling", words[0]), read_sizes(words[1])
    if len(shape) not in _AXES:
        raise BadInput(f"a pool has one to three sizes such as ih112 beside its channels, got {words[1]!r}")
    window, options = _read_window(words[2], _AXES[len(shape)]), read_options(words[3:])
    dtype, tags = DType.parse(options.pop("dt", "fp32")), read_tags(options.pop("tag", "nchw"))
    ceil = read_flag("ceil", options.pop("ceil", "0"))
    includes_padding = read_flag("include_pad", options.pop("include_pad", "1"))
    divisor = whole_number("divisor", options.pop("divisor")) if "divisor" in options else None
    no_more(options, "a pool", "dt, tag, ceil, include_pad and divisor", text)
    y_shape = output_shape(shape, *window, ceil=ceil)
    specs = read_tag(tags[0], shape, dtype), read_tag(tags[1], y_shape, dtype)
    return make(pooling, *specs, *window, ceil, includes_padding, divisor)


_Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _read_window(word: str, axes: str) -> _Window:
    """Taps, stride, padding and dilation."""
    given = named_sizes(word, tuple(name + axis for name in "kspd" for axis in axes), "kh3sh2ph1")
    for name, number in given.items():
        if number < 1 and name[0] in "ks":
            raise BadInput(f"`{name}` must be at least 1, got {number} in {word!r}")
    if f"k{axes[0]}" not in given:
        raise BadInput(f"the window's size 'k{axes[0]}' is missing in {word!r}")
    none = (0,) * len(axes)
    ks, ss, ps, ds = ([name + axis for axis in axes] for name in "kspd")
    taps = along(ks, given, none)
    dilation = tuple(each + 1 for each in along(ds, given, none))
    return taps, along(ss, given, taps), along(ps, given, none), dilation
