"""docs/few-channels.md and its drawings, made of the record of `few_channels.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.retiming import faster, interval
from pages.conditions import taken

from convwright.report.plot import Chart, Curve, draw_chart

Line = Mapping[str, Any]
FOLDER = "images"
_SIDES = {"ours": ("cw.conv2d", 0), "torch": ("PyTorch", 1)}
_STYLES = {"forward": ("-", "o"), "forward and backward": ("--", "s")}
# Of each figure its heading, and what its horizontal axis shows; None where it is a table and no drawing.
FIGURES: dict[str, tuple[str, str | None]] = {
    "layers": ("Layers with bias and ReLU", None),
    "size": ("One channel in and out", "height and width of the image"),
    "equal channels": ("As many channels out as in", "channels of input and output, images of 256 × 256"),
    "input channels": ("One output", "channels of the input, images of 512 × 512, dilation 10"),
}


def page(lines: Sequence[Line]) -> str:
    """The whole page."""
    known = lines[0]["conditions"]
    head = (
        "# Few channels\n\n"
        "3x3 convolutions of one image with few channels, as mixed-scale dense networks have them, by `cw.conv2d` "
        "and by PyTorch's `F.conv2d` (and `F.relu`): fp32 with TF32 off, with a bias, alone and with the gradients of "
        "input, weight and bias. Times are those of the device in microseconds with their 95 % intervals, which the "
        f"drawings show as bands; the cache is {known['cache']}. Both sides took turns in one run, on data that no "
        "search had seen. Errors are the largest relative L2 error of what a call gives, on normal data, beside "
        "float64; that of a bias's gradient, which is one number where there is one output channel, is mostly chance, "
        "since the terms of its sum cancel.\n\n"
        f"{taken(lines)}; `python benchmarks/few_channels.py`."
    )
    parts = [head]
    for figure, rows in _figures(lines):
        heading, axis = FIGURES[figure]
        drawing = [] if axis is None else [f"![{heading}]({FOLDER}/{_file(figure)})"]
        parts += [f"## {heading}", *drawing, _table(rows)]
    return "\n\n".join(parts) + "\n"


def draw(lines: Sequence[Line], folder: Path) -> None:
    """One drawing for each figure, in a folder of images beside the page."""
    images = folder / FOLDER
    images.mkdir(exist_ok=True)
    for figure, rows in _figures(lines):
        heading, axis = FIGURES[figure]
        if axis is None:
            continue
        curves = tuple(
            Curve(
                f"{name}, {what}", tuple(float(row["at"]) for row in rows if row["what"] == what),
                tuple(interval(row["us"][side]) for row in rows if row["what"] == what), colour, line, marker,
            )
            for what, (line, marker) in _STYLES.items()
            for side, (name, colour) in _SIDES.items()
        )  # fmt: skip
        known = rows[0]["conditions"]
        caption = f"{known['device']}; fp32, TF32 off; device time, {known['cache']} cache; bands: 95 %"
        draw_chart(Chart(heading, axis, curves, logarithmic=True, caption=caption), images / _file(figure))


def _figures(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    for figure in FIGURES:
        rows = [line for line in lines if line["figure"] == figure]
        if rows:
            yield figure, sorted(rows, key=lambda row: row["at"])


def _file(figure: str) -> str:
    return f"few-channels-{figure.replace(' ', '-')}.svg"


def _table(rows: Iterable[Line]) -> str:
    head = (
        "| problem | | `cw.conv2d` | PyTorch | times as fast | its errors | PyTorch's |\n|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *map(_row, rows)])


def _row(line: Line) -> str:
    ratio, errors = faster(line["ratio"]), line["relative_l2"]
    times = " | ".join(_time(line["us"][side]) for side in _SIDES)
    return (
        f"| `{line['problem']}` | {line['what']} | {times} | {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) | "
        f"{errors['ours']:.1e} | {errors['torch']:.1e} |"
    )


def _time(data: Mapping[str, Any]) -> str:
    read = interval(data)
    return f"{read.value:.1f} ± {(read.high - read.low) / 2:.1f}"
