"""The figures of the README, and of pages with tables, are those of the record, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tables
from pages import engines

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
TEXT = "".join(file.read_text() for file in tables.SHOWN_ON)
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_made_from_the_record(name: str) -> None:
    text = tables.TABLES[name].text()
    if text is None:  # there is no record
        assert f"<!-- table: {name} -->" not in TEXT
        return
    assert text.startswith("| ") or tables.TABLES[name].make is engines.in_short or not text
    assert f"<!-- table: {name} -->\n{text}\n{tables.END}" in TEXT, "python benchmarks/tables.py --write"


def test_every_table_is_one_of_those() -> None:
    assert set(re.findall(r"<!-- table: (.*?) -->", TEXT)) <= set(tables.TABLES)


def test_there_are_examples() -> None:
    assert BLOCKS


def test_examples_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONVWRIGHT_MODE")  # as users run them
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert "torch/default" in said
    assert "cudnn/fft-tiling cannot compute" in said  # the operands are on the CPU, whatever else there is


@pytest.mark.parametrize(("file", "anchor"), sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)#?([^)]*)\)", README))))
def test_links_lead_somewhere(file: str, anchor: str) -> None:
    assert (ROOT / file).exists()
    if anchor:
        headings = re.findall(r"^#+ (.*)$", (ROOT / file).read_text(), flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150
