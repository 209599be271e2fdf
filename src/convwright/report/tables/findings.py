"""Findings as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.core.finding import UNSTABLE
from convwright.core.limits import limits
from convwright.core.policy import Objective
from convwright.naming import singular
from convwright.report.words.amounts import bytes_text, figure, interval_text, percent_text
from convwright.report.words.columns import fitting, is_empty, least_width
from convwright.report.words.conditions import print_conditions
from convwright.report.words.too_large import too_large_sentence
from convwright.report.words.unstable import print_unstable
from convwright.tuning.choose import Verdict, call_us
from convwright.tuning.find import NOT_MEASURED, Findings
from convwright.wording.conditions_text import conditions_now, measured_in, permitted_in

_UNKNOWN = "–"


def print_findings(found: Findings, console: Console, *, refusals: bool = True) -> None:
    """The problem, its limits, one row per candidate with its reason, what is unstable, and what was refused."""
    console.print(Text(found.problem.key, style="bold"))
    console.print(singular(f"{found.device.key} · {_amount(found)} · mode {found.mode}"))
    if (said := too_large_sentence(found.problem, found.device)) is not None:
        console.print(Text(said, style="yellow"))
    why = _why_nothing(found)
    listed = [
        verdict
        for verdict in found.verdicts
        if why is None or verdict.reason == verdict.finding.note or verdict.allowed
    ]
    console.print(_table(found, listed, console.width))
    if why is not None:
        console.print(Text(f"Nothing was measured: {why}.", style="dim"))
    measured = measured_in(found, (verdict.finding for verdict in found.verdicts))
    print_conditions(measured, console, permitted_in([found], conditions_now(found.device)))
    _print_limited(listed, console)
    _print_unstable(found, console)
    not_allowed = [(v.finding.candidate.id, v.reason) for v in found.verdicts if v not in listed]
    _print_reasons("not allowed", not_allowed, console)
    if refusals:
        _print_reasons("refused", [(refusal.id, refusal.reason) for refusal in found.refusals], console)


def _print_limited(verdicts: Sequence[Verdict], console: Console) -> None:
    """Which arithmetic keeps fewer bits of some numbers, and of which; and which candidates keep fewer of some sums."""
    limited = {v.finding.candidate.arithmetic for v in verdicts if v.finding.candidate.range_limited}
    if limited:
        named = ", ".join(sorted(limited))
        said = "a number 2^28 times smaller than the largest that it shares a power of two with loses bits"
        console.print(Text(f"{named} (range_limited): {said}", style="dim"))
    rounding = [v.finding.candidate.id for v in verdicts if v.finding.candidate.leaf.rounds_sums]
    if rounding:
        said = "sums of some of the products may be rounded to fewer bits before they are added up"
        console.print(Text(f"{', '.join(rounding)} (rounds_sums): {said}", style="dim"))


def _print_unstable(found: Findings, console: Console) -> None:
    """What other work disturbed, and what becomes of that."""
    print_unstable(((v.finding.candidate.id, v.finding.unstable) for v in found.verdicts), console)
    if any(verdict.finding.unstable is not None for verdict in found.verdicts):
        said = "What is unstable is not kept, and the search does not count as done: the next one measures again."
        console.print(Text(said, style="yellow"), soft_wrap=True)


def _amount(found: Findings) -> str:
    problem = found.problem
    return f"{problem.flops / 1e9:.3g} GFLOP, {problem.bytes / 1e6:.3g} MB at least"


def _print_reasons(said: str, pairs: Sequence[tuple[str, str]], console: Console) -> None:
    """Each reason once, behind all that it is true of."""
    if not pairs:
        return
    reasons: dict[str, list[str]] = {}
    for name, reason in pairs:
        reasons.setdefault(reason, []).append(name)
    console.print(f"{len(pairs)} {said}:")
    for reason, names in reasons.items():
        console.print(Text(f"  {', '.join(names)}: {reason}", style="dim"))


def _table(found: Findings, verdicts: Sequence[Verdict], width: int) -> Table:
    """All columns where there is room for them, else those that decide."""
    table = Table(box=None, pad_edge=False)
    rows = [_cells(verdict, found) for verdict in verdicts]
    shown = _shown(rows, found.policy.objective, width)
    for name in shown:
        if name in _FOLDED:
            table.add_column(name, overflow="fold", min_width=least_width(width))
        else:
            table.add_column(name, justify="left" if name == "arithmetic" else "right", no_wrap=True)
    for verdict, row in zip(verdicts, rows, strict=True):
        table.add_row(*(Text(row[name], style="bold green" if verdict.won else "") for name in shown))
    return table


def _shown(rows: Sequence[dict[str, str]], objective: Objective, width: int) -> list[str]:
    wide = width >= _WIDE
    if is_empty(rows, "device µs"):
        alike = len({row["why"] for row in rows}) == 1
        known = [name for name in _BEFORE if not is_empty(rows, name) and not (alike and name == "why")]
        return fitting(rows, known, kept=("candidate",), folded=_FOLDED, width=width)
    if wide:
        known = [name for name in _COLUMNS if not (name in _IF_ANY and is_empty(rows, name))]
        return fitting(rows, known, kept=_FOLDED, folded=_FOLDED, width=width)
    first, *rest, last = _DECISIVE
    decides = _DECIDES.get(objective, _CALL)
    names = list(dict.fromkeys((first, decides, *rest, last)))
    known = [name for name in names if name in _FOLDED or not is_empty(rows, name)]
    return fitting(rows, known, kept=(first, decides, last), folded=_FOLDED, width=width)


def _why_nothing(found: Findings) -> str | None:
    """What is true of all rows where nothing was measured; None where something was."""
    if any(verdict.finding.measurement is not None for verdict in found.verdicts):
        return None
    notes = {verdict.finding.note for verdict in found.verdicts}
    (note,) = notes if len(notes) == 1 else (None,)
    return note.removeprefix(NOT_MEASURED) if note is not None and note.startswith(NOT_MEASURED) else None


_COLUMNS = (
    "candidate", "predicted µs", "device µs", "± %", "pack µs", "limit µs", "share", "rel. L2", "scaled", "workspace",
    "peak", "energy mJ", "arithmetic", "why",
)  # fmt: skip
# Shown where any candidate has them.
_IF_ANY = ("predicted µs", "peak", "energy mJ")
# What is known where nothing was measured, as of a device that is elsewhere.
_BEFORE = ("candidate", "predicted µs", "workspace", "arithmetic", "limit µs", "why")
_FOLDED = ("candidate", "why")
# Where there is no room for the parts of a call, what it takes with all of them.
_CALL = "call µs"
_DECISIVE = ("candidate", _CALL, "limit µs", "why")
# What rows are ordered by, where that is no time.
_DECIDES = {Objective.WORKSPACE: "workspace", Objective.ENERGY: "energy mJ"}
_WIDE = 150


def _cells(verdict: Verdict, found: Findings) -> dict[str, str]:
    candidate, measured = verdict.finding.candidate, verdict.finding.measurement
    bound = limits(candidate, found.device)
    cells = dict.fromkeys((*_COLUMNS, _CALL), _UNKNOWN) | {
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
