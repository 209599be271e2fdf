"""Findings in sentences: what would run and why, why the others would not, and what is unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from convwright.core.finding import Finding
from convwright.report.winner import winner
from convwright.report.words.amounts import time_text
from convwright.report.words.groups import grouped
from convwright.report.words.origin import Memory, origin
from convwright.report.words.too_large import too_large_sentence
from convwright.settings import Mode
from convwright.tuning.choose import Verdict
from convwright.tuning.find import Findings

_MOST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the sentences below it."""

    heading: str
    lines: tuple[str, ...]


def explain(found: Findings, memory: Memory, *, command: str) -> tuple[Section, ...]:
    """Sections about ``found``, in the order of a reader's questions.

    ``command`` is the ``convwright find`` command for the same problem.
    """
    unmeasured, others = _split(found.verdicts)
    too_large = too_large_sentence(found.problem, found.device)
    sections = (
        Section("What would run", winner(found) if too_large is None else (too_large, *winner(found))),
        Section("Why not the others", _rows((v for v in others if v.allowed), found)),
        Section("Timed, but left open", _rows((v for v in others if _is_open(v)), found)),
        Section("Not allowed, or failed", _rows((v for v in others if not (v.allowed or _is_open(v))), found)),
        Section("No stored time, the most promising first", grouped(map(_gap, unmeasured))),
        Section("Refused", grouped((refusal.id, refusal.reason) for refusal in found.refusals)),
        Section("Where this is from", origin(found, memory)),
        Section(
            "To find out more",
            _next(found, [*unmeasured, *filter(_is_open, others)], command, _holds_quarantined(others, memory)),
        ),
    )
    return tuple(section for section in sections if section.lines)


def _split(verdicts: Iterable[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
    """Verdicts that lack only a measurement, and all others except the winner."""
    unmeasured: list[Verdict] = []
    others: list[Verdict] = []
    for verdict in verdicts:
        if not verdict.won:
            (unmeasured if _is_unmeasured(verdict) else others).append(verdict)
    return unmeasured, others


def _is_unmeasured(verdict: Verdict) -> bool:
    finding = verdict.finding
    missing = finding.measurement is None and finding.failure is None
    return missing and verdict.reason in (finding.note, "was not measured")


def _is_open(verdict: Verdict) -> bool:
    """Whether it was timed, but its error was not measured or other work disturbed its time."""
    finding = verdict.finding
    if verdict.allowed or finding.measurement is None or finding.failure is not None:
        return False
    return verdict.reason.startswith("was timed, but") or verdict.reason == finding.unstable


def _gap(verdict: Verdict) -> tuple[str, str]:
    """A name, with the reason why it was not measured if there is a special one."""
    return verdict.finding.candidate.id, "" if verdict.reason.startswith("was not measured") else verdict.reason


def _rows(verdicts: Iterable[Verdict], found: Findings) -> tuple[str, ...]:
    rows = list(verdicts)
    lines = [f"{v.finding.candidate.id}: {_why(v, found)}" for v in rows[:_MOST_ROWS]]
    rest = rows[_MOST_ROWS:]
    return (*lines, f"and {len(rest)} more, which `convwright find` shows") if rest else tuple(lines)


def _why(verdict: Verdict, found: Findings) -> str:
    if verdict.call_us is None:
        return verdict.reason
    return f"{time_text(verdict.call_us)}; {verdict.reason}"


def _next(found: Findings, missing: Sequence[Verdict], command: str, quarantine: bool) -> tuple[str, ...]:
    lines = []
    if not found.device.present:
        lines.append(
            f"{found.device.name} is not in this machine. On a machine with it, run `{command}` and "
            "`convwright store export FILE`; then run `convwright store import FILE` here."
        )
    elif missing or not all(_is_thorough(verdict.finding) for verdict in found.verdicts):
        lines.append(f"`{command}` measures everything that is allowed, for about 30 s.")
    else:
        lines.append(f"Everything that is allowed has been measured: `{command}` shows it as a table.")
    if quarantine:
        lines.append("`convwright store quarantine --release ID` gives a candidate another chance.")
    return tuple(lines)


def _holds_quarantined(verdicts: Iterable[Verdict], memory: Memory) -> bool:
    failed = (verdict.finding.candidate.id for verdict in verdicts if verdict.finding.failure is not None)
    return any(name in memory.quarantined for name in failed)


def _is_thorough(finding: Finding) -> bool:
    return finding.measurement is None or dict(finding.measurement.conditions).get("mode") == Mode.FULL
