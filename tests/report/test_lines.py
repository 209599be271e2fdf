"""Records are kept line by line, and nobody else's file is touched."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from convwright.errors import BadInput
from convwright.report.benchmarks import lines
from convwright.report.benchmarks.lines import Lines


def test_records_are_added_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Lines(path).add({"benchmark": "a"})
    Lines(path).add({"benchmark": float("inf")})
    assert Lines(path).read() == [{"benchmark": "a"}, {"benchmark": "inf"}]


@pytest.mark.parametrize("half", ['{"b": 2, "c', "{"])
def test_what_was_left_half_written_is_taken_away(tmp_path: Path, half: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"benchmark": 1}\n' + half)
    assert Lines(path).read() == [{"benchmark": 1}]
    path.write_text(half)
    assert Lines(path).read() == []


@pytest.mark.parametrize(
    "text", ["Dear diary,\ntoday", "no end", "[1, 2]\n", '{"a": 1\n', "\x00\x01\x02", '{"schema": 3}\n']
)
def test_a_file_of_something_else_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "diary.txt"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"diary.txt' does not hold benchmark results, and was not changed"):
        Lines(path)
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["/dev/full", "/dev/zero", "/dev/null", "pipe", "folder"])
def test_what_is_no_regular_file_is_refused_unopened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    path = tmp_path / name  # which is an absolute one itself
    if not path.exists():
        pytest.skip(f"there is no {path} here")
    with pytest.raises(BadInput, match=rf"^results need a regular file, and '{path}' is not one$"):
        Lines(path)


def test_the_file_that_stdout_goes_to_is_not_written_to_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "printed.txt", tmp_path / "results.jsonl"
    with path.open("w") as stdout:
        monkeypatch.setattr(lines, "_STDOUT", stdout.fileno())
        with pytest.raises(BadInput, match=r"^the table is printed to '.*': write the results to another file$"):
            Lines(path)
        Lines(other).add({"benchmark": "a"})


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    bytes_read = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.bytes_read += len(found)
        return found


@pytest.mark.parametrize("left", [1, 10, 25, 99, 100, 101, 1000])
@pytest.mark.parametrize("lines_before", [0, 1, 50])
def test_of_a_long_file_only_the_last_line_is_read(
    left: int, lines_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 10)
    before, last = b'{"a": 1}\n' * lines_before, b"x" * left
    file = Counted(before + last)
    assert lines._last_line(file) == (len(before), last)
    assert file.bytes_read <= 10 + 2 * left
    lines._mend(file)
    assert file.getvalue() == before
    assert lines._last_line(file) == (len(before), b"")


def test_of_a_first_line_without_an_end_no_more_is_read_than_a_line_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_MOST_LINE_BYTES", 100)
    file = io.BytesIO(b"\n" * 30 + b"\0" * 1000)
    assert lines._first_line(file) == b"\0" * 100
    (tmp_path / "zeros").write_bytes(file.getvalue())
    with pytest.raises(BadInput, match="does not hold benchmark results"):
        Lines(tmp_path / "zeros")


def test_what_can_no_longer_be_written_to_is_named(tmp_path: Path) -> None:
    kept = Lines(tmp_path / "results.jsonl")
    kept.path.unlink()
    kept.path.mkdir()
    with pytest.raises(BadInput, match=r"results\.jsonl' cannot be written to: Is a directory"):
        kept.add({"benchmark": "gtc"})
