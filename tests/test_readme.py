"""The README's figures are those of the record."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_table_is_made_from_the_record() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    readme = (ROOT / "README.md").read_text()
    assert f"{made['START']}\n{made['table']()}\n{made['END']}" in readme
