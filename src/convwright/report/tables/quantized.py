"""A model in int8 as a table: the loss of accuracy of each convolution."""

from __future__ import annotations

from math import isfinite

from rich.console import Console
from rich.text import Text

from convwright.advising.advice_text import UNKNOWN, curable, duration, rests_on
from convwright.measuring.compare import Outcome
from convwright.naming import singular
from convwright.quantizing.quantized import Quantized, QuantizedLayer
from convwright.report.words.conditions import print_conditions
from convwright.report.words.groups import grouped
from convwright.report.words.sheet import Sheet
from convwright.settings import Mode
from convwright.wording.compact import compact
from convwright.wording.conditions_text import Measured, conditions_now
from convwright.wording.unstable_text import unstable_sentence

_COLUMNS = ("layer", "problem", "with", "largest", "limit", "rel. L2", "SNR dB", "in int8 by")
_FOLDED = ("layer", "problem", "in int8 by")
_OUTCOMES = {
    Outcome.FAST: ", int8 is faster",
    Outcome.SLOW: ", int8 is slower here",
    Outcome.SAME: ", int8 is no faster",
    Outcome.AMBIGUOUS: ", it is not certain which is faster",
}
_KEPT = ("layer", "rel. L2", "SNR dB", "in int8 by")


def print_quantized(made: Quantized, console: Console) -> None:
    """Print one row for each convolution, the convolutions that are not quantized with the reason, and the total."""
    console.print(Text(singular(f"{made.device.key} · ranges {made.ranges}"), style="bold"))
    if made.layers:
        Sheet(_COLUMNS, tuple(map(_cells, made.layers)), _KEPT, _FOLDED, ("with",)).print_to(console)
        print_conditions([Measured(conditions_now(made.device))], console)
    kept = [(layer.name, layer.kept) for layer in made.layers if layer.kept is not None]
    if kept:
        console.print(f"{len(kept)} kept in their own precision:" if len(kept) > 1 else "1 kept in its own precision:")
        for line in grouped(kept):
            console.print(Text(f"  {line}", style="dim"))
    console.print(Text(_sentence(made)))
    if (times := _times(made)) is not None:
        slower = made.times is not None and made.times.outcome is Outcome.SLOW
        console.print(Text(times, style="yellow" if slower or made.times is None else ""))


def _times(made: Quantized) -> str | None:
    """The speed of a run in int8, which may be slower."""
    if made.untimed is not None:
        return f"The time of a run could not be measured: {curable(made.untimed, Mode.FULL)}."
    if made.times is None:
        return None
    times = made.times
    before, after = duration(times.before_us.value), duration(times.after_us.value)
    said = f"A run on the first sample takes {before} as it is and {after}"
    said += f" in int8: {1 / times.ratio.value:.2f}x ({rests_on(times.ratio, times.rounds)})"
    said += _OUTCOMES[times.outcome]
    return f"{said}." if times.unstable is None else f"{said}. {unstable_sentence([times.unstable], tolerated=True)}"


def _cells(layer: QuantizedLayer) -> dict[str, str]:
    return {
        "layer": layer.name,
        "problem": UNKNOWN if layer.problem is None else compact(layer.problem),
        "with": ", ".join(layer.merged) or UNKNOWN,
        "largest": _figure(layer.largest),
        "limit": _figure(layer.limit),
        "rel. L2": UNKNOWN if layer.error is None else f"{layer.error:.1e}",
        "SNR dB": _decibels(layer.snr_db),
        "in int8 by": UNKNOWN if layer.kept is not None or layer.candidate is None else layer.candidate,
    }


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


def _decibels(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}" if isfinite(value) else "no noise" if value > 0 else "no signal"


def _sentence(made: Quantized) -> str:
    if not made.layers:
        return "No supported convolution runs in this model."
    said = f"{len(made.in_int8)} of {len(made.layers)} convolutions in int8"
    on = f"{made.samples} samples" if made.samples > 1 else "1 sample"
    if made.error is None:
        return f"{said}; the error is unknown, since no output is in floating point."
    off = f"the model's outputs on {on} are off by {made.error:.1e} (relative L2), SNR {_decibels(made.snr_db)}"
    return f"{said}; {off}{' dB' if made.snr_db is not None and isfinite(made.snr_db) else ''}; {made.seconds:.1f} s."
