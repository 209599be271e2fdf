"""docs/gtc.md, made of the record of `gtc.py`: every algorithm for every problem, and who is fastest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pages.bars import Bars, Group
from pages.conditions import taken

from convwright import suites
from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.report.words.amounts import bytes_text, figure

Line = Mapping[str, Any]
_LAYOUTS = ("nchw", "nhwc")
_SUITE = "gtc"
_UNKNOWN = "–"
_IMAGE = "images/gtc.svg"
_COLOURS = ("#1f5f99", "#f0a030", "#4c9f70")


@dataclass(frozen=True, slots=True)
class _Best:
    """The fastest choice of both layouts, and PyTorch's own time in the layout that suits it best."""

    us: float
    layout: str
    algorithm: str
    own: tuple[float, str]


def page(lines: Sequence[Line]) -> str:
    """The whole page."""
    good, last = [line for line in lines if not line["failure"]], _last(lines)
    names = list(dict.fromkeys(line["name"] for line in good))
    settings = list(dict.fromkeys(line["setting"] for line in good))
    shown = f"![Times as fast as PyTorch]({_IMAGE})"
    parts = [_head(good), "## Who is fastest", shown, _overview(_bests(last))]
    for name in names:
        parts.append(f"## {name}\n\n`{_text(name)}`")
        for setting in settings:
            both = {layout: last[name, setting, layout] for layout in _LAYOUTS if (name, setting, layout) in last}
            if both:
                parts += [f"### {setting}, {name}", _table(both), *_untimed(both), *_refused(both)]
    return "\n\n".join(parts) + "\n"


def _last(lines: Sequence[Line]) -> dict[tuple[str, str, str], Line]:
    """A problem that was searched again counts as it was last."""
    return {(line["name"], line["setting"], line["layout"]): line for line in lines if not line["failure"]}


def _head(lines: Sequence[Line]) -> str:
    budgets = " or ".join(f"{budget:g}" for budget in sorted({line["budget_s"] for line in lines}))
    return (
        "# Every algorithm\n\n"
        "The convolutions of NVIDIA's talk on best practices with cuDNN (the suite `gtc`), and every way of computing "
        "them that is known here: cuDNN's algorithms and engines, each by its fastest configuration, PyTorch's own "
        "call (`torch/default`), our kernels, and rewritten problems where they beat that call.\n\n"
        "Times are those of the device in microseconds, with half the width of their 95 % intervals, with a hot cache, "
        "and without packing weights, which is done once where they do not change. "
        "Errors are the relative L2 error on normal data, and in brackets the largest of any element on four kinds of "
        "data, in units of the dtype's roundoff, where they were looked at. A candidate may be chosen if its errors "
        "are at most twice those of PyTorch's own call; what may not, or whose errors were not looked at, is marked "
        "with a ×. "
        f"Each table is of a [full search](finding.md) of {budgets} s.\n\n"
        f"{taken(lines)}."
    )


def _text(name: str) -> str:
    try:
        return next((row.text for row in suites.load(_SUITE).rows if row.name == name), name)
    except BadInput:
        return name


def _overview(best: Mapping[tuple[str, str], _Best]) -> str:
    rows = [
        [name, setting, each.own[1].upper(), figure(each.own[0]), _named(each.algorithm)[0], each.layout.upper(),
         figure(each.us), f"{each.own[0] / each.us:.2f}"]
        for (name, setting), each in best.items()
    ]  # fmt: skip
    head = ["problem", "setting", "PyTorch", "µs", "fastest", "layout", "µs", "times as fast"]
    return _markdown(head, rows)


def _bests(last: Mapping[tuple[str, str, str], Line]) -> dict[tuple[str, str], _Best]:
    found = dict[tuple[str, str], _Best]()
    for name, setting in dict.fromkeys((name, setting) for name, setting, _ in last):
        both = {layout: last[name, setting, layout] for layout in _LAYOUTS if (name, setting, layout) in last}
        own = min((_time_us(line["algorithms"].get(line["baseline"])), layout) for layout, line in both.items())
        us, layout, algorithm = min(
            (_time_us(row), layout, algorithm)
            for layout, line in both.items()
            for algorithm, row in line["algorithms"].items()
            if row["id"] == line["choice"]
        )
        found[name, setting] = _Best(us, layout, algorithm, own)
    return found


def draw(lines: Sequence[Line], folder: Path) -> None:
    """How many times as fast as PyTorch the fastest is: a group of bars for each problem."""
    last = _last(lines)
    best, settings = _bests(last), list(dict.fromkeys(setting for _, setting, _ in last))
    groups = []
    for name in dict.fromkeys(name for name, _ in best):
        ratios = [best[name, setting].own[0] / best[name, setting].us for setting in settings]
        groups.append(Group(name, [(ratio, f"{ratio:.1f}x") for ratio in ratios]))
    device = lines[0]["conditions"]["device"]
    title = f"Times as fast as PyTorch, each in its better layout, {device}"
    (folder / _IMAGE).write_text(Bars(title, list(zip(settings, _COLOURS, strict=False)), groups).svg())


def _table(both: Mapping[str, Line]) -> str:
    def first(name: str) -> tuple[float, str]:
        return min(_time_us(line["algorithms"].get(name)) for line in both.values()), name

    names = sorted(_shown(both), key=first)
    head = ["algorithm", "arithmetic"]
    for layout in both:
        head += [f"{layout.upper()}, µs", "workspace", "error"]
    rows = []
    for name in names:
        cells = list(_named(name))
        for line in both.values():
            row = line["algorithms"].get(name)
            known = row is not None and row["time_us"] is not None
            cells += (
                [_time(row) + ("" if row["allowed"] else " ×"), bytes_text(row["workspace_bytes"]), _error(row)]
                if known
                else ["–"] * 3
            )
        rows.append(cells)
    return _markdown(head, rows)


def _shown(both: Mapping[str, Line]) -> set[str]:
    """What was timed; of rewritten problems what is faster than PyTorch's own call."""
    shown = set()
    for line in both.values():
        own_us = _time_us(line["algorithms"].get(line["baseline"]))
        for name, row in line["algorithms"].items():
            if row["time_us"] is not None and ("(" not in name or _time_us(row) < own_us):
                shown.add(name)
    return shown


def _untimed(both: Mapping[str, Line]) -> list[str]:
    """What there is and was not timed, with the reasons."""
    said = []
    for layout, line in both.items():
        untimed = {
            _named(name)[0].strip("`"): row["why"]
            for name, row in line["algorithms"].items()
            if row["time_us"] is None and "(" not in name
        }
        if untimed:
            said.append(f"{layout.upper()}, not timed: {_by_reason(untimed)}")
    return said


def _refused(both: Mapping[str, Line]) -> list[str]:
    return [
        f"{layout.upper()}, refused: {_by_reason(line['refused'])}" for layout, line in both.items() if line["refused"]
    ]


def _named(algorithm: str) -> tuple[str, str]:
    """Its name as code, and its arithmetic.

    >>> _named("pad-c(8, cudnn/engine-48), tf32")
    ('`pad-c(8, cudnn/engine-48)`', 'tf32')
    """
    name, _, arithmetic = algorithm.rpartition(", ")
    return f"`{name}`", arithmetic


def _by_reason(reasons: Mapping[str, str]) -> str:
    ordered = sorted(reasons.items(), key=lambda entry: entry[1])
    groups = groupby(ordered, key=lambda entry: entry[1])
    return "; ".join(f"{', '.join(f'`{name}`' for name, _ in group)} ({reason})" for reason, group in groups) + "."


def _time_us(row: Mapping[str, Any] | None) -> float:
    return float("inf") if row is None or row["time_us"] is None else float(row["time_us"]["value"])


def _time(row: Mapping[str, Any] | None) -> str:
    if row is None or row["time_us"] is None:
        return _UNKNOWN
    time_us = Interval(*(float(row["time_us"][end]) for end in ("value", "low", "high")))
    return f"{figure(time_us.value)} ± {figure((time_us.high - time_us.low) / 2)}"


def _error(row: Mapping[str, Any]) -> str:
    if row["relative_l2"] is None:
        return _UNKNOWN
    scaled = "" if row["scaled_max"] is None else f" ({float(row['scaled_max']):.3g})"
    return f"{float(row['relative_l2']):.1e}{scaled}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
