"""The picture of the first pages: engines beside `torch.compile` and PyTorch, from the recorded times.

    python docs/make_gains.py [--write]

Without ``--write`` the times are printed; with it, the picture is written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "benchmarks"))

from pages import engines, records  # noqa: E402  (after the path of the benchmarks)
from pages.bars import Bars, Group  # noqa: E402

RECORD = records.record("h200-whole-networks.jsonl")
PICTURE = DOCS / "images" / "gains.svg"
_SIDES = (("convwright engine", "#1f5f99"), ("torch.compile", "#f0a030"), ("PyTorch", "#9e9e9e"))


def picture(rows: Sequence[engines.Comparison], device: str) -> str:
    """Three bars for each network: how many times as fast as PyTorch, with the time of one call beside it."""
    groups = []
    for row in rows:
        times = (row.engine_us, row.compiled_us, row.own_us)
        groups.append(Group(row.name, [(row.own_us / us, f"{us / 1e3:.2f} ms") for us in times]))
    return Bars(f"Speed of one call relative to PyTorch, batch 32, {device}", _SIDES, groups).svg()


def main() -> None:
    lines = records.read(RECORD)
    rows = engines.compared(lines)
    if "--write" in sys.argv:
        PICTURE.write_text(picture(rows, lines[0]["conditions"]["device"]))
    else:
        print("\n".join(map(str, rows)))


if __name__ == "__main__":
    main()
