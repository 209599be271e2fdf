"""The picture of the first pages: engines beside `torch.compile` and PyTorch, from the recorded times.

    python docs/make_gains.py [--write]

Without ``--write`` the times are printed; with it, the picture is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "benchmarks"))

from pages import engines, records  # noqa: E402  (after the path of the benchmarks)

RECORD = records.record("h200-whole-networks.jsonl")
PICTURE = DOCS / "images" / "gains.svg"
_SIDES = (("convwright engine", "#1f5f99"), ("torch.compile", "#f0a030"), ("PyTorch", "#9e9e9e"))
_LEFT, _RIGHT, _TOP, _BAR, _GAP, _WIDTH = 225, 70, 78, 13, 12, 850


def picture(rows: Sequence[engines.Comparison], device: str) -> str:
    """Three bars for each network: how many times as fast as PyTorch, with the time of one call beside it."""
    height = _TOP + len(rows) * (3 * _BAR + _GAP) + 34
    fastest = max(row.own_us / min(row.engine_us, row.compiled_us) for row in rows)
    scale = (_WIDTH - _LEFT - _RIGHT) / fastest
    title = f"Speed of one call relative to PyTorch, batch 32, {device}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#212121">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="{_WIDTH / 2:.0f}" y="26" font-size="16" font-weight="bold" text-anchor="middle">'
            f"{escape(title)}</text>",
            *_legend(),
            *(part for number, row in enumerate(rows) for part in _group(row, _top_of(number), scale)),
            *_axis(fastest, scale, height - 30),
            "</svg>\n",
        ]
    )


def _top_of(number: int) -> int:
    return _TOP + number * (3 * _BAR + _GAP)


def _legend() -> Iterator[str]:
    for number, (name, colour) in enumerate(_SIDES):
        x = _LEFT + 160 * number
        yield f'<rect x="{x}" y="42" width="14" height="14" fill="{colour}"/>'
        yield f'<text x="{x + 20}" y="54">{name}</text>'


def _group(row: engines.Comparison, top: int, scale: float) -> Iterator[str]:
    yield f'<text x="{_LEFT - 10}" y="{top + 1.5 * _BAR + 4:.1f}" text-anchor="end">{escape(row.name)}</text>'
    times = (row.engine_us, row.compiled_us, row.own_us)
    for number, ((_, colour), time_us) in enumerate(zip(_SIDES, times, strict=True)):
        y, width = top + number * _BAR, scale * row.own_us / time_us
        yield f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 1}" fill="{colour}"/>'
        yield f'<text x="{_LEFT + width + 5:.1f}" y="{y + 10}" font-size="11">{time_us / 1e3:.2f} ms</text>'


def _axis(fastest: float, scale: float, y: int) -> Iterator[str]:
    yield f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#212121"/>'
    for ratio in range(int(fastest) + 1):
        x = _LEFT + ratio * scale
        yield f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}" stroke="#212121"/>'
        yield f'<text x="{x:.1f}" y="{y + 20}" text-anchor="middle">{ratio}x</text>'


def main() -> None:
    lines = records.read(RECORD)
    rows = engines.compared(lines)
    if "--write" in sys.argv:
        PICTURE.write_text(picture(rows, lines[0]["conditions"]["device"]))
    else:
        print("\n".join(map(str, rows)))


if __name__ == "__main__":
    main()
