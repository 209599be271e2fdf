"""The text of a suite's file → the suite; a bad line is said with its number."""

from __future__ import annotations

import csv
import re

from convwright.errors import BadInput
from convwright.naming import whole_number
from convwright.suites.suite import Row, Suite

_FACT = re.compile(r"#\s*(title|source|licence):\s*(.*)")
_COLUMNS = ("name", "problem", "count", "source")


def read(text: str, *, name: str, place: str) -> Suite:
    """The suite that ``text`` holds; ``place`` is what its file is called where something is wrong with it.

    >>> read("# title: one layer\\nstem,ic3oc64ih224kh7sh2ph3,2", name="mine", place="mine.csv").rows[0].count
    2
    """
    facts: dict[str, str] = {}
    rows: dict[str, Row] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if line.startswith("#"):
            fact = _FACT.fullmatch(line.rstrip())
            if fact is not None:
                facts.setdefault(fact[1], fact[2])
        elif line.strip() and not _is_heading(line):
            row = _row(line, f"{place}, line {number}")
            if row.name in rows:
                raise BadInput(f"{place}, line {number}: each name may stand once, got {row.name!r} again")
            rows[row.name] = row
    if not rows:
        raise BadInput(f"{place} has no problems: a suite has one a line, for example stem,ic3oc64ih224kh7sh2ph3")
    return Suite(
        name, facts.get("title", name), facts.get("source", ""), facts.get("licence", ""), tuple(rows.values())
    )


def _is_heading(line: str) -> bool:
    cells = tuple(cell.strip() for cell in line.split(","))
    return len(cells) >= 2 and cells == _COLUMNS[: len(cells)]


def _row(line: str, where: str) -> Row:
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], strict=True))]
        if not 2 <= len(cells) <= len(_COLUMNS):
            raise BadInput(f"a line has 2 to {len(_COLUMNS)} cells, {','.join(_COLUMNS)}, got {len(cells)}")
        name, problem, count, source = cells + [""] * (len(_COLUMNS) - len(cells))
        if not name:
            raise BadInput("a problem needs a name in front of it, got none")
        return Row(name, problem, whole_number("count", count or "1"), source)
    except csv.Error as error:
        raise BadInput(f"{where}: it is no line of CSV, {error}") from None
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
