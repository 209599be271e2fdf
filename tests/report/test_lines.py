"""Records are kept line by line, and nobody else's file is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from convwright.errors import BadInput
from convwright.report.lines import Lines


def test_records_are_added_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Lines(path).add({"a": 1})
    Lines(path).add({"b": float("inf")})
    assert Lines(path).read() == [{"a": 1}, {"b": "inf"}]


@pytest.mark.parametrize("half", ['{"b": 2, "c', "{"])
def test_what_was_left_half_written_is_taken_away(tmp_path: Path, half: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"a": 1}\n' + half)
    assert Lines(path).read() == [{"a": 1}]
    path.write_text(half)
    assert Lines(path).read() == []


@pytest.mark.parametrize("text", ["Dear diary,\ntoday", "no end", "[1, 2]\n", '{"a": 1\n', "\x00\x01\x02"])
def test_a_file_of_something_else_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "diary.txt"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"diary.txt' holds something else than results, and is left as it is"):
        Lines(path)
    assert path.read_text() == text
