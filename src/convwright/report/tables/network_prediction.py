"""The predicted layers of a network as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from convwright.engine.network_prediction import LayerPrediction, NetworkPrediction, sentences
from convwright.naming import singular
from convwright.report.words.amounts import bytes_text, interval_text, microseconds
from convwright.report.words.sheet import Sheet

_COLUMNS = ("layer", "runs", "µs", "between", "known", "result", "workspace")
_KEPT, _FOLDED, _LEFT = ("layer", "µs", "runs", "between", "known"), ("layer", "runs"), ("known",)
_UNKNOWN = "–"


def print_network_prediction(found: NetworkPrediction, console: Console) -> None:
    """One row for each layer, and the totals of the network."""
    console.print(singular(f"{found.device} · {len(found.layers)} layers · predicted, nothing ran"))
    Sheet(_COLUMNS, tuple(map(_cells, found.layers)), _KEPT, _FOLDED, _LEFT).print_to(console)
    for sentence in sentences(found):
        console.print(Text(sentence), soft_wrap=True)


def _cells(layer: LayerPrediction) -> dict[str, str]:
    time_us = layer.time_us
    return {
        "layer": layer.name,
        "runs": layer.runs,
        "µs": _UNKNOWN if time_us is None else microseconds(time_us.value),
        "between": _UNKNOWN if time_us is None else interval_text(time_us),
        "known": layer.known,
        "result": bytes_text(layer.result_bytes),
        "workspace": bytes_text(layer.workspace_bytes),
    }
