"""Advice as text: the rows of its table and its sentences."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from convwright.core.finding import UNSTABLE, Interval
from convwright.measuring.conditions import Conditions
from convwright.naming import singular
from convwright.settings import Mode
from convwright.wording.compact import compact, without_direction
from convwright.wording.conditions_text import Measured, compared_in, permitted_in, without_tf32
from convwright.wording.unstable_text import unstable_sentence

if TYPE_CHECKING:
    from convwright.advising.advice import Advice, LayerAdvice
    from convwright.advising.suggestion import Suggestion

UNKNOWN = "–"
_MOST_NAMES = 2
# `advise` has no option for this remedy, but a similar one.
_LARGER, _LIKE_IT = "give a larger budget", "take mode full"


def title(advice: Advice) -> str:
    """The device, the passes and the mode."""
    passes = "forward and backward" if advice.backward else "forward"
    return singular(f"{advice.device.key} · {passes} · mode {advice.mode}")


def rows(advice: Advice) -> list[dict[str, str]]:
    """One row for each distinct problem, the largest saving first, then the longest time."""
    ranked = sorted(advice.layers, key=lambda layer: (-(layer.gain_us or 0.0), -_total_us(layer)))
    return [_row(layer, advice.backward) for layer in ranked[: advice.top]]


def measured(advice: Advice) -> list[Measured]:
    """The conditions of the times of the convolutions and of the whole model."""
    found = [each for layer in advice.layers for each in compared_in(layer.findings)]
    # The TF32 flag does not apply to models in other types; the layers' conditions say where it does.
    return found if advice.model_us is None else [*found, Measured(without_tf32(advice.conditions))]


def present(advice: Advice) -> Conditions:
    """The conditions if nothing was measured."""
    return permitted_in((layer.findings for layer in advice.layers), advice.conditions)


def summary(advice: Advice) -> list[str]:
    """Sentences about the whole model."""
    if not advice.layers:
        return ["No supported convolution runs in this model."]
    left = len(advice.layers) - len(rows(advice))
    said = [f"{left} more distinct problems are not shown."] if left else []
    if (unstable := unstable_sentence([layer.unstable for layer in advice.layers])) is not None:
        said.append(curable(unstable, advice.mode))
    if advice.convolutions_us is not None and advice.best_us is not None:
        return [
            *said,
            _present(advice, advice.convolutions_us),
            _to_be_had(advice, advice.convolutions_us, advice.best_us),
        ]
    if advice.limit_us is not None:
        said.append(f"{_count(advice)}: none of these candidates takes less than {duration(advice.limit_us)} for all.")
    return said


def curable(unstable: str, mode: Mode) -> str:
    """A sentence about an unstable time, with the remedies that ``mode`` has.

    >>> curable("unstable: wait, or give a larger budget", Mode.QUICK)
    'unstable: wait, or take mode full'
    >>> curable("unstable: give a larger budget, or wait", Mode.FULL)
    'unstable: wait'
    """
    if mode is Mode.FULL:
        return unstable.replace(f", or {_LARGER}", "").replace(f"{_LARGER}, or ", "")
    return unstable.replace(_LARGER, _LIKE_IT)


def suggestion_lines(number: int, suggestion: Suggestion) -> list[str]:
    """A suggestion with its figures, then how to make the change."""
    of = "the whole model" if suggestion.whole_model else "these convolutions" if suggestion.layers else "convolutions"
    figures = f"{suggestion.scope or of} {duration(suggestion.before_us)} → {duration(suggestion.after_us)}, "
    figures += f"{suggestion.speedup:.2f}x ({rests_on(suggestion.ratio, suggestion.rounds)})"
    if suggestion.difference is not None:
        figures += f", outputs differ by {suggestion.difference:.1e} (relative L2)"
    lines = [f"{number}. {suggestion.what} [{suggestion.kind}]: {figures}", f"   {suggestion.how}"]
    return [*lines, f"   layers: {names(suggestion.layers, 6)}"] if suggestion.layers else lines


def rests_on(ratio: Interval | None, rounds: int | None) -> str:
    """The interval of a speedup and the measurement that it comes from.

    >>> rests_on(Interval(0.5, 0.4, 0.8), 31), rests_on(None, None)
    ('1.25 to 2.50, 31 rounds side by side', 'times of searches')
    >>> rests_on(Interval(0.5, 0.0, inf), 4)
    '4 rounds side by side, too few to know between what'
    """
    if ratio is None or rounds is None:
        return "times of searches"
    beside = f"{rounds} rounds side by side"
    if ratio.low <= 0 or ratio.high == inf:
        return f"{beside}, too few to know between what"
    return f"{1 / ratio.high:.2f} to {1 / ratio.low:.2f}, {beside}"


def optimized_lines(advice: Advice) -> list[str]:
    """The estimate for ``cw.optimize``, which comes last."""
    planned, what = advice.optimized, "cw.optimize(model, example)"
    if planned is None:
        return []
    if planned.refused is not None:
        return [f"{what} cannot plan this model: {planned.refused}."]
    count = "1 step" if planned.steps == 1 else f"{planned.steps} steps"
    if planned.unmeasured >= planned.steps:
        return [f"{what} would run {count}, whose times are not known."]
    sentence = f"{what} would run {count}, estimated at {duration(planned.modelled_us)}"
    sentence += f" ({duration(planned.own_us)} by PyTorch's own calls)"
    if planned.unmeasured:
        sentence += f", without {planned.unmeasured} of them whose times are not known"
    if advice.model_us is not None:
        sentence += f"; the model as it is takes {duration(advice.model_us.value)}"
    how = (
        f"The estimate is a sum over steps that were timed alone, in {planned.layout}. optimize also tries the other "
        "layout and times steps in the network: run it to measure the engine."
    )
    return [f"{sentence}.", f"   {how}"]


def duration(time_us: float) -> str:
    """A time with three digits in a fitting unit.

    >>> duration(812.4), duration(38123.0), duration(2.5e6)
    ('812 µs', '38.1 ms', '2.5 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(time_us) >= size:
            return f"{_three_digits(time_us / size)} {unit}"
    return f"{_three_digits(time_us)} µs"


def names(layers: tuple[str, ...], most: int = _MOST_NAMES) -> str:
    """The first few names and the number of others."""
    more = len(layers) - most
    return ", ".join(layers[:most]) + (f" +{more}" if more > 0 else "")


def _present(advice: Advice, now_us: float) -> str:
    take = ", take" if sum(layer.calls for layer in advice.layers) > 1 else " takes"
    sentence = f"{_count(advice)}{take} {duration(now_us)}"
    if advice.model_us is not None and advice.share is not None:
        sentence += f", {advice.share:.0%} of the model's {duration(advice.model_us.value)}"
    return f"{sentence}."


def _to_be_had(advice: Advice, now_us: float, best_us: float) -> str:
    if all(layer.is_torch for layer in advice.layers):
        vague = sum(layer.unstable is not None for layer in advice.layers)
        if vague:
            count = f"{vague} of {len(advice.layers)}"
            return f"Nothing was surely faster than PyTorch's own calls, but the times of {count} are unstable."
        return "PyTorch's own calls are as good as anything that was found for them."
    sentence = f"With the candidates above they take {duration(best_us)}, {now_us / best_us:.2f}x as fast"
    if advice.model_us is not None and advice.enabled_us is not None:
        return f"{sentence}. {_under_enabled(advice.enabled_us, advice.model_us.value)}."
    if advice.model_us is not None and (rest_us := advice.model_us.value - (now_us - best_us)) > 0:
        sentence += f", which would leave about {duration(rest_us)} of the whole model"
    return f"{sentence}."


def _under_enabled(enabled_us: Interval, own_us: float) -> str:
    """The whole model's time with these candidates, and whether that is a gain."""
    figures = f"{duration(enabled_us.value)} under cw.enabled(), {own_us / enabled_us.value:.2f}x as fast "
    figures += f"({own_us / enabled_us.high:.2f} to {own_us / enabled_us.low:.2f})"
    if enabled_us.high < own_us:
        return f"The whole model takes {figures}"
    verdict = "slower" if enabled_us.low > own_us else "not surely faster"
    return f"But the whole model is {verdict} with them: {figures}. Leave `cw.enable()` off"


def _count(advice: Advice) -> str:
    calls = sum(layer.calls for layer in advice.layers)
    if calls == 1:
        return "1 convolution"
    what = "convolutions and gradients" if advice.backward else "convolutions"
    return f"{calls} {what}, {len(advice.layers)} of them distinct"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _row(layer: LayerAdvice, backward: bool) -> dict[str, str]:
    unstable = layer.unstable is not None
    problem = compact(layer.problem)
    return {
        "layers": names(layer.names),
        "direction": str(layer.problem.direction) if backward else UNKNOWN,
        "problem": without_direction(problem) if backward else problem,
        "calls": str(layer.calls),
        "now µs": _figure(layer.now_us.value if layer.now_us else None),
        "limit µs": _figure(layer.limit_us),
        "best µs": _figure(layer.best_us.value if layer.best_us else None),
        "gain": UNSTABLE if unstable else UNKNOWN if layer.speedup is None else f"{layer.speedup:.2f}x",
        "saves µs": _figure(None if unstable else layer.gain_us),
        "candidate": UNKNOWN if layer.candidate is None else layer.candidate.id,
    }


def _total_us(layer: LayerAdvice) -> float:
    return layer.calls * layer.now_us.value if layer.now_us else layer.problem.flops * layer.calls


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}" if abs(value) >= 1 or not value else f"{value:.2g}"
