"""Findings as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.core.limits import limits
from convwright.tuning.choose import Verdict
from convwright.tuning.find import Findings

_UNKNOWN = "–"


def print_findings(found: Findings, console: Console, *, refusals: bool = True) -> None:
    """The problem, its limits, one row per candidate with its reason, and what was refused."""
    console.print(Text(found.problem.key, style="bold"))
    console.print(f"{found.device.key} · {_amount(found)} · mode {found.mode}")
    console.print(_table(found))
    if refusals and found.refusals:
        console.print(f"{len(found.refusals)} refused:")
        for refusal in found.refusals:
            console.print(Text(f"  {refusal.id}: {refusal.reason}", style="dim"))


def _amount(found: Findings) -> str:
    problem = found.problem
    return f"{problem.flops / 1e9:.3g} GFLOP, {problem.bytes / 1e6:.3g} MB at least"


def _table(found: Findings) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("candidate", overflow="fold", min_width=24)
    for name in ("device µs", "± %", "host µs", "pack µs", "limit µs", "share", "rel. L2", "scaled", "workspace"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("arithmetic", no_wrap=True)
    table.add_column("why", overflow="fold", min_width=20)
    for verdict in found.verdicts:
        table.add_row(*_cells(verdict, found))
    return table


def _cells(verdict: Verdict, found: Findings) -> list[str | Text]:
    finding = verdict.finding
    candidate, measured = finding.candidate, finding.measurement
    bound = limits(candidate, found.device)
    workspace = measured.workspace_bytes if measured else candidate.workspace_bytes
    cells = [candidate.id]
    if measured is None:
        cells += [_UNKNOWN] * 4 + [_figure(bound.limit_us)] + [_UNKNOWN] * 3
    else:
        share = bound.share(measured.device_us.value)
        normal = next((error for error in measured.errors if error.kind == "normal"), None)
        cells += [
            f"{measured.device_us.value:.2f}",
            f"{100 * measured.device_us.relative_halfwidth:.1f}",
            _figure(measured.host_us.value if measured.host_us else None),
            _figure(measured.prepare_us.value if measured.prepare_us else None),
            _figure(bound.limit_us),
            f"{share:.0%}" if share is not None else _UNKNOWN,
            f"{normal.relative_l2:.1e}" if normal else _UNKNOWN,
            _figure(max(error.scaled_max for error in measured.errors)) if measured.errors else _UNKNOWN,
        ]
    cells += [_bytes(workspace), candidate.arithmetic, verdict.reason]
    return [Text(cell, style="bold green" if verdict.won else "") for cell in cells]


def _figure(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.2f}"


def _bytes(value: int | None) -> str:
    if value is None:
        return _UNKNOWN
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value = value / 1000  # type: ignore[assignment]
    return f"{value:.3g} GB"
