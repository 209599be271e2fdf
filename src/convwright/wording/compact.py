"""A problem's text form without everything that can be inferred."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache

from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

_PART = re.compile(r"[a-z]+\d+")
_SIZES = re.compile(r"(?:[a-z]+\d+)+")
# What is left out, together where possible: sizes that follow from others, defaults, the same in the next dimension.
_LEFT_OUT = (
    ("dw", "dh", "dd"), ("ow", "oh", "od"), ("sw", "sh", "sd"), ("pw", "ph", "pd"), ("kw",), ("iw",), ("kh",), ("ih",),
    ("dw",), ("dh",), ("sw",), ("sh",), ("pw",), ("ph",), ("ow",), ("oh",), ("g",), ("mb",),
)  # fmt: skip


@lru_cache(maxsize=1024)
def compact(problem: ConvProblem) -> str:
    """The short text that reads back as the same problem.

    >>> compact(ConvProblem.of((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3))
    'ic3oc64ih224kh7sh2ph3'
    """
    sizes, *options = problem.key.split()
    parts = {part.rstrip("0123456789"): part for part in _PART.findall(sizes)}
    for names in _LEFT_OUT:
        fewer = {name: part for name, part in parts.items() if name not in names}
        if _same(_text(fewer, options), problem):
            parts = fewer
    for option in list(options):
        if _same(_text(parts, [other for other in options if other != option]), problem):
            options.remove(option)
    return _text(parts, options)


def without_direction(text: str) -> str:
    """A problem's text where its direction stands beside it.

    >>> without_direction("ic3oc64ih224kh7 dt:fp16 dir:backward_weight")
    'ic3oc64ih224kh7 dt:fp16'
    """
    return " ".join(word for word in text.split(" ") if not word.startswith("dir:"))


def without_size(text: str, size: str) -> str:
    """A problem's text for a drawing over one of its sizes, which its axis has.

    >>> without_size("g1mb1ic3oc64ih224iw224oh224ow224kh3kw3sh1sw1ph1pw1dh0dw0", "ih"), without_size("a suite", "ih")
    ('ic3oc64kh3ph1', 'a suite')
    >>> without_size("ic3mb8oc64kh3", "mb")
    'ic3oc64kh3'
    """
    with suppress(BadInput):  # other sizes may be missing
        text = compact(ConvProblem.parse(text))
    sizes, *options = text.split(" ")
    if not _SIZES.fullmatch(sizes):
        return text
    return " ".join(["".join(part for part in _PART.findall(sizes) if part.rstrip("0123456789") != size), *options])


def _text(parts: dict[str, str], options: list[str]) -> str:
    return " ".join(["".join(parts.values()), *options])


def _same(text: str, problem: ConvProblem) -> bool:
    try:
        return ConvProblem.parse(text) == problem
    except BadInput:
        return False
