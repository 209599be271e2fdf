"""The origin of findings: their dates, their conditions, and which of them do not count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from convwright.core.finding import Finding
from convwright.report.words.amounts import age_text, date_text
from convwright.report.words.groups import grouped
from convwright.store.quarantine import Quarantined
from convwright.store.stored import Stored
from convwright.tuning.find import Findings
from convwright.wording.conditions_text import either, values_of


@dataclass(frozen=True, slots=True)
class Memory:
    """The store's findings for the problem on the device, by candidate id. ``now`` is in seconds since 1970."""

    stored: Mapping[str, Stored]
    quarantined: Mapping[str, Quarantined]
    now: float


def origin(found: Findings, memory: Memory) -> tuple[str, ...]:
    """Dates and conditions of the findings, and the stored findings that do not count."""
    counting = [v.finding for v in found.verdicts if v.finding.remembered and v.finding.candidate.id in memory.stored]
    used = {finding.candidate.id for finding in counting}
    listed = {verdict.finding.candidate.id for verdict in found.verdicts}
    stale = [(name, _staleness(stored, name in listed)) for name, stored in memory.stored.items() if name not in used]
    made = [_when([memory.stored[name].created for name in used], memory.now)] if used else []
    return (*made, *_conditions(counting), *grouped(stale))


def _staleness(stored: Stored, listed: bool) -> str:
    if listed:
        return f"does not count: it was measured with other versions ({stored.fingerprint})"
    return "is in the store, but is not offered without a full search"


def _when(created: Sequence[float], now: float) -> str:
    first, last = min(created), max(created)
    dates = dict.fromkeys((date_text(first), date_text(last)))
    return f"Findings in the store that count: {len(created)}, made {' to '.join(dates)} ({age_text(now - last)} ago)."


def _conditions(findings: Iterable[Finding]) -> Iterable[str]:
    """Each condition with all its values."""
    values = values_of(finding.measurement.conditions for finding in findings if finding.measurement)
    if values:
        yield f"Conditions: {', '.join(f'{name} {either(each)}' for name, each in values.items())}."
