"""Predictions as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.api.predicting import Predictions
from convwright.naming import singular
from convwright.prediction.predicted_choice import PredictedVerdict
from convwright.report.words.amounts import bytes_text, figure, interval_text
from convwright.report.words.columns import fitting, is_empty, least_width

_COLUMNS = ("candidate", "µs", "90 % within", "learned", "memory", "workspace", "energy mJ", "W", "why")
_KEPT, _FOLDED = ("candidate", "µs", "why"), ("candidate", "why")
_UNKNOWN = "–"


def print_predictions(found: Predictions, console: Console, *, refusals: bool = True) -> None:
    """One row for each candidate that is allowed, the others in a sentence each, and which model predicted them."""
    console.print(Text(found.problem.key, style="bold"))
    console.print(singular(f"{found.device.key} · {len(found.verdicts)} candidates · predicted, nothing ran"))
    shown = [verdict for verdict in found.verdicts if verdict.allowed]
    rows = [_cells(verdict) for verdict in shown]
    known = [name for name in _COLUMNS if not is_empty(rows, name)]
    table = Table(box=None, pad_edge=False)
    names = fitting(rows, known, kept=_KEPT, folded=_FOLDED, width=console.width)
    for name in names:
        if name in _FOLDED:
            table.add_column(name, overflow="fold", min_width=least_width(console.width))
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for verdict, row in zip(shown, rows, strict=True):
        table.add_row(*(Text(row[name], style="bold green" if verdict.won else "") for name in names))
    console.print(table)
    console.print(Text(str(found.model), style="dim"))
    others = [verdict for verdict in found.verdicts if not verdict.allowed]
    if others:
        console.print(f"{len(others)} not allowed:")
        for verdict in others:
            console.print(Text(f"  {verdict.predicted.candidate.id}: {verdict.reason}", style="dim"))
    if refusals and found.refusals:
        console.print(f"{len(found.refusals)} refused:")
        for refusal in found.refusals:
            console.print(Text(f"  {refusal.id}: {refusal.reason}", style="dim"))


def _cells(verdict: PredictedVerdict) -> dict[str, str]:
    row = verdict.predicted
    prediction, candidate = row.prediction, row.candidate
    cells = dict.fromkeys(_COLUMNS, _UNKNOWN) | {
        "candidate": candidate.id,
        "memory": bytes_text(row.memory_bytes),
        "workspace": bytes_text(candidate.workspace_bytes, at_most=candidate.workspace_is_bound),
        "why": verdict.reason,
    }
    if prediction is None:
        return cells
    cells |= {
        "µs": figure(prediction.time_us.value),
        "90 % within": interval_text(prediction.time_us),
        "learned": "yes" if prediction.in_domain else "no",
    }
    if prediction.energy_mj is not None and prediction.power_w is not None:
        cells |= {"energy mJ": f"{prediction.energy_mj.value:.3g}", "W": f"{prediction.power_w.value:.0f}"}
    return cells
