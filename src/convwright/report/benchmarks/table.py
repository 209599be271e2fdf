"""A benchmark's results as a table for people, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, fsum, isfinite, log
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.measuring.conditions import Conditions
from convwright.report.benchmarks.result import Outcome, Result
from convwright.report.words.amounts import figure, microseconds, percent_text
from convwright.report.words.columns import fitting, is_empty, least_width
from convwright.report.words.conditions import print_conditions
from convwright.report.words.groups import grouped
from convwright.report.words.unstable import print_unstable
from convwright.wording.compact import compact
from convwright.wording.conditions_text import Measured

_UNKNOWN = "–"
_COLUMNS = (
    "name", "problem", "PyTorch µs", "winner", "µs", "times faster", "95 %", "outcome", "first candidate", "workspace",
    "limit µs", "share", "rel. L2", "PyTorch's",
)  # fmt: skip
_FOLDED = ("name", "problem", "winner", "first candidate")
_DECISIVE = ("name", "PyTorch µs", "winner", "µs", "times faster", "outcome", "first candidate", "workspace")
_KEPT = ("name", "outcome", "first candidate", "winner", "times faster")
_WIDE = 150
_STYLES = {Outcome.FASTER: "bold green", Outcome.SLOWER: "red", Outcome.AMBIGUOUS: "yellow"}


@dataclass(frozen=True, slots=True)
class Summary:
    """How many rows came out how, and the geometric mean of how many times faster the choices are."""

    outcomes: dict[Outcome, int]
    failed: int
    not_measured: int
    times_faster: Interval | None
    worst: Result | None

    @classmethod
    def of(cls, results: Sequence[Result]) -> Summary:
        ratios = [result.times_faster for result in results if result.times_faster is not None]
        failed = sum(result.failure is not None for result in results)
        return cls(
            {outcome: sum(result.outcome is outcome for result in results) for outcome in Outcome},
            failed,
            len(results) - len(ratios) - failed,
            geometric_mean(ratios),
            min(results, key=_ratio) if ratios else None,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **{outcome.value: count for outcome, count in self.outcomes.items()},
            "failed": self.failed,
            "not_measured": self.not_measured,
            "times_faster": None if self.times_faster is None else asdict(self.times_faster),
            "worst": None if self.worst is None else self.worst.name,
        }

    def __str__(self) -> str:
        if self.times_faster is None or self.worst is None:
            said = "Nothing was compared with PyTorch's own call."
        else:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
            mean = self.times_faster
            worst = f"{_ratio(self.worst):.3f}"
            worst += f" ({self.worst.name})" if self.worst.choice != self.worst.baseline else ", PyTorch's own call"
            said = (
                f"{counts}; geometric mean {mean.value:.3f} times as fast as PyTorch's own calls, "
                f"{mean.low:.3f} to {mean.high:.3f}{_reservation(self.outcomes[Outcome.AMBIGUOUS])}; worst {worst}."
            )
        rest = [(self.not_measured, "not measured"), (self.failed, "failed")]
        return " ".join([said, *(f"{count} {what}." for count, what in rest if count)])


def _reservation(ambiguous: int) -> str:
    """What the geometric mean is worth where rows are ambiguous."""
    if not ambiguous:
        return ""
    rows = "1 ambiguous row counts" if ambiguous == 1 else f"{ambiguous} ambiguous rows count"
    return f", in which {rows} as measured, so that it is not sure"


def geometric_mean(ratios: Sequence[Interval]) -> Interval | None:
    """Of the ratios and of the ends of their intervals; None of none.

    >>> geometric_mean([Interval(1.0, 0.5, 2.0), Interval(4.0, 2.0, 8.0)])
    Interval(value=2.0, low=1.0, high=4.0)
    """
    if not ratios:
        return None
    return Interval(*(_mean([getattr(ratio, end) for ratio in ratios]) for end in ("value", "low", "high")))


def _mean(values: Sequence[float]) -> float:
    if min(values) <= 0:
        return 0.0
    return exp(fsum(map(log, values)) / len(values)) if all(map(isfinite, values)) else float("inf")


def _ratio(result: Result) -> float:
    return result.times_faster.value if result.times_faster is not None else float("inf")


def print_results(results: Sequence[Result], console: Console) -> None:
    """One row for each problem, what is unstable or was not measured and why, and the summary."""
    console.print(_table(results, console.width))
    print_conditions(measured(results), console, present(results))
    print_unstable(((result.name, result.unstable) for result in results), console)
    for line in grouped((r.name, r.remark) for r in results if r.remark is not None and r.unstable is None):
        console.print(Text(line, style="dim"), soft_wrap=True)
    console.print(Text(str(Summary.of(results))), soft_wrap=True)


def measured(results: Sequence[Result]) -> list[Measured]:
    """What all times of the table were measured under."""
    return [each for result in results for each in result.measured]


def present(results: Sequence[Result]) -> Conditions:
    """What held for a table of which nothing was measured."""
    return next((result.present for result in results if result.present), ())


def _table(results: Sequence[Result], width: int) -> Table:
    """All columns where there is room for them and something in them, else those that decide."""
    rows = [_cells(result) for result in results]
    empty = {name for name in _COLUMNS if name != "name" and is_empty(rows, name)}
    if all(_is_named_by_text(result) for result in results):
        empty.add("problem")
    known = [name for name in _COLUMNS if (width >= _WIDE or name in _DECISIVE) and name not in empty]
    shown = fitting(rows, known, kept=_KEPT, folded=_FOLDED, width=width)
    table = Table(box=None, pad_edge=False)
    for name in shown:
        if name in _FOLDED:
            table.add_column(name, overflow="fold", min_width=least_width(width))
        else:
            table.add_column(name, justify="left" if name == "outcome" else "right", no_wrap=True)
    for result, row in zip(results, rows, strict=True):
        style = _STYLES.get(result.outcome, "") if result.outcome is not None else ""
        table.add_row(*(Text(row[name], style=style) for name in shown))
    return table


def _is_named_by_text(result: Result) -> bool:
    try:
        return ConvProblem.parse(result.name).key == result.problem
    except BadInput:
        return False


def _cells(result: Result) -> dict[str, str]:
    problem = compact(ConvProblem.parse(result.problem))
    cells = dict.fromkeys(_COLUMNS, _UNKNOWN) | {"name": result.name, "problem": problem}
    if result.failure is not None:
        return cells | {"winner": f"failed: {result.failure}"}
    torchs, ours, ratio = result.time_us(result.baseline), result.time_us(result.choice), result.times_faster
    if torchs is not None:
        cells["PyTorch µs"] = _time(torchs)
    if ours is not None and result.choice is not None:
        cells |= {"winner": result.choice, "µs": _time(ours)}
    if ratio is not None:
        cells |= {"times faster": f"{ratio.value:.2f}", "outcome": str(result.outcome)}
        if result.choice != result.baseline:
            cells["95 %"] = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return cells | {
        "first candidate": result.first or _UNKNOWN,
        "workspace": result.workspace or _UNKNOWN,
        "limit µs": _UNKNOWN if result.limit_us is None else figure(result.limit_us),
        "share": _UNKNOWN if result.share is None else f"{result.share:.0%}",
        "rel. L2": _UNKNOWN if result.error is None else f"{result.error:.1e}",
        "PyTorch's": _UNKNOWN if result.torch_error is None else f"{result.torch_error:.1e}",
    }


def _time(interval: Interval) -> str:
    return f"{microseconds(interval.value)} ± {percent_text(interval)} %"
