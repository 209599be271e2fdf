"""A suite: problems with names, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from convwright.core.once import once
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.suites.variation import completed, varied

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
        if self.count < 1:
            raise BadInput(f"count is how many layers a problem stands for, at least 1, got {self.count}")

    @property
    def is_unnamed(self) -> bool:
        """True where the text is all that it is called."""
        return self.name == self.text

    @once
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
        rows = tuple(_varied(row, sizes, given) for row in self.rows)
        return replace(self, title=rows[0].text if (sizes or given) and not self.name else self.title, rows=rows)


def of_problem(text: str, varied: Mapping[str, int] | None = None) -> Suite:
    """The suite of one problem, which is called by its text. A size that will be ``varied`` need not be written there.

    >>> of_problem("ic8oc16kh3", {"ih": 64}).rows[0].name
    'ic8oc16kh3ih64'
    """
    whole = completed(text, varied or {})
    try:
        row = Row(whole, whole)
    except BadInput as error:
        raise BadInput(str(error).replace(repr(whole), repr(text))) from None
    return Suite("", text, "", "", (row,))


def _varied(row: Row, sizes: Mapping[str, int], options: Mapping[str, str]) -> Row:
    try:
        text = varied(row.text, sizes, options)
        return replace(row, name=text if row.is_unnamed else row.name, text=text)
    except BadInput as error:
        raise error if row.is_unnamed else BadInput(f"{row.name}: {error}") from None
