"""Predictions as a table for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from convwright.api.predicting import Predictions
from convwright.naming import singular
from convwright.prediction.predicted_choice import PredictedVerdict
from convwright.report.words.amounts import bytes_text, figure, interval_text
from convwright.report.words.groups import print_reasons
from convwright.report.words.sheet import Sheet

_COLUMNS = ("candidate", "µs", "90 % within", "learned", "memory", "workspace", "energy mJ", "W", "why")
_KEPT, _FOLDED = ("candidate", "µs", "why"), ("candidate", "why")
_UNKNOWN = "–"


def print_predictions(found: Predictions, console: Console, *, refusals: bool = True, top: int | None = None) -> None:
    """One row for each candidate that is allowed, the others in a sentence for each reason, and the model.

    ``top`` is how many rows to print.
    """
    console.print(Text(found.problem.key, style="bold"))
    console.print(singular(f"{found.device.key} · {len(found.verdicts)} candidates · predicted, nothing ran"))
    if any(verdict.allowed for verdict in found.verdicts):
        predictions_sheet(found).print_to(console, top)
    else:
        console.print("No candidate is allowed.")
    console.print(Text(str(found.model), style="dim"))
    others = [(each.predicted.candidate.id, each.reason) for each in found.verdicts if not each.allowed]
    print_reasons("not allowed", others, console)
    if refusals:
        print_reasons("refused", [(refusal.id, refusal.reason) for refusal in found.refusals], console)


def predictions_sheet(found: Predictions) -> Sheet:
    """The rows as a table."""
    shown = [verdict for verdict in found.verdicts if verdict.allowed]
    styles = tuple("bold green" if verdict.won else "" for verdict in shown)
    return Sheet(_COLUMNS, tuple(_cells(verdict) for verdict in shown), _KEPT, _FOLDED, (), styles)


def predictions_data(found: Predictions) -> list[dict[str, Any]]:
    """One flat row for each candidate, for other programs."""
    return [_data(verdict) for verdict in found.verdicts]


def _data(verdict: PredictedVerdict) -> dict[str, Any]:
    row = verdict.predicted
    prediction = row.prediction
    time_us = None if prediction is None else prediction.time_us
    energy_mj = None if prediction is None else prediction.energy_mj
    power_w = None if prediction is None else prediction.power_w
    return {
        "candidate": row.candidate.id,
        "time_us": None if time_us is None else time_us.value,
        "low_us": None if time_us is None else time_us.low,
        "high_us": None if time_us is None else time_us.high,
        "learned": None if prediction is None else prediction.in_domain,
        "memory_bytes": row.memory_bytes,
        "workspace_bytes": row.candidate.workspace_bytes,
        "energy_mj": None if energy_mj is None else energy_mj.value,
        "power_w": None if power_w is None else power_w.value,
        "arithmetic": str(row.candidate.arithmetic),
        "allowed": verdict.allowed,
        "won": verdict.won,
        "reason": verdict.reason,
    }


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
