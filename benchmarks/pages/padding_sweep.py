"""docs/padding-sweep.md and its drawing, made of a record of `convwright bench padding-sweep`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from pages.conditions import taken

from convwright.report.benchmarks.curves import chart
from convwright.report.benchmarks.result import Result
from convwright.report.plot import draw_chart

Line = Mapping[str, Any]
# What is drawn beside PyTorch's own call and the choice, as `--algorithms` would name it.
DRAWN = (
    "cudnn/implicit-gemm",
    "cudnn/implicit-precomp-gemm",
    "cudnn/gemm",
    "cudnn/fft",
    "cudnn/fft-tiling",
    "cudnn/engine-*",
)
_IMAGE = "images/padding-sweep.svg"
_NAME = re.compile(r"p(?P<padding>\d+)-w(?P<width>\d+)")


def page(lines: Sequence[Line]) -> str:
    """The whole page."""
    results = [Result.of(line) for line in lines]
    return (
        "\n\n".join(
            [
                "# Padding and width",
                "The first layer of a network, 3 to 32 channels, 3x3, of one image of 225 rows, under small changes of "
                "its padding and its width (the suite `padding-sweep`), forward in fp32 with TF32 off: PyTorch's own "
                "call, each of cuDNN's classic algorithms that takes the problem, cuDNN's best engine, and the choice. "
                "Times are those of the device with a hot cache, found by a full search of each problem.",
                f"![Time over the problems of the suite]({_IMAGE})",
                _said(results),
                _table(results),
                f"{taken(lines)}; `convwright bench padding-sweep "
                "--mode full --budget 3 --objective device-time --fresh --no-tf32`. A plot like this one is drawn with "
                "`--plot` and `--algorithms`, see [benchmarks](bench.md).",
            ]
        )
        + "\n"
    )


def draw(lines: Sequence[Line], folder: Path) -> None:
    """Time over the problems in their order, in a folder of images beside the page."""
    image = folder / _IMAGE
    image.parent.mkdir(exist_ok=True)
    drawn = chart(
        [Result.of(line) for line in lines], (), DRAWN,
        title="Padding and width of a first layer",
        caption=f"{lines[0]['device']}; fp32, TF32 off; device time, hot cache; bands: 95 %",
    )  # fmt: skip
    draw_chart(drawn, image)


def _said(results: Sequence[Result]) -> str:
    ratios = [result.times_faster.value for result in results if result.times_faster]
    return (
        f"Over {len(ratios)} problems the choice is {geometric_mean(ratios):.2f} times as fast as PyTorch's own call, "
        f"{min(ratios):.2f} to {max(ratios):.2f}. Of each padding the geometric means over the widths, in "
        "microseconds:"
    )


def _table(results: Sequence[Result]) -> str:
    names = ("PyTorch's own call", *(f"`{name}`" for name in DRAWN), "the choice", "times as fast")
    rows = [f"| padding | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for padding, group in _by_padding(results):
        means = [
            _mean_us(group, [result.baseline for result in group]),
            *(_mean_us(group, [name] * len(group)) for name in DRAWN),
            _mean_us(group, [result.choice for result in group]),
        ]
        ratios = [result.times_faster.value for result in group if result.times_faster]
        rows.append(f"| {padding} | {' | '.join(means)} | {geometric_mean(ratios):.2f} |")
    return "\n".join(rows)


def _by_padding(results: Sequence[Result]) -> Iterator[tuple[int, list[Result]]]:
    groups: dict[int, list[Result]] = {}
    for result in results:
        found = _NAME.fullmatch(result.name)
        if found and not result.failure:
            groups.setdefault(int(found["padding"]), []).append(result)
    yield from sorted(groups.items())


def _mean_us(group: Sequence[Result], names: Sequence[str | None]) -> str:
    """Of those that were timed, and of how many where these are not all."""
    times_us = [found.value for result, name in zip(group, names, strict=True) if (found := result.time_us(name))]
    if not times_us:
        return "–"
    some = "" if len(times_us) == len(group) else f" ({len(times_us)} of {len(group)})"
    return f"{geometric_mean(times_us):.1f}{some}"
