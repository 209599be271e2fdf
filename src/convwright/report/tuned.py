"""What tuning a model found, as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.network.advice_text import UNKNOWN, names
from convwright.network.compact import compact
from convwright.network.tuned import Tuned, TunedProblem
from convwright.report.amounts import bytes_text, singular
from convwright.report.unstable import print_unstable
from convwright.tuning.choose import device_us

_LEFT = ("layers", "problem", "candidate")
_COLUMNS = ("layers", "problem", "calls", "candidate", "µs", "torch µs", "workspace", "search s")


def print_tuned(tuned: Tuned, console: Console) -> None:
    """One row for each distinct problem, and what it all took."""
    console.print(Text(singular(f"{tuned.device.key} · mode {tuned.mode}"), style="bold"))
    if tuned.problems:
        console.print(_table(tuned))
        print_unstable(((names(each.posed.names), each.findings.unstable) for each in tuned.problems), console)
    for name, reason in tuned.left_out:
        console.print(Text(f"{name} is left out: {reason}."))
    console.print(Text(singular(_sentence(tuned))))


def _table(tuned: Tuned) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        if name in _LEFT:
            table.add_column(name, overflow="fold", min_width=12)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for each in tuned.problems:
        table.add_row(*(Text(cell) for cell in _cells(each)))
    return table


def _cells(each: TunedProblem) -> tuple[str, ...]:
    found, candidate = each.findings, each.candidate
    times = [
        f"{device_us(finding, found.policy).value:,.1f}" if finding is not None and finding.measurement else UNKNOWN
        for finding in (found.choice, found.baseline)
    ]
    return (
        names(each.posed.names),
        compact(each.posed.problem),
        str(each.posed.calls),
        candidate.id if candidate else UNKNOWN,
        *times,
        bytes_text(each.workspace_bytes),
        "known" if each.known else f"{each.seconds:.1f}",
    )


def _sentence(tuned: Tuned) -> str:
    if not tuned.problems:
        return "The model runs no convolution that is known here."
    workspace = "unknown" if tuned.workspace_bytes is None else bytes_text(tuned.workspace_bytes)
    said = f"{len(tuned.problems)} distinct problems, {tuned.known} of them known before, in {tuned.seconds:.1f} s"
    return f"{said}; workspace that all share: {workspace}."
