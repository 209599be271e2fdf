"""What tuning a model found, as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.network.advice_text import UNKNOWN, names
from convwright.network.compact import compact
from convwright.network.conditions_text import compared_in, conditions_now, permitted_in
from convwright.network.tuned import Tuned, TunedProblem
from convwright.report.amounts import bytes_text, singular
from convwright.report.columns import is_empty
from convwright.report.conditions import print_conditions
from convwright.report.unstable import print_unstable
from convwright.settings import Mode
from convwright.tuning.choose import device_us

_LEFT = ("layers", "problem", "candidate")
_COLUMNS = ("layers", "problem", "calls", "candidate", "µs", "torch µs", "workspace", "search s")
# Where nothing ran; times are those of earlier searches, and shown where there are any.
_PLANNED = ("layers", "problem", "calls", "candidates", "candidate", "µs", "workspace")


def print_tuned(tuned: Tuned, console: Console) -> None:
    """One row for each distinct problem, and what it all took."""
    console.print(Text(singular(f"{tuned.device.key} · mode {tuned.mode}"), style="bold"))
    if tuned.problems:
        console.print(_table(tuned))
        found = [each.findings for each in tuned.problems]
        measured = [time for each in found for time in compared_in(each)]
        print_conditions(measured, console, permitted_in(found, conditions_now(tuned.device)))
        print_unstable(((names(each.posed.names), each.findings.unstable) for each in tuned.problems), console)
    for name, reason in tuned.left_out:
        console.print(Text(f"{name} is left out: {reason}."))
    console.print(Text(singular(_sentence(tuned))))


def _table(tuned: Tuned) -> Table:
    table, rows = Table(box=None, pad_edge=False), [_cells(each) for each in tuned.problems]
    planned = tuned.mode is Mode.HEURISTIC
    shown = [name for name in _PLANNED if name != "µs" or not is_empty(rows, name)] if planned else _COLUMNS
    for name in shown:
        if name in _LEFT:
            table.add_column(name, overflow="fold", min_width=12)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in shown))
    return table


def _cells(each: TunedProblem) -> dict[str, str]:
    found, candidate = each.findings, each.candidate
    listed, permitted = len(found.verdicts), len(each.permitted)
    return {
        "layers": names(each.posed.names),
        "problem": compact(each.posed.problem),
        "calls": str(each.posed.calls),
        "candidates": f"{listed}" if permitted == listed else f"{permitted} of {listed}",
        "candidate": candidate.id if candidate else UNKNOWN,
        "µs": _time(found.choice, found.policy),
        "torch µs": _time(found.baseline, found.policy),
        "workspace": bytes_text(each.workspace_bytes, at_most=each.workspace_is_bound),
        "search s": "known" if each.known else f"{each.seconds:.1f}",
    }


def _time(finding: Finding | None, policy: Policy) -> str:
    if finding is None or finding.measurement is None:
        return UNKNOWN
    return f"{device_us(finding, policy).value:,.1f}"


def _sentence(tuned: Tuned) -> str:
    if not tuned.problems:
        return "The model runs no convolution that is known here."
    workspace = "unknown"
    if tuned.workspace_bytes is not None:
        workspace = bytes_text(tuned.workspace_bytes, at_most=tuned.workspace_is_bound)
    if tuned.mode is Mode.HEURISTIC:
        return f"{len(tuned.problems)} distinct problems; nothing ran. Workspace that all share: {workspace}."
    said = f"{len(tuned.problems)} distinct problems, {tuned.known} of them known before, in {tuned.seconds:.1f} s"
    return f"{said}; workspace that all share: {workspace}."
