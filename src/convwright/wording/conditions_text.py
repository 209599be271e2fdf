"""The conditions of a table's times in words: one or two short lines of what is known, and nothing of what is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from convwright.backends.cudnn.library import Missing, in_figures, load
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import Finding
from convwright.measuring.conditions import Conditions, conditions
from convwright.tuning.findings import Findings

_WIDTH = 100
_COMMIT_DIGITS = 7
_MOST_VALUES = 3
_BETWEEN = " · "
_LABELS = {
    "device": "", "cache": "cache ", "threads": "", "tf32": "TF32 ", "throttle_reasons": "slowed down by ",
    "torch": "torch ", "onednn": "oneDNN ", "cudnn": "cuDNN ", "triton": "Triton ", "driver": "driver ",
    "convwright": "convwright ",
}  # fmt: skip
_WITH = ("torch", "onednn", "threads", "cudnn", "triton", "driver", "convwright")


@dataclass(frozen=True, slots=True)
class Measured:
    """What one time of a table was measured under; ``remembered`` where an earlier search did that."""

    conditions: Conditions
    samples: int | None = None
    remembered: bool = False


def measured_in(found: Findings, rows: Iterable[Finding | None]) -> tuple[Measured, ...]:
    """Those of ``rows`` that were measured. Each candidate has its own arithmetic, whatever PyTorch's flag was when it
    was timed; what is said of TF32 is whether this search permitted it."""
    tf32 = _tf32(found)
    return tuple(
        Measured((*without_tf32(row.measurement.conditions), *tf32), row.measurement.samples, row.remembered)
        for row in rows
        if row is not None and row.measurement is not None
    )


def compared_in(found: Findings) -> tuple[Measured, ...]:
    """The two that one row is about where a table has one for each problem: PyTorch's own call and the choice."""
    own = () if found.choice is found.baseline else (found.choice,)
    return measured_in(found, (found.baseline, *own))


def conditions_now(device: DeviceFacts) -> Conditions:
    """The present conditions, with the cuDNN that answers for GPUs where PyTorch itself brings none."""
    known = conditions(device)
    if device.kind != "cuda" or "cudnn" in dict(known):
        return known
    library = load()
    return known if isinstance(library, Missing) else (*known, ("cudnn", str(library.version)))


def permitted_in(found: Iterable[Findings], present: Conditions) -> Conditions:
    """What holds at ``present``, with what these searches permitted."""
    permitted = dict.fromkeys(pair for each in found for pair in _tf32(each))
    return (*without_tf32(present), *permitted)


def without_tf32(known: Iterable[tuple[str, str]]) -> Conditions:
    """The conditions without PyTorch's flag for TF32."""
    return tuple(pair for pair in known if pair[0] != "tf32")


def conditions_lines(
    measured: Sequence[Measured], present: Conditions = (), *, device: bool = False, width: int = _WIDTH
) -> list[str]:
    """What stands beneath a table, in lines of at most 100 columns: how its times were measured, and with what.

    ``present`` is what holds now, for a table of which nothing was measured. The ``device`` is named where the table's
    head does not do so.

    >>> facts = (("date", "2026-11-20"), ("torch", "2.13.0"), ("cache", "hot"), ("threads", "2"))
    >>> print("\\n".join(conditions_lines([Measured(facts, 24), Measured(facts, 96)])))
    measured 2026-11-20 · cache hot · 24 to 96 samples, 95 % intervals
    torch 2.13.0 · 2 threads
    """
    every = [each.conditions for each in measured] if measured else [present] if present else []
    values = values_of(_worded(dict(known)) for known in every)
    where, tf32 = _labelled(values, ["device"] if device else []), _labelled(values, ["tf32"])
    versions = _labelled(values, _WITH)
    if not measured:
        return _packed(["nothing was measured", *where, *tf32, *versions], width) if values else []
    how = [*where, *_when(measured, values), *_labelled(values, ["cache"]), *_samples(measured), *tf32]
    state = [*_clock(values), *_labelled(values, ["throttle_reasons"])]
    return [*_packed([*how, *state], width), *_packed(versions, width)]


def values_of(every: Iterable[Iterable[tuple[str, str]]]) -> dict[str, list[str]]:
    """Each condition with all its values, in the order in which they come."""
    values: dict[str, dict[str, None]] = {}
    for known in every:
        for name, value in known:
            values.setdefault(name, {})[value] = None
    return {name: list(each) for name, each in values.items()}


def either(values: Sequence[str]) -> str:
    """The first few values and how many more there are.

    >>> either(["2.12", "2.13"]), either(list("abcde"))
    ('2.12 or 2.13', 'a or b or c or 2 other values')
    """
    shown, rest = values[:_MOST_VALUES], len(values) - _MOST_VALUES
    return " or ".join(shown) + (f" or {rest} other value{'s' if rest > 1 else ''}" if rest > 0 else "")


def _worded(known: Mapping[str, str]) -> Conditions:
    """The conditions as they are read: cuDNN's version with its points, convwright's with its commit."""
    words = dict(known)
    if "cudnn" in known:
        words["cudnn"] = in_figures(int(known["cudnn"])) if known["cudnn"].isdigit() else known["cudnn"]
    if "convwright" in known and "commit" in known:
        digits, *dirty = known["commit"].split("-")
        words["convwright"] += f" ({'-'.join([digits[:_COMMIT_DIGITS], *dirty])})"
    if "threads" in known:
        words["threads"] += " thread" if known["threads"] == "1" else " threads"
    if known.get("throttle_reasons") == "none":
        del words["throttle_reasons"]
    return tuple(words.items())


def _when(measured: Sequence[Measured], values: Mapping[str, Sequence[str]]) -> list[str]:
    """From when the times are, and whether earlier searches took them."""
    dates, remembered = sorted(values.get("date", ())), sum(each.remembered for each in measured)
    earlier = "" if not remembered else "remembered" if remembered == len(measured) else "in part remembered"
    days = f"measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""
    said = ", ".join(part for part in (days, earlier) if part)
    return [said] if said else []


def _samples(measured: Sequence[Measured]) -> list[str]:
    counts = [each.samples for each in measured if each.samples is not None]
    return [f"{_span(counts)} samples, 95 % intervals"] if counts else []


def _clock(values: Mapping[str, Sequence[str]]) -> list[str]:
    clocks = [int(value) for value in values.get("sm_clock_mhz", ()) if value.isdigit()]
    return [f"SM {_span(clocks)} MHz"] if clocks else []


def _span(figures: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys((str(min(figures)), str(max(figures)))))


def _labelled(values: Mapping[str, Sequence[str]], names: Iterable[str]) -> list[str]:
    return [f"{_LABELS[name]}{either(values[name])}" for name in names if name in values]


def _tf32(found: Findings) -> Conditions:
    """Whether TF32 was permitted, where that is a question."""
    asked = found.device.kind == "cuda" and found.problem.dtype is DType.FP32 and found.device.computes(Arithmetic.TF32)
    if not asked or found.policy.arithmetic is None:
        return ()
    return (("tf32", "allowed" if Arithmetic.TF32 in found.policy.arithmetic else "not allowed"),)


def _packed(parts: Iterable[str], width: int) -> list[str]:
    """The parts on as few lines as there have to be."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{_BETWEEN}{part}" if lines else part
        if lines and len(longer) <= min(width, _WIDTH):
            lines[-1] = longer
        else:
            lines.append(part)
    return lines
