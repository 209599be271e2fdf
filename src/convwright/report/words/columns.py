"""Which columns of a table a terminal has room for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

_EMPTY = ("", "–")
_GAP = 2
_LEAST = 20
Row = Mapping[str, str]


def fitting(
    rows: Sequence[Row], names: Sequence[str], *, kept: Sequence[str], folded: Collection[str], width: int
) -> list[str]:
    """Those of ``names`` for which there is room: empty ones go first, then the rightmost, and those ``kept`` last.

    The first of ``kept`` always stays. The cells of ``folded`` may be broken over lines, those of others not.

    >>> rows = [{"a": "one", "b": "–", "c": "12345678", "d": "why"}]
    >>> [fitting(rows, "abcd", kept="ad", folded=(), width=width) for width in (30, 18, 8, 2)]
    [['a', 'b', 'c', 'd'], ['a', 'c', 'd'], ['a', 'd'], ['a']]
    """
    shown = list(names)
    for name in _expendable(rows, names, kept):
        needed = sum(least_width(width) if each in folded else _longest(rows, each) for each in shown)
        if needed + _GAP * (len(shown) - 1) <= width:
            break
        shown.remove(name)
    return shown


def is_empty(rows: Sequence[Row], name: str) -> bool:
    """Whether nothing is known in this column."""
    return all(row[name] in _EMPTY for row in rows)


def least_width(width: int) -> int:
    """Of a column whose cells may be broken over lines: names can be read in it, and there is room beside it."""
    return min(_LEAST, width // 4)


def _longest(rows: Sequence[Row], name: str) -> int:
    return max(len(name), *(len(row[name]) for row in rows)) if rows else len(name)


def _expendable(rows: Sequence[Row], names: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    others = [name for name in reversed(names) if name not in kept]
    last = [name for name in reversed(kept[1:]) if name in names]
    empty = [name for name in (*others, *last) if is_empty(rows, name)]
    yield from empty
    yield from (name for name in (*others, *last) if name not in empty)
