"""The table of layers of well-known networks on a CPU, made of the record of `zoo_cpu.py`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pages.records import Lines

from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.report.benchmarks.table import geometric_mean

_KINDS = ("1x1", "3x3", "larger filters", "groups", "1x1 images")
_OUTCOMES = ("fast", "same", "slow", "ambiguous")


def table(lines: Lines) -> str:
    """Layers of networks on a CPU, by batch and kind: how many came out how, and how many times faster they are."""
    batches = sorted({line["batch"] for line in lines})
    groups = [(f"{batch}", kind, [one for one in lines if (one["batch"], _kind(one)) == (batch, kind)])
              for batch in batches for kind in _KINDS]  # fmt: skip
    groups += [(f"{batch}", "**all**", [line for line in lines if line["batch"] == batch]) for batch in batches]
    head = (
        "| batch | kind | layers | FAST | SAME | SLOW | AMBIGUOUS | times faster, geometric mean | best | worst |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    body = "\n".join(_zoo_row(*group) for group in groups if group[2])
    known, words = lines[0]["conditions"], ("threads", "torch", "python", "system")
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in words)])
    return (
        f"{head}\n{body}\n\n{where}; `cw.conv2d` beside `F.conv2d`, fp32, NCHW, hot cache, in a process that only "
        f"read what another had found in mode {lines[0]['search_mode']}, on other inputs."
        f"{_slow(lines)}{_disturbed(lines)}"
    )


def _slow(lines: Lines) -> str:
    """Where PyTorch's own call is the choice and its time is not reached, what the look-up takes is what is missing."""
    slow = [line for line in lines if line["outcome"] == "slow"]
    own = [line for line in slow if line["choice"] == "torch/default"]
    if not own:
        return ""
    lost = [line["ours_us"]["value"] - line["torch_us"]["value"] for line in own]
    longest = max(line["torch_us"]["value"] for line in own)
    return (
        f" In {len(own)} of the {len(slow)} SLOW rows PyTorch's own call is what was chosen, takes at most "
        f"{longest:.0f} µs, and finding that out {min(lost):.1f} to {max(lost):.1f} µs."
    )


def _disturbed(lines: Lines) -> str:
    own = sum(line["outcome"] == "fast" and line["choice"] == "torch/default" for line in lines)
    return f" {own} of the FAST are PyTorch's own call on both sides: other work disturbed them." if own else ""


def _kind(line: dict[str, Any]) -> str:
    problem = ConvProblem.parse(line["problem"])
    if problem.groups > 1:
        return "groups"
    if problem.x.shape[2:] == (1, 1):
        return "1x1 images"
    return {1: "1x1", 3: "3x3"}.get(problem.taps[0], "larger filters")


def _zoo_row(batch: str, kind: str, lines: Lines) -> str:
    ratios = [line["ratio"] for line in lines]
    faster = [Interval(1 / ratio["value"], 1 / ratio["high"], 1 / ratio["low"]) for ratio in ratios]
    counts, mean = Counter(line["outcome"] for line in lines), geometric_mean(faster)
    assert mean is not None
    values = [ratio.value for ratio in faster]
    cells = [batch, kind, str(len(lines)), *(str(counts[outcome]) for outcome in _OUTCOMES)]
    cells += [f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})", f"{max(values):.2f}", f"{min(values):.2f}"]
    return f"| {' | '.join(cells)} |"
