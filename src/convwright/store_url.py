"""The URL of a database on a server. Its password is in no text that anybody reads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
SCHEMES = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True, repr=False)
class StoreUrl:
    """What a user writes, such as postgresql://user:password@host:5432/database.

    >>> StoreUrl("postgresql://ada:secret@db.example:5432/findings?sslmode=require")
    postgresql://ada@db.example:5432/findings
    """

    secret: str = field(repr=False)

    @property
    def scheme(self) -> str:
        found = _URL.fullmatch(self.secret)
        return found["scheme"].lower() if found else ""

    @property
    def objection(self) -> str | None:
        """Why no server can be reached by it, or None."""
        if self.scheme not in SCHEMES:
            return "expected a path, or postgresql://USER@HOST:PORT/DATABASE"
        if "@" in self._after_authority or self._authority.count("@") > 1:
            return "special characters of a password must be percent-encoded in a URL, such as %40 for @ and %2F for /"
        if re.search("%(?![0-9a-fA-F]{2})", self.secret):
            return "a % must be written %25 in a URL"
        return None

    def __str__(self) -> str:
        if self.objection is not None:  # who knows which part is the password
            return f"{self.scheme}://…"
        user, at, host = self._authority.rpartition("@")
        return f"{self.scheme}://{user.partition(':')[0]}{at}{host}{self._after_authority.partition('?')[0]}"

    __repr__ = __str__

    def hidden_in(self, text: str) -> str:
        """``text`` without the password, if a library has said it."""
        words = (self._authority.rpartition("@")[0].partition(":")[2], *re.findall("password=([^&]*)", self._rest))
        for word in {spelled for each in words for spelled in (each, unquote(each)) if spelled}:
            text = text.replace(word, "…")
        return text

    @property
    def _authority(self) -> str:
        return re.split("[/?]", self._rest, maxsplit=1)[0]

    @property
    def _after_authority(self) -> str:
        return self._rest[len(self._authority) :]

    @property
    def _rest(self) -> str:
        found = _URL.fullmatch(self.secret)
        return found["rest"] if found else ""


def is_url(text: str) -> bool:
    """Whether a text is a URL, of whatever scheme, and no path.

    >>> is_url("postgresql://host/findings"), is_url("/home/ada/findings.sqlite")
    (True, False)
    """
    return _URL.fullmatch(text) is not None
