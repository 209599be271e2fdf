"""A benchmark's results as a table, with a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, fsum, isfinite, log
from typing import Any

from rich.console import Console
from rich.text import Text

from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.measuring.conditions import Conditions
from convwright.report.benchmarks.result import Outcome, Result
from convwright.report.words.amounts import figure, microseconds, percent_text
from convwright.report.words.conditions import print_conditions
from convwright.report.words.groups import grouped
from convwright.report.words.sheet import Sheet
from convwright.report.words.unstable import print_unstable
from convwright.wording.compact import compact, without_direction
from convwright.wording.conditions_text import Measured

_UNKNOWN = "–"
_DIRECTION = "direction"
_COLUMNS = (
    "name", _DIRECTION, "problem", "PyTorch µs", "winner", "µs", "times faster", "95 %", "rounds", "outcome",
    "first candidate", "workspace", "limit µs", "share", "rel. L2", "PyTorch's",
)  # fmt: skip
_FOLDED = ("name", "problem", "winner", "first candidate")
_DECISIVE = (
    "name",
    _DIRECTION,
    "PyTorch µs",
    "winner",
    "µs",
    "times faster",
    "95 %",
    "rounds",
    "outcome",
    "first candidate",
    "workspace",
)
_KEPT = (
    "name", _DIRECTION, "outcome", "first candidate", "winner", "times faster", "µs", "PyTorch µs", "95 %", "rounds",
)  # fmt: skip
_WIDE = 150
_STYLES = {Outcome.FASTER: "bold green", Outcome.SLOWER: "red", Outcome.AMBIGUOUS: "yellow"}


@dataclass(frozen=True, slots=True)
class Summary:
    """The number of rows with each outcome, and the geometric mean of ``times_faster``."""

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
    """A remark on the geometric mean if rows are ambiguous."""
    if not ambiguous:
        return ""
    rows = "1 ambiguous row counts" if ambiguous == 1 else f"{ambiguous} ambiguous rows count"
    return f" (uncertain: {rows} as measured)"


def geometric_mean(ratios: Sequence[Interval]) -> Interval | None:
    """The geometric mean of the ratios and of each end of their intervals; None without ratios.

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
    """Print one row for each problem, what is unstable or was not measured and why, and the summary."""
    console.print(results_sheet(results, console.width).table(console.width))
    print_conditions(measured(results), console, present(results))
    tolerated = any(result.tolerates_load for result in results)
    print_unstable([result.unstable for result in results], console, noun="row", tolerated=tolerated)
    for line in grouped((r.name, r.remark) for r in results if r.remark is not None and r.unstable is None):
        console.print(Text(line, style="dim"))
    console.print(Text(str(Summary.of(results))))


def measured(results: Sequence[Result]) -> list[Measured]:
    """The conditions of all times of the table."""
    return [each for result in results for each in result.measured]


def present(results: Sequence[Result]) -> Conditions:
    """The conditions for a table without measurements."""
    return next((result.present for result in results if result.present), ())


def results_sheet(results: Sequence[Result], width: int) -> Sheet:
    """The table. Below a certain width it has only the most important columns."""
    rows = tuple(_cells(result) for result in results)
    left_out = {"problem"} if all(_is_named_by_text(result) for result in results) else set[str]()
    if len({row[_DIRECTION] for row in rows}) == 1:
        left_out.add(_DIRECTION)
    else:
        rows = tuple(row | {"problem": without_direction(row["problem"])} for row in rows)
    known = tuple(name for name in _COLUMNS if (width >= _WIDE or name in _DECISIVE) and name not in left_out)
    styles = tuple("" if result.outcome is None else _STYLES.get(result.outcome, "") for result in results)
    return Sheet(known, rows, _KEPT, _FOLDED, ("outcome", _DIRECTION), styles)


def results_data(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One flat row for each problem, for other programs."""
    return [_data(result) for result in results]


def _data(result: Result) -> dict[str, Any]:
    torchs, ours = result.time_us(result.baseline), result.time_us(result.choice)
    ratio = result.times_faster
    return {
        "name": result.name,
        "problem": result.problem,
        "torch": result.baseline,
        "torch_us": None if torchs is None else torchs.value,
        "torch_low_us": None if torchs is None else torchs.low,
        "torch_high_us": None if torchs is None else torchs.high,
        "winner": result.choice,
        "winner_us": None if ours is None else ours.value,
        "winner_low_us": None if ours is None else ours.low,
        "winner_high_us": None if ours is None else ours.high,
        "times_faster": None if ratio is None else ratio.value,
        "times_faster_low": None if ratio is None else ratio.low,
        "times_faster_high": None if ratio is None else ratio.high,
        "rounds": result.rounds,
        "outcome": None if result.outcome is None else str(result.outcome),
        "limit_us": result.limit_us,
        "relative_l2": result.error,
        "torch_relative_l2": result.torch_error,
        "unstable": result.unstable is not None,
        "failure": result.failure,
    }


def _is_named_by_text(result: Result) -> bool:
    try:
        return ConvProblem.parse(result.name).key == result.problem
    except BadInput:
        return False


def _cells(result: Result) -> dict[str, str]:
    problem = ConvProblem.parse(result.problem)
    cells = dict.fromkeys(_COLUMNS, _UNKNOWN)
    cells |= {"name": result.name, _DIRECTION: str(problem.direction), "problem": compact(problem)}
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
            cells |= {"95 %": f"{ratio.low:.2f} to {ratio.high:.2f}", "rounds": str(result.rounds or _UNKNOWN)}
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
