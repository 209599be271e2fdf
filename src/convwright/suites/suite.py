"""A suite: problems with names, and where they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.suites.variation import varied

# Sizes by name, as the text form has them.
Point = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Row:
    """One problem, kept as it is written, since what is not written there may follow a size that is varied.

    ``count`` is how many layers it stands for, ``source`` where it occurs; ``at`` are the sizes that a sweep gave it.
    """

    name: str
    text: str
    count: int = 1
    source: str = ""
    at: Point = ()

    def __post_init__(self) -> None:
        _ = self.problem  # Says what is wrong with the text.

    @cached_property
    def problem(self) -> ConvProblem:
        return ConvProblem.parse(self.text)


@dataclass(frozen=True, slots=True)
class Suite:
    """Rows with different names, in their order."""

    name: str
    title: str
    source: str
    licence: str
    rows: tuple[Row, ...]

    def with_(
        self,
        *,
        batch: int | None = None,
        dtype: str | None = None,
        layout: str | None = None,
        direction: str | None = None,
        epilogue: str | None = None,
    ) -> Suite:
        """The same suite with what is given in place of what its rows say; words as in the text form.

        >>> row = Row("stem", "ic3oc64ih224kh7sh2ph3")
        >>> Suite("mine", "", "", "", (row,)).with_(batch=8, dtype="fp16", layout="nhwc").rows[0].text
        'ic3oc64ih224kh7sh2ph3mb8 dt:fp16 tag:nhwc'
        """
        sizes = {} if batch is None else {"mb": batch}
        words = {"dt": dtype, "tag": layout, "dir": direction, "ep": epilogue}
        given = {name: word for name, word in words.items() if word is not None}
        return self.each(lambda row: replace(row, text=varied(row.text, sizes, given)))

    def each(self, change: Callable[[Row], Row]) -> Suite:
        """The suite with every row changed; what cannot be is said with the row's name."""
        return replace(self, rows=tuple(_changed(row, change) for row in self.rows))


def _changed(row: Row, change: Callable[[Row], Row]) -> Row:
    try:
        return change(row)
    except BadInput as error:
        raise BadInput(f"{row.name}: {error}" if row.name != row.text else str(error)) from error
