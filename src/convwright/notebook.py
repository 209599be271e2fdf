"""How ``print`` and notebooks show what the functions give back."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import Any


def html(found: Any) -> str:
    """The table of ``found`` as HTML. The package that makes tables is imported here, by its name, since it stands on
    all others."""
    page: str = import_module("convwright.report.page").html_of(found)
    return page


def text(found: Any) -> str:
    """The table and the sentences that the command prints, as wide as the terminal."""
    said: str = import_module("convwright.report.page").text_of(found)
    return said


class Lines(str):
    """Text that a notebook shows line by line, in letters of one width.

    >>> Lines("a < b")._repr_html_()
    '<pre>a &lt; b</pre>'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"
