"""Records in a file, one line of JSON each, kept as soon as they are known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from convwright import strict_json
from convwright.errors import BadInput

_STDOUT = 1
# No line of results is as long; so much is read to see whether a file holds any.
_MOST_LINE_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 16


def as_line(data: Any) -> str:
    """``data`` as strict JSON on one line.

    >>> as_line({"low": float("-inf"), "names": ["a", "b"]})
    '{"low": "-inf", "names": ["a", "b"]}'
    """
    return strict_json.dumps(strict_json.in_words(data))


class Lines:
    """The file at ``path``, to which lines are added, each of which has a ``benchmark``. What a run that was killed
    left half written is taken away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._told():
            _check_kind(path)
            with path.open("ab+") as file:
                file.seek(0)
                if not _holds_records(_first_line(file)):
                    raise BadInput(f"{str(path)!r} holds something else than results, and is left as it is")
                _mend(file)

    def add(self, record: dict[str, Any]) -> None:
        """Keep one more record."""
        with self._told(), self.path.open("a", encoding="utf-8") as file:
            file.write(as_line(record) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All records that are there."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise BadInput(f"{str(self.path)!r} is no file of results, which is text in UTF-8") from None
        return [self._record(line, number) for number, line in enumerate(lines, start=1) if line.strip()]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Around what writes, which may find no place for it."""
        try:
            yield
        except OSError as error:
            raise BadInput(f"{str(self.path)!r} cannot be written to: {error.strerror or error}") from error

    def _record(self, line: str, number: int) -> dict[str, Any]:
        try:
            record = strict_json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise BadInput(f"{self.path}, line {number}: a line of results is an object in JSON, got {line[:40]!r}")
        return record


def _check_kind(path: Path) -> None:
    """Refuse what is there and is no file to come back to: a device or a pipe has no end, and may never answer."""
    if not path.exists():
        return
    if not path.is_file():
        raise BadInput(f"results are kept in a regular file, and {str(path)!r} is something else")
    if os.path.samestat(path.stat(), os.fstat(_STDOUT)):
        raise BadInput(f"{str(path)!r} is where the table is printed to: results need another")


def _first_line(file: BinaryIO) -> bytes:
    """The first line that is not blank, or as much of it as a line of results may have."""
    while (line := file.readline(_MOST_LINE_BYTES)) and not line.strip():
        pass
    return line


def _holds_records(first: bytes) -> bool:
    """Whether a file with this first line is one of records, each of which names its benchmark, or empty. A first line
    that has no end may be any part."""
    if not first.endswith(b"\n"):
        return b'{"'.startswith(first[:2])
    try:
        record = strict_json.loads(first)
    except ValueError:
        return False
    return isinstance(record, dict) and "benchmark" in record


def _mend(file: BinaryIO) -> None:
    """End a last line that has no end, or take it away where it is no record."""
    start, last = _last_line(file)
    if not last:
        return
    try:
        strict_json.loads(last)
        file.write(b"\n")
    except ValueError:
        file.truncate(start)


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """What stands behind the last end of a line, and where that begins. Nothing ahead of it is read but a block."""
    start, last = file.seek(0, os.SEEK_END), b""
    while start > 0:
        size = min(start, max(_BLOCK_BYTES, len(last)))
        start = file.seek(start - size)
        whole, newline, last = (file.read(size) + last).rpartition(b"\n")
        if newline:
            return start + len(whole) + 1, last
    return 0, last
