"""Findings as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from convwright.core.finding import UNSTABLE
from convwright.core.limits import limits
from convwright.core.policy import Objective
from convwright.naming import singular
from convwright.report.words.amounts import bytes_text, figure, interval_text, percent_text
from convwright.report.words.columns import Row, is_empty
from convwright.report.words.conditions import print_conditions
from convwright.report.words.groups import print_reasons
from convwright.report.words.sheet import Sheet
from convwright.report.words.too_large import too_large_sentence
from convwright.report.words.unstable import print_unstable
from convwright.settings import Mode
from convwright.tuning.choose import Verdict, call_us
from convwright.tuning.find import NOT_MEASURED, Findings
from convwright.wording.conditions_text import conditions_now, measured_in, permitted_in

_UNKNOWN = "–"


def print_findings(found: Findings, console: Console, *, refusals: bool | None = None, top: int | None = None) -> None:
    """The problem, its limits, one row per candidate with its reason, what is unstable, and what was refused.

    ``top`` is how many rows to print. If ``refusals`` is None and the device is a CPU, those that need a GPU are only
    counted.
    """
    console.print(Text(found.problem.key, style="bold"))
    console.print(singular(f"{found.device.key} · {_amount(found)} · mode {found.mode}"))
    if (said := too_large_sentence(found.problem, found.device)) is not None:
        console.print(Text(said, style="yellow"))
    why, listed = _why_nothing(found), _listed(found)
    findings_sheet(found, console.width).print_to(console, top)
    if why is not None:
        console.print(Text(f"Nothing was measured: {why}.", style="dim"))
    measured = measured_in(found, (verdict.finding for verdict in found.verdicts))
    print_conditions(measured, console, permitted_in([found], conditions_now(found.device)))
    _print_limited(listed[:top], console)
    timed = [v.finding for v in found.verdicts if v.finding.measurement is not None or v.finding.unstable is not None]
    print_unstable((finding.unstable for finding in timed), console, tolerated=found.tolerates_load)
    if (said := _next_step(found)) is not None:
        console.print(Text(said, style="yellow"))
    not_allowed = [(v.finding.candidate.id, v.reason) for v in found.verdicts if v not in listed]
    print_reasons("not allowed", not_allowed, console)
    _print_refusals(found, console, wanted=refusals)


def findings_sheet(found: Findings, width: int) -> Sheet:
    """The rows as a table. A narrow table has the time of a whole call in place of its parts."""
    listed = _listed(found)
    rows = tuple(_cells(verdict, found) for verdict in listed)
    names, kept = _shown(rows, found.policy.objective, width)
    styles = tuple("bold green" if verdict.won else "" for verdict in listed)
    return Sheet(tuple(names), rows, tuple(kept), _FOLDED, ("arithmetic",), styles)


def findings_data(found: Findings) -> list[dict[str, Any]]:
    """One flat row for each candidate, for other programs."""
    return [_data(verdict, found) for verdict in _listed(found)]


def _listed(found: Findings) -> list[Verdict]:
    """The verdicts with a row. If nothing was measured, disallowed candidates are listed below the table."""
    if _why_nothing(found) is None:
        return list(found.verdicts)
    return [verdict for verdict in found.verdicts if verdict.reason == verdict.finding.note or verdict.allowed]


def _next_step(found: Findings) -> str | None:
    """How to compare PyTorch's own call with the others, if a short search timed it alone; else None."""
    timed = [verdict for verdict in found.verdicts if verdict.finding.measurement is not None]
    short = found.mode in (Mode.QUICK, Mode.PREDICT_TOP)
    if not short or len(timed) != 1 or len(found.verdicts) == 1 or timed[0].finding is not found.baseline:
        return None
    return 'PyTorch\'s own call was compared with nothing. --mode full (mode="full") measures the other candidates.'


def _print_refusals(found: Findings, console: Console, *, wanted: bool | None) -> None:
    if wanted is False:
        return
    hidden = [each for each in found.refusals if wanted is None and _needs_gpu(each.id, found)]
    pairs = [(refusal.id, refusal.reason) for refusal in found.refusals if refusal not in hidden]
    print_reasons("refused", pairs, console)
    if hidden:
        also = "more " if pairs else ""
        needs = "needs" if len(hidden) == 1 else "need"
        said = f"{len(hidden)} {also}{needs} an NVIDIA GPU; --refusals (refusals=True) lists them"
        console.print(Text(said, style="dim"))


def _needs_gpu(refused: str, found: Findings) -> bool:
    """Whether an algorithm is refused because the device is no GPU."""
    return found.device.kind != "cuda" and refused.startswith(_ON_GPUS)


def _print_limited(verdicts: Sequence[Verdict], console: Console) -> None:
    """Notes about arithmetic that loses bits of small numbers, and about candidates that round some sums."""
    limited = {v.finding.candidate.arithmetic for v in verdicts if v.finding.candidate.range_limited}
    if limited:
        named = ", ".join(sorted(limited))
        said = "a number 2^28 times smaller than the largest that it shares a power of two with loses bits"
        console.print(Text(f"{named} (range_limited): {said}", style="dim"))
    rounding = [v.finding.candidate.id for v in verdicts if v.finding.candidate.leaf.rounds_sums]
    if rounding:
        said = "sums of some of the products may be rounded to fewer bits before they are added up"
        console.print(Text(f"{', '.join(rounding)} (rounds_sums): {said}", style="dim"))


def _amount(found: Findings) -> str:
    problem = found.problem
    return f"{problem.flops / 1e9:.3g} GFLOP, {problem.bytes / 1e6:.3g} MB at least"


def _shown(rows: Sequence[Row], objective: Objective, width: int) -> tuple[list[str], list[str]]:
    """The columns, and those that a narrow table keeps, including the one that rows are sorted by."""
    if is_empty(rows, "device µs"):
        alike = len({row["why"] for row in rows}) == 1
        return [name for name in _BEFORE if not (alike and name == "why")], ["candidate"]
    packs = not is_empty(rows, "pack µs")
    decides = _DECIDES.get(objective, _CALL)
    if width >= _WIDE:
        ordered_by = decides if packs or decides != _CALL else "device µs"
        names = _COLUMNS if packs else [name for name in _COLUMNS if name != _CALL]
        return list(names), ["candidate", ordered_by, "why"]
    return list(dict.fromkeys(("candidate", decides, *_DECISIVE))), ["candidate", decides, "why"]


def _why_nothing(found: Findings) -> str | None:
    """The reason that all rows share if nothing was measured; None if something was."""
    if any(verdict.finding.measurement is not None for verdict in found.verdicts):
        return None
    notes = {verdict.finding.note for verdict in found.verdicts}
    (note,) = notes if len(notes) == 1 else (None,)
    return note.removeprefix(NOT_MEASURED) if note is not None and note.startswith(NOT_MEASURED) else None


_COLUMNS = (
    "candidate", "predicted µs", "call µs", "device µs", "± %", "pack µs", "limit µs", "share", "rel. L2", "scaled",
    "workspace", "peak", "energy mJ", "arithmetic", "why",
)  # fmt: skip
# The columns if nothing was measured, for example for a device that is not in this machine.
_BEFORE = ("candidate", "predicted µs", "workspace", "arithmetic", "limit µs", "why")
_FOLDED = ("candidate", "why")
# The time of a whole call, which a narrow table has in place of its parts.
_CALL = "call µs"
_DECISIVE = (_CALL, "± %", "limit µs", "why")
# The column that rows are ordered by, if it is not a time.
_DECIDES = {Objective.WORKSPACE: "workspace", Objective.ENERGY: "energy mJ"}
_WIDE = 150
_ON_GPUS = ("cudnn/", "triton/")


def _cells(verdict: Verdict, found: Findings) -> dict[str, str]:
    candidate, measured = verdict.finding.candidate, verdict.finding.measurement
    bound = limits(candidate, found.device)
    cells = dict.fromkeys(_COLUMNS, _UNKNOWN) | {
        "candidate": candidate.id,
        "limit µs": _figure(bound.limit_us),
        "predicted µs": _predicted(verdict, found),
        "workspace": bytes_text(candidate.workspace_bytes, at_most=candidate.workspace_is_bound),
        "arithmetic": candidate.arithmetic,
        "why": UNSTABLE if verdict.reason == verdict.finding.unstable else verdict.reason,
    }
    if measured is None:
        return cells
    share = bound.share(measured.device_us.value)
    normal = next((error for error in measured.errors if error.kind == "normal"), None)
    return cells | {
        "workspace": bytes_text(measured.workspace_bytes),
        "device µs": figure(measured.device_us.value),
        _CALL: figure(call_us(verdict.finding, found.policy).value),
        "± %": percent_text(measured.device_us),
        "pack µs": _figure(measured.prepare_us.value if measured.prepare_us else None),
        "share": f"{share:.0%}" if share is not None else _UNKNOWN,
        "rel. L2": f"{normal.relative_l2:.1e}" if normal else _UNKNOWN,
        "peak": bytes_text(measured.peak_bytes),
        "energy mJ": _UNKNOWN if measured.energy_mj is None else f"{measured.energy_mj:.3g}",
        "scaled": _figure(max(error.scaled_max for error in measured.errors)) if measured.errors else _UNKNOWN,
    }


def _predicted(verdict: Verdict, found: Findings) -> str:
    """The predicted time with its bounds."""
    known = (found.predictions or {}).get(verdict.finding.candidate.id)
    if known is None or known.prediction is None:
        return _UNKNOWN
    return f"{figure(known.prediction.time_us.value)} ({interval_text(known.prediction.time_us)})"


def _figure(value: float | None) -> str:
    return _UNKNOWN if value is None else figure(value)


def _data(verdict: Verdict, found: Findings) -> dict[str, Any]:
    candidate, measured = verdict.finding.candidate, verdict.finding.measurement
    known = (found.predictions or {}).get(candidate.id)
    predicted = None if known is None or known.prediction is None else known.prediction.time_us.value
    normal = next((each for each in measured.errors if each.kind == "normal"), None) if measured else None
    packs_us = measured.prepare_us if measured else None
    return {
        "candidate": candidate.id,
        "predicted_us": predicted,
        "call_us": verdict.call_us,
        "device_us": measured.device_us.value if measured else None,
        "device_low_us": measured.device_us.low if measured else None,
        "device_high_us": measured.device_us.high if measured else None,
        "pack_us": packs_us.value if packs_us else None,
        "limit_us": limits(candidate, found.device).limit_us,
        "relative_l2": normal.relative_l2 if normal else None,
        "workspace_bytes": measured.workspace_bytes if measured else candidate.workspace_bytes,
        "energy_mj": measured.energy_mj if measured else None,
        "arithmetic": str(candidate.arithmetic),
        "allowed": verdict.allowed,
        "won": verdict.won,
        "reason": verdict.reason,
    }
