"""docs/gtc.md, made of the record of `gtc.py`: every algorithm for every problem, and who is fastest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from pages.conditions import taken

from convwright import suites
from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.report.words.amounts import bytes_text, figure

Line = Mapping[str, Any]
_LAYOUTS = ("nchw", "nhwc")
_SUITE = "gtc"
_UNKNOWN = "–"


def page(lines: Sequence[Line]) -> str:
    """The whole page."""
    good = [line for line in lines if not line["failure"]]
    # A problem that was searched again counts as it was last.
    last = {(line["name"], line["setting"], line["layout"]): line for line in good}
    names = list(dict.fromkeys(line["name"] for line in good))
    settings = list(dict.fromkeys(line["setting"] for line in good))
    parts = [_head(good), "## Who is fastest", _overview(last, names, settings)]
    for name in names:
        parts.append(f"## {name}\n\n`{_text(name)}`")
        for setting in settings:
            both = {layout: last[name, setting, layout] for layout in _LAYOUTS if (name, setting, layout) in last}
            if both:
                parts += [f"### {setting}, {name}", _table(both), *_untimed(both), *_refused(both)]
    return "\n\n".join(parts) + "\n"


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


def _overview(last: Mapping[tuple[str, str, str], Line], names: Iterable[str], settings: Sequence[str]) -> str:
    rows = []
    for name in names:
        for setting in settings:
            cells = [cell for layout in _LAYOUTS for cell in _winner(last.get((name, setting, layout)))]
            if any(cell != _UNKNOWN for cell in cells):
                rows.append([name, setting, *cells])
    head = ["problem", "setting"]
    for layout in _LAYOUTS:
        head += [f"PyTorch, {layout.upper()}", f"fastest, {layout.upper()}", "µs"]
    return _markdown(head, rows)


def _winner(line: Line | None) -> list[str]:
    """PyTorch's time, what was chosen, and its time."""
    if line is None:
        return [_UNKNOWN] * 3
    by_id = {row["id"]: (name, row) for name, row in line["algorithms"].items()}
    own = line["algorithms"].get(line["baseline"])
    name, row = by_id.get(line["choice"], (_UNKNOWN, None))
    return [_time(own), " ".join(_named(name)) if row else name, _time(row)]


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
