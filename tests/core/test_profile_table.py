"""The table in the documentation is the one that the profiles make."""

from __future__ import annotations

from pathlib import Path

from convwright.core.profiles import names
from convwright.core.profiles.table import markdown

DEVICES = Path(__file__).resolve().parents[2] / "docs" / "devices.md"
BEGIN, END = "<!-- made by convwright.core.profiles.table.markdown() -->\n", "<!-- end -->"


def test_the_documentation_shows_what_the_profiles_say() -> None:
    text = DEVICES.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.partition(BEGIN)[2].partition(END)[0] == markdown()


def test_one_row_for_each_profile() -> None:
    header, rule, *rows = markdown().splitlines()
    assert [row.split("|")[1].strip(" `") for row in rows] == [*names()]
    assert {line.count("|") for line in (header, rule, *rows)} == {header.count("|")}


def test_a_rate_that_there_is_not_and_one_at_a_lower_clock() -> None:
    rows = {line.split("|")[1].strip(" `"): line for line in markdown().splitlines()[2:]}
    assert rows["t4"].count("–") == 3
    assert "989.4 at 1830" in rows["h200"]
