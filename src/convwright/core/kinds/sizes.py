"""Sizes, dtypes and strides of operands in text forms of any kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from convwright.core.dtype import DType
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.errors import BadInput
from convwright.naming import by, one_of, whole_number

# Names of the dimensions by rank. Other ranks have none and are written 8x16x32.
LETTERS = {2: "nc", 3: "ncw", 4: "nchw", 5: "ncdhw"}
SCALAR = "scalar"  # an operand without dimensions
_WORDS = {"n": "mb", "c": "ic", "d": "id", "h": "ih", "w": "iw"}
_PLAIN = re.compile(r"\d+(x\d+)*")
_NAMED = re.compile(r"([a-z]+)([0-9]+)")
_MOST_RANK = 8


def sizes_text(shape: tuple[int, ...]) -> str:
    """A shape as a word.

    >>> sizes_text((32, 64, 56, 56)), sizes_text((8, 16, 2, 2, 2, 2)), sizes_text(())
    ('mb32ic64ih56iw56', '8x16x2x2x2x2', 'scalar')
    """
    if not shape:
        return SCALAR
    letters = LETTERS.get(len(shape))
    if letters is None:
        return by(shape)
    return "".join(f"{_WORDS[letter]}{size}" for letter, size in zip(letters, shape, strict=True))


def read_sizes(word: str) -> tuple[int, ...]:
    """The shape in a word. ``mb`` is 1 by default; a missing spatial size is taken from the dimension before it.

    >>> read_sizes("ic64ih56"), read_sizes("8x16")
    ((1, 64, 56, 56), (8, 16))
    """
    if word == SCALAR:
        return ()
    if _PLAIN.fullmatch(word):
        shape = tuple(whole_number("a size", size) for size in word.split("x"))
        if len(shape) > _MOST_RANK:
            raise BadInput(f"an operand has at most {_MOST_RANK} dimensions, got {len(shape)} in {word!r}")
        return shape
    sizes = named_sizes(word, tuple(_WORDS.values()), "mb32ic64ih56 or 32x64x56x56")
    if "ic" not in sizes:
        raise BadInput(f"'ic' is missing in {word!r}")
    axes = [axis for axis in ("id", "ih", "iw") if axis in sizes]
    spatial: list[int] = []
    for axis in ("id", "ih", "iw")[("id", "ih", "iw").index(axes[0]) :] if axes else ():
        spatial.append(sizes.get(axis, spatial[-1] if spatial else 0))
    return (sizes.get("mb", 1), sizes["ic"], *spatial)


def named_sizes(word: str, known: tuple[str, ...], example: str) -> dict[str, int]:
    """The sizes in a word such as ``mb32ic64``, by name."""
    pairs = _NAMED.findall(word)
    if not pairs or "".join(name + number for name, number in pairs) != word:
        raise BadInput(f"sizes are written like {example}, got {word!r}")
    sizes: dict[str, int] = {}
    for name, number in pairs:
        if name not in known:
            raise BadInput(f"{name!r} in {word!r} is no size; the sizes are {', '.join(known)}")
        if name in sizes:
            raise BadInput(f"{name!r} stands twice in {word!r}")
        sizes[name] = whole_number(f"the size {name}", number)
    return sizes


def tag_text(spec: TensorSpec) -> str:
    """An operand's layout: its name, or strides with slashes; and its alignment if that is less than 16.

    >>> tag_text(TensorSpec((4, 8), DType.FP32, (1, 4), 4)), tag_text(TensorSpec((5,), DType.FP32, (2,)))
    ('1/4@4', '/2')
    """
    text = str(spec.layout)
    if spec.layout is Layout.STRIDED:
        text = "/".join(map(str, spec.strides)) if len(spec.strides) > 1 else f"/{spec.strides[0]}"
    return text if spec.alignment >= 16 else f"{text}@{spec.alignment}"


def read_tag(tag: str, shape: tuple[int, ...], dtype: DType) -> TensorSpec:
    """The operand with the layout of ``tag``."""
    order, at, aligned = tag.partition("@")
    alignment = whole_number("an alignment", aligned) if at else 16
    if "/" in order:
        strides = tuple(whole_number("a stride", part) for part in order.split("/") if part)
    else:
        strides = dense_strides(shape, one_of(Layout, "a layout", order, but=Layout.STRIDED))
    return TensorSpec(shape, dtype, strides, alignment)


def tags_text(x: TensorSpec, y: TensorSpec) -> str:
    """The layouts of an input and an output: one tag if equal, else ``x=…,y=…``."""
    x_tag, y_tag = tag_text(x), tag_text(y)
    return x_tag if x_tag == y_tag else f"x={x_tag},y={y_tag}"


def read_tags(text: str) -> tuple[str, str]:
    """The tags of an input and an output.

    >>> read_tags("nhwc"), read_tags("y=nchw,x=nhwc")
    (('nhwc', 'nhwc'), ('nhwc', 'nchw'))
    """
    if "=" not in text:
        return text, text
    named = dict(part.partition("=")[::2] for part in text.split(","))
    if [*sorted(named)] != ["x", "y"] or text.count("=") != 2:
        raise BadInput(f"`tag` must name x and y once each, for example tag:x=nchw,y=nhwc, got {text!r}")
    return named["x"], named["y"]


def along(names: Iterable[str], given: Mapping[str, int], usual: Iterable[int]) -> tuple[int, ...]:
    """A number for each axis. A missing number is taken from the axis before it, or is the default if there is none.

    >>> along(("kd", "kh", "kw"), {"kh": 3}, (1, 1, 1))
    (1, 3, 3)
    """
    found: list[int] = []
    last: int | None = None
    for name, number in zip(names, usual, strict=True):
        last = given.get(name, last)
        found.append(number if last is None else last)
    return tuple(found)


def read_options(words: list[str]) -> dict[str, str]:
    """Words ``name:value`` by name, each at most once."""
    options: dict[str, str] = {}
    for word in words:
        name, colon, value = word.partition(":")
        if not colon or not value:
            raise BadInput(f"an option is written name:value, for example dt:fp16, got {word!r}")
        if name in options:
            raise BadInput(f"{name!r} is given twice: {options[name]!r} and {value!r}")
        options[name] = value
    return options


def read_flag(name: str, value: str) -> bool:
    """An option that is 0 or 1."""
    if value not in ("0", "1"):
        raise BadInput(f"{name} must be 0 or 1, got {value!r}")
    return value == "1"


def no_more(options: dict[str, str], kind: str, known: str, text: str) -> None:
    """Refuse options that were not read."""
    if options:
        raise BadInput(f"{kind}'s options are {known}, got {next(iter(options))!r} in {text!r}")
