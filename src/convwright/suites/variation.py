"""A problem's text with other sizes or options in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

AXES = {1: "w", 2: "hw", 3: "dhw"}
_PART = re.compile(r"([a-z]+)([0-9]+)")
_CHANNELS = ("g", "mb", "ic", "oc")
_PER_AXIS = "ikspd"


def varied(text: str, sizes: Mapping[str, int], options: Mapping[str, str] | None = None) -> str:
    """``text`` with these ``sizes`` and ``options`` (``dt``, ``tag``, …) in place of its own.

    What is not written follows as it does in any text: where only ``ih`` is, the width moves along.

    >>> varied("ic8ih32oc16kh3ph1", {"ih": 64, "mb": 2}, {"dt": "fp16"})
    'ic8ih64oc16kh3ph1mb2 dt:fp16'

    Output sizes follow from the others, so they are left out where one of those changes, and the padding stays.

    >>> varied("ic8ih32oc16oh32kh3", {"ih": 64})
    'ic8ih64oc16kh3ph1'
    """
    problem = ConvProblem.parse(text)
    first, *rest = text.split()
    parts = dict(_PART.findall(first))
    words = {name: value for name, _, value in (word.partition(":") for word in rest)}
    for name, value in sizes.items():
        _check(name, value, problem)
    if set(sizes) - {"mb"} and "/" in words.get("tag", ""):
        raise BadInput(f"the sizes of a problem whose `tag` gives strides cannot be changed, got {text!r}")
    if not set(sizes) <= set(_CHANNELS):
        parts = _with_free_output(parts, sizes, problem)
    parts |= {name: str(value) for name, value in sizes.items()}
    words |= options or {}
    return " ".join(["".join(map("".join, parts.items())), *(f"{name}:{value}" for name, value in words.items())])


def completed(text: str, sizes: Mapping[str, int]) -> str:
    """``text``, with those of ``sizes`` that are not written there where it is no problem without them.

    >>> completed("ic8oc16kh3 dt:fp16", {"ih": 64, "ic": 4}), completed("ic8ih9oc16kh3", {"mb": 2})
    ('ic8oc16kh3ih64 dt:fp16', 'ic8ih9oc16kh3')
    """
    try:
        ConvProblem.parse(text)
    except BadInput:
        first, *rest = text.split() or [""]
        written = dict(_PART.findall(first))
        added = "".join(f"{name}{value}" for name, value in sizes.items() if name not in written)
        return " ".join([first + added, *rest])
    return text


def _check(name: str, value: int, problem: ConvProblem) -> None:
    axes = AXES[problem.rank]
    known = [*_CHANNELS, *(part + axis for part in _PER_AXIS for axis in axes)]
    if name[:1] == "o" and name[1:] in tuple(axes):
        raise BadInput(f"the output's size {name} follows from the others: change i{name[1:]}, got {name}={value}")
    if name not in known:
        raise BadInput(f"the sizes of a problem in {problem.rank} dimensions are {', '.join(known)}, got {name!r}")
    if value < 0:
        raise BadInput(f"a size must not be negative, got {name}={value}")


def _with_free_output(parts: dict[str, str], sizes: Mapping[str, int], problem: ConvProblem) -> dict[str, str]:
    """Without the output's sizes where the input's are known; a padding that follows only from them is written out."""
    axes = AXES[problem.rank]
    outputs, inputs = ([part + axis for axis in axes] for part in "oi")
    if not any(name in parts for name in outputs) or not any(name in parts or name in sizes for name in inputs):
        return parts
    padding = problem.symmetric_padding
    if padding is None:
        raise BadInput("an output that needs uneven padding leaves no other size free: write rh: or rw: instead of it")
    freed = {name: number for name, number in parts.items() if name not in outputs}
    if not any(f"p{axis}" in parts for axis in axes):
        written = axes if len(set(padding)) > 1 else axes[:1]
        freed |= {f"p{axis}": str(side) for axis, side in zip(written, padding, strict=False)}
    return freed
