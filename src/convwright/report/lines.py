"""Records in a file, one line of JSON each, kept as soon as they are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from convwright.errors import BadInput
from convwright.report.plain import as_json


def as_line(data: Any) -> str:
    """``data`` as strict JSON on one line.

    >>> as_line({"low": float("-inf"), "names": ["a", "b"]})
    '{"low": "-inf", "names": ["a", "b"]}'
    """
    return json.dumps(json.loads(as_json(data)))


class Lines:
    """The file at ``path``, to which lines are added. What a run that was killed left half written is taken away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("ab+") as file:
                file.seek(0)
                if not _holds_records(next((line for line in file if line.strip()), b"")):
                    raise BadInput(f"{str(path)!r} holds something else than results, and is left as it is")
                _mend(file)
        except OSError as error:
            raise BadInput(f"{str(path)!r} cannot be written to: {error.strerror or error}") from error

    def add(self, record: dict[str, Any]) -> None:
        """Keep one more record."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(as_line(record) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All records that are there."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise BadInput(f"{str(self.path)!r} is no file of results, which is text in UTF-8") from None
        return [self._record(line, number) for number, line in enumerate(lines, start=1) if line.strip()]

    def _record(self, line: str, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise BadInput(f"{self.path}, line {number}: a line of results is an object in JSON, got {line[:40]!r}")
        return record


def _holds_records(first: bytes) -> bool:
    """Whether a file with this first line is one of records, or empty. A first line that has no end may be any part."""
    if not first.endswith(b"\n"):
        return b'{"'.startswith(first[:2])
    try:
        return isinstance(json.loads(first), dict)
    except ValueError:
        return False


def _mend(file: Any) -> None:
    """End a last line that has no end, or take it away where it is no record."""
    file.seek(0)
    whole, newline, last = file.read().rpartition(b"\n")
    if not last:
        return
    try:
        json.loads(last)
        file.write(b"\n")
    except ValueError:
        file.truncate(len(whole) + len(newline))
