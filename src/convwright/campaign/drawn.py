"""A problem of a campaign, with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from convwright import strict_json
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.record import Record
from convwright.errors import BadInput


@dataclass(frozen=True, slots=True)
class Drawn(Record):
    """``number`` is the problem's place in the campaign. ``origin`` is its source and its name there; a split keeps one
    origin together. ``again`` means that it was measured before and is measured once more.
    """

    problem: Any  # a Problem, whose key is in the text
    origin: str
    number: int
    again: bool = False

    @property
    def name(self) -> str:
        """The name of its task."""
        return f"{self.number:08d}{'-again' * self.again}"

    def text(self) -> str:
        """What ``read`` reads."""
        problem: Problem = self.problem
        record = {"problem": problem.key, "origin": self.origin, "number": self.number, "again": self.again}
        return strict_json.dumps(record)

    @classmethod
    def read(cls, text: str) -> Self:
        """The problem from the text that ``text`` returned.

        >>> Drawn.read(Drawn(parse("ic8ih9oc8kh3"), "random", 7).text()).name
        '00000007'
        """
        try:
            record = strict_json.loads(text)
            return cls(parse(record["problem"]), str(record["origin"]), int(record["number"]), bool(record["again"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"this is not a problem of a campaign: {text[:80]!r} ({error})") from error
