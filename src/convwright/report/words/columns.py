"""Which columns of a table fit into a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

_EMPTY = ("", "–")
_GAP = 2
# A folded column is at least this wide, if its longest cell and the table allow it.
_LEAST = 32
# A line may break after a blank, a comma, a plus sign or an opening bracket.
_PART = re.compile(r"[^\s,+(\[]*(?:[,+(\[]|\s+)|[^\s,+(\[]+")
Row = Mapping[str, str]


def fitting(
    rows: Sequence[Row], names: Sequence[str], *, kept: Sequence[str], folded: Collection[str], width: int
) -> list[str]:
    """The columns in ``names`` that fit into ``width``. Empty columns are left out.

    If there are too many, the rightmost columns are left out first, then those in ``kept``, from its end. The first of
    ``kept`` always stays. Only the cells of ``folded`` columns may be broken over lines.

    >>> rows = [{"a": "one", "b": "–", "c": "12345678", "d": "why"}]
    >>> [fitting(rows, "abcd", kept="ad", folded=(), width=width) for width in (30, 18, 8, 2)]
    [['a', 'c', 'd'], ['a', 'c', 'd'], ['a', 'd'], ['a']]
    """
    shown = filled(rows, names, kept[:1])
    for name in _expendable(shown, kept):
        needed = sum(folded_width(rows, each, width) if each in folded else longest(rows, each) for each in shown)
        if needed + _GAP * (len(shown) - 1) <= width:
            break
        shown.remove(name)
    return shown


def filled(rows: Sequence[Row], names: Sequence[str], always: Collection[str] = ()) -> list[str]:
    """The columns in ``names`` that are not empty or are in ``always``.

    >>> filled([{"a": "1", "b": "–", "c": ""}], "abc", "c")
    ['a', 'c']
    """
    return [name for name in names if name in always or not is_empty(rows, name)]


def is_empty(rows: Sequence[Row], name: str) -> bool:
    """Whether all cells of a column are empty."""
    return all(row[name] in _EMPTY for row in rows)


def folded_width(rows: Sequence[Row], name: str, width: int) -> int:
    """The least width of a column whose cells may be broken over lines. Names stay readable in it."""
    return min(_LEAST, width * 3 // 10, longest(rows, name))


def folded_widths(rows: Sequence[Row], shown: Sequence[str], folded: Collection[str], width: int) -> dict[str, int]:
    """The widths of the columns whose cells may be broken. They share the width that the others leave; narrow columns
    get theirs first.

    >>> folded_widths([{"a": "x" * 9, "b": "y" * 30, "c": "1"}], "abc", "ab", 31)
    {'a': 9, 'b': 17}
    """
    names = sorted((name for name in shown if name in folded), key=lambda name: longest(rows, name))
    left = width - _GAP * (len(shown) - 1) - sum(longest(rows, name) for name in shown if name not in folded)
    widths = {}
    for place, name in enumerate(names):
        share = max(left // (len(names) - place), folded_width(rows, name, width))
        widths[name] = min(longest(rows, name), share)
        left -= widths[name]
    return widths


def broken(text: str, width: int) -> str:
    """The text in lines of at most ``width``. Lines break where ``_PART`` ends.

    >>> print(broken("triton/staged-gemm[bm=64,bn=32]", 26))
    triton/staged-gemm[bm=64,
    bn=32]
    >>> print(broken("stages.0.conv1+stages.0.relu", 24))
    stages.0.conv1+
    stages.0.relu
    """
    lines = [""]
    for part in _PART.findall(text):
        if len(lines[-1]) + len(part.rstrip()) > width and len(part) <= width:
            lines.append("")
        lines[-1] += part
        while len(lines[-1].rstrip()) > width:  # a part that is longer than a line
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(line.rstrip() for line in lines)


def longest(rows: Sequence[Row], name: str) -> int:
    """The width of a column whose cells are not broken over lines."""
    return max(len(name), *(len(row[name]) for row in rows)) if rows else len(name)


def _expendable(shown: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    yield from [name for name in reversed(shown) if name not in kept]
    yield from [name for name in reversed(kept[1:]) if name in shown]
