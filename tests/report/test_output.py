"""What users named is printed as it is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.table import Table

import convwright
from convwright.report.words.output import console

NAMES = "calls.py:a: calls.py:b [bold]made[/] :smiley:"


def test_no_name_becomes_an_emoji_or_a_style(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name", box=None)
    table.add_row(NAMES)
    for screen in (console(width=200), console(stderr=True, width=200)):
        screen.print(NAMES, table)
    said = capsys.readouterr()
    for text in said:
        assert text.count(NAMES) == 2


def test_numbers_and_words_of_a_sentence_have_no_colour_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = console(width=200)
    assert screen.is_terminal
    with screen.capture() as printed:
        screen.print("2 of 14 None True 'a name' /tmp/file 1.5x")
    assert printed.get() == "2 of 14 None True 'a name' /tmp/file 1.5x\n"


def test_there_is_one_place_that_makes_consoles() -> None:
    house = Path(convwright.__file__).parent
    making = [path.name for path in house.rglob("*.py") if re.search(r"\bConsole\(", path.read_text(encoding="utf-8"))]
    assert making == ["output.py"]
