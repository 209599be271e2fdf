"""Which columns of a table a terminal has room for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

_EMPTY = ("", "–")
_GAP = 2
_LEAST = 32
Row = Mapping[str, str]


def fitting(
    rows: Sequence[Row], names: Sequence[str], *, kept: Sequence[str], folded: Collection[str], width: int
) -> list[str]:
    """Those of ``names`` for which there is room. Columns that are empty have none.

    Where room is short, the rightmost goes first, and those ``kept`` last: the last of them first. The first of
    ``kept`` always stays. The cells of ``folded`` may be broken over lines, those of others not.

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
    """Those of ``names`` in which any row has something, and those that are shown ``always``.

    >>> filled([{"a": "1", "b": "–", "c": ""}], "abc", "c")
    ['a', 'c']
    """
    return [name for name in names if name in always or not is_empty(rows, name)]


def is_empty(rows: Sequence[Row], name: str) -> bool:
    """Whether nothing is known in this column."""
    return all(row[name] in _EMPTY for row in rows)


def folded_width(rows: Sequence[Row], name: str, width: int) -> int:
    """The least width of a column whose cells may be broken over lines: names can be read in it."""
    return min(_LEAST, width // 4, longest(rows, name))


def longest(rows: Sequence[Row], name: str) -> int:
    """How wide a column is of which no cell is broken over lines."""
    return max(len(name), *(len(row[name]) for row in rows)) if rows else len(name)


def _expendable(shown: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    yield from [name for name in reversed(shown) if name not in kept]
    yield from [name for name in reversed(kept[1:]) if name in shown]
