"""What ``convwright bench`` draws: checked before anything runs, since it may run for long, and drawn at the end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convwright.errors import BadInput, Refused
from convwright.settings import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from convwright.core.policy import Policy
    from convwright.report.benchmarks.result import Asked, Result
    from convwright.report.benchmarks.under_way import Run
    from convwright.suites.suite import Row
    from convwright.suites.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Plots:
    """Curves over a sweep or a suite, with more ``algorithms`` by name, and the samples of one timing."""

    curves: Path | None
    fit: Path | None
    algorithms: tuple[str, ...] | None
    sweeps: tuple[Sweep, ...]

    def check(self, rows: Sequence[Row], asked: Asked, *, runs: bool) -> None:
        """Say what cannot be drawn."""
        from convwright.wording.pictures import picture_path

        for path in (self.curves, self.fit):
            if path is not None:
                picture_path(path)
        if self.curves is not None and not self.sweeps and len(rows) == 1:
            raise BadInput(
                "--plot draws time against a size that is swept or over the problems of a suite, got one problem and "
                "got no --sweep"
            )
        if self.algorithms is not None and self.curves is None:
            raise BadInput(f"--algorithms names what --plot draws, got {','.join(self.algorithms)!r} without --plot")
        for name in self.algorithms or ():
            _check_known(name, rows, asked)
        if self.fit is not None and len(rows) != 1:
            raise BadInput(f"--plot-fit draws the timing of one problem, got {len(rows)}")
        if self.fit is not None and not runs:
            raise BadInput(
                "--plot-fit draws what was timed, and here nothing runs: a present device and mode quick or full"
            )

    def draw(self, run: Run) -> None:
        """Both, where they were asked for."""
        from convwright.report.benchmarks.curves import chart
        from convwright.report.benchmarks.result import Result
        from convwright.report.fit import fits
        from convwright.report.plot import draw_chart, draw_fits
        from convwright.wording.compact import without_size

        if self.curves is not None:
            title = run.suite.title
            for sweep in self.sweeps:
                title = without_size(title, sweep.size)
            title = f"{title}\n{run.asked}"
            results = [Result.of(record) for record in run.records]
            for name in self.algorithms or ():
                if not any(result.time_us(name) for result in results):
                    print(f"convwright: {_why_no_line(name, results, run.asked)}", file=sys.stderr)
            drawn = chart(results, self.sweeps, self.algorithms or (), title=title, caption=_caption(run))
            draw_chart(drawn, self.curves)
        if self.fit is not None:
            (row,) = run.suite.rows
            found = run.last or run.search(row.problem, lambda step, done, of: None)
            draw_fits(fits(found), self.fit, title=f"{row.problem.key}\n{run.asked}", caption=_caption_of_fit(run))


def _why_no_line(name: str, results: Sequence[Result], asked: Asked) -> str:
    if any(result.measured_like(name) for result in results):
        return f"none of {name} that was measured may be chosen, so it is not drawn"
    more = "" if not Mode(asked.mode).measures else "; more time (--budget, --mode full) may come to it"
    return f"{name} was not measured, so it is not drawn{more}"


def _check_known(name: str, rows: Sequence[Row], asked: Asked) -> None:
    """Raises what is said of a name that nothing has for any row; where it is refused, it is known."""
    from convwright.report.benchmarks.result import ANY
    from convwright.tuning.asked import named
    from convwright.tuning.find import resolved

    unknown: BadInput | None = None
    for row in rows:
        policy = resolved(asked.policy, row.problem, asked.device)
        try:
            if ANY in name:
                _check_like(name, row, asked, policy)
            else:
                named(name, row.problem, asked.device, policy)
        except Refused:
            return
        except BadInput as error:
            unknown = error
        else:
            return
    if unknown is not None:
        raise BadInput(f"--algorithms: {unknown}")


def _check_like(pattern: str, row: Row, asked: Asked, policy: Policy) -> None:
    from convwright.report.benchmarks.result import is_like
    from convwright.tuning import listing

    listed = listing.candidates(listing.direct(row.problem, asked.device, policy))
    if not any(is_like(candidate.id, pattern) for candidate in listed):
        there_are = listing.names(listed)
        raise BadInput(f"no algorithm here is called like {pattern!r}; for this problem there are {there_are}")


def _caption(run: Run) -> str:
    """Beneath the curves stands what stands beneath the table."""
    from convwright.report.benchmarks.result import Result
    from convwright.report.benchmarks.table import measured, present
    from convwright.wording.conditions_text import conditions_lines

    results = [Result.of(record) for record in run.records]
    return "\n".join(conditions_lines(measured(results), present(results)))


def _caption_of_fit(run: Run) -> str:
    """A fit is timed when it is drawn, and shows its samples itself."""
    from convwright.measuring.conditions import today
    from convwright.report.benchmarks.result import Result
    from convwright.wording.conditions_text import Measured, conditions_lines

    return "\n".join(conditions_lines([Measured((*Result.of(run.records[0]).present, *today()))]))
