"""The result of a benchmark for one problem: a record with all conditions, which can be written and read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval
from convwright.core.limits import Limits, limits
from convwright.core.policy import Policy, Weights
from convwright.errors import first_line
from convwright.measuring.compare import TIE, beyond_tie
from convwright.measuring.conditions import Conditions
from convwright.naming import singular
from convwright.report.words.amounts import bytes_text
from convwright.suites.suite import Point, Row
from convwright.tuning.choose import call_us
from convwright.tuning.find import Findings
from convwright.wording.conditions_text import Measured, conditions_now, without_tf32

Record = dict[str, Any]
# Matches any part of a candidate's name.
ANY = "*"


class Outcome(StrEnum):
    """How the chosen candidate compares with PyTorch's own call.

    The comparison uses the ratio of both in the rounds that ran both, or the two times if they come from different
    runs.

    FASTER, SLOWER: the difference is more than a tie, and the whole interval says so.
    SAME: the difference is at most a tie.
    AMBIGUOUS: the interval is wider than a tie, or PyTorch's own call was chosen and another candidate may be faster by
    more than a tie.
    """

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Asked:
    """The settings of a benchmark. A row with the same problem and the same settings is not run twice."""

    suite: str
    device: DeviceFacts
    mode: str
    policy: Policy
    tf32: bool | None = None  # None follows PyTorch's flag

    def __str__(self) -> str:
        flag = "" if self.tf32 is None else f" · TF32 {'on' if self.tf32 else 'off'}"
        return singular(f"{self.device.key} · mode {self.mode}{flag}")

    def key(self, row: Row) -> tuple[object, ...]:
        """The key of this row's record in a file."""
        return _key(self._given(row))

    def record(self, row: Row, found: Findings, seconds: float) -> Record:
        """The record of a row: the findings, and what a table shows."""
        times_us = {v.finding.candidate.id: _time_us(v.finding, found.policy) for v in found.verdicts}
        seen = found.choice or found.baseline or next((v.finding for v in found.verdicts), None)
        bound = limits(seen.candidate, found.device) if seen is not None else Limits(None, None)
        share = bound.share(seen.measurement.device_us.value) if seen is not None and seen.measurement else None
        outcome = outcome_of(found)
        return {
            **self._given(row), **found.to_json(), "seconds": seconds, "failure": None,
            "outcome": None if outcome is None else outcome.value, "times_faster": _data(found.times_faster),
            "rounds": None if found.paired is None else found.paired.rounds,
            "times_us": {name: asdict(time_us) for name, time_us in times_us.items() if time_us is not None},
            "limit_us": bound.limit_us, "share": share, "unstable": found.unstable, "remark": _remark(found),
        }  # fmt: skip

    def failure(self, row: Row, error: BaseException) -> Record:
        """The record of a row whose search failed."""
        return {**self._given(row), "failure": first_line(error)}

    def _given(self, row: Row) -> Record:
        names = ("max_workspace_bytes", "max_error", "deterministic", "objective", "finite_inputs")
        return {
            "benchmark": "bench", "suite": self.suite, "name": row.name, "at": dict(row.at), "count": row.count,
            "problem": row.problem.key, "device": self.device.label, "mode": str(self.mode), "tf32": self.tf32,
            "policy": {name: getattr(self.policy, name) for name in names},
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "conditions": dict(conditions_now(self.device)),
        }  # fmt: skip


def key_of(record: Mapping[str, Any]) -> tuple[object, ...] | None:
    """The ``Asked.key`` of a record; None if it is not of a benchmark, has failed, or is unstable."""
    if record.get("benchmark") != "bench" or record.get("failure") is not None or record.get("unstable") is not None:
        return None
    return _key(record)


def _key(record: Mapping[str, Any]) -> tuple[object, ...]:
    # Records of earlier versions have the key of the device, which says "1 threads".
    given = (record["name"], record["problem"], singular(record["device"]), record["mode"], record.get("tf32"))
    return (*given, *map(str, record["policy"].values()))


def outcome_of(found: Findings) -> Outcome | None:
    """The outcome; None if the choice or PyTorch's own call was not measured."""
    pair = _pair(found)
    if pair is None:
        return None
    ours, torchs = pair
    if found.undecided is not None:
        return Outcome.AMBIGUOUS
    if found.paired is not None and found.times_faster is not None:
        return _by_rounds(found.times_faster)
    if found.unstable is not None:  # then PyTorch's own call is the choice, and ratios decide
        return Outcome.AMBIGUOUS if _may_be_faster(found) else Outcome.SAME
    if ours.high < (1 - TIE) * torchs.low:
        return Outcome.FASTER
    if torchs.high < (1 - TIE) * ours.low:
        return Outcome.SLOWER
    if max(ours.relative_halfwidth, torchs.relative_halfwidth) > TIE:
        return Outcome.AMBIGUOUS
    return Outcome.AMBIGUOUS if ours is torchs and _may_be_beaten(found, torchs) else Outcome.SAME


def _by_rounds(times_faster: Interval) -> Outcome:
    if beyond_tie(times_faster):
        return Outcome.FASTER if times_faster.value > 1 else Outcome.SLOWER
    return Outcome.AMBIGUOUS if times_faster.relative_halfwidth > TIE else Outcome.SAME


def _pair(found: Findings) -> tuple[Interval, Interval] | None:
    """The times of the choice and of PyTorch's own call; the same object twice if that call is the choice."""
    base, best = found.baseline, found.choice
    torchs = _time_us(base, found.policy) if base is not None else None
    if base is None or best is None or torchs is None:
        return None
    ours = torchs if best.candidate == base.candidate else _time_us(best, found.policy)
    return None if ours is None else (ours, torchs)


def _may_be_faster(found: Findings) -> bool:
    """Whether another candidate may be faster than PyTorch's own call by more than a tie, by its ratio."""
    measured = [v.finding.measurement for v in found.verdicts if v.finding is not found.baseline]
    pairs = [each.paired for each in measured if each is not None and each.unstable]
    changing = found.policy.weights is Weights.CHANGING
    return any(pair is None or pair.of_call(weights_change=changing).low < 1 / (1 + TIE) for pair in pairs)


def _may_be_beaten(found: Findings, torchs: Interval) -> bool:
    others = (_time_us(v.finding, found.policy) for v in found.verdicts if v.allowed)
    return any(
        other is not None and other.value < torchs.value and other.low < (1 - TIE) * torchs.high for other in others
    )


def _time_us(finding: Finding, policy: Policy) -> Interval | None:
    return None if finding.measurement is None else call_us(finding, policy)


def _remark(found: Findings) -> str | None:
    """Why nothing was compared with PyTorch's own call; None if something was."""
    if _pair(found) is not None:
        return None
    if not found.verdicts:
        return "no candidate can compute it here"
    if all(verdict.finding.measurement is None for verdict in found.verdicts) and not found.device.present:
        said = "so nothing ran; the first candidate should be the fastest"
        return f"{found.device.name} is not in this machine, {said}"
    base = next((verdict for verdict in found.verdicts if verdict.finding is found.baseline), None)
    if base is not None and base.finding.measurement is None:
        return base.reason
    return (
        "nothing that was measured is allowed" if base is not None else "PyTorch's own call is not among the candidates"
    )


def _data(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)


@dataclass(frozen=True, slots=True)
class Result:
    """A record read back, for tables and plots. Unknown is None."""

    name: str
    problem: str
    at: Point
    failure: str | None = None
    baseline: str | None = None
    choice: str | None = None
    times_us: Mapping[str, Interval] | None = None
    times_faster: Interval | None = None
    outcome: Outcome | None = None
    limit_us: float | None = None
    share: float | None = None
    error: float | None = None
    torch_error: float | None = None
    unstable: str | None = None
    remark: str | None = None
    measured: tuple[Measured, ...] = ()
    present: Conditions = ()
    disallowed: frozenset[str] = frozenset()
    first: str | None = None
    workspace: str | None = None
    rounds: int | None = None
    tolerates_load: bool = False

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Result:
        at = tuple((name, int(value)) for name, value in record["at"].items())
        if record["failure"] is not None:
            return cls(record["name"], record["problem"], at, record["failure"], present=_present(record))
        errors = {row["id"]: _normal_error(row["measurement"]) for row in record["candidates"]}
        ratio, outcome, first = record["times_faster"], record["outcome"], _first(record)
        return cls(
            record["name"], record["problem"], at, None, record["baseline"], record["choice"],
            times_us={name: _interval(each) for name, each in record["times_us"].items()},
            times_faster=None if ratio is None else _interval(ratio),
            outcome=None if outcome is None else Outcome(outcome),
            limit_us=record["limit_us"], share=record["share"],
            error=errors.get(record["choice"]), torch_error=errors.get(record["baseline"]),
            unstable=record.get("unstable"), remark=record.get("remark"),
            measured=_measured(record), present=_present(record),
            disallowed=frozenset(row["id"] for row in record["candidates"] if not row.get("allowed", True)),
            first=None if first is None else first["id"], workspace=None if first is None else _workspace(first),
            rounds=record.get("rounds"), tolerates_load=record.get("tolerates_load", False),
        )  # fmt: skip

    def time_us(self, candidate: str | None) -> Interval | None:
        """The time of a call of a candidate, by its name. Without a configuration in the name, the fastest one
        counts. With ``*`` in it, the fastest allowed candidate that matches counts."""
        if candidate is None:
            return None
        names = self.measured_like(candidate)
        if ANY in candidate:
            names = [name for name in names if name not in self.disallowed]
        return min(((self.times_us or {})[name] for name in names), key=lambda each: each.value, default=None)

    def measured_like(self, candidate: str) -> list[str]:
        """The measured candidates that a name or a pattern matches, whether or not they are allowed."""
        measured = self.times_us or {}
        if candidate in measured:
            return [candidate]
        if ANY in candidate:
            return [name for name in measured if is_like(name, candidate)]
        return [name for name in measured if name.partition("[")[0] == candidate]


def _first(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The most promising candidate; None if anything was measured."""
    if record["times_us"]:
        return None
    return next((row for row in record["candidates"] if row.get("permitted", True)), None)


def _workspace(row: Mapping[str, Any]) -> str:
    return bytes_text(row.get("workspace_bytes"), at_most=row.get("workspace_is_bound", False))


def _measured(record: Mapping[str, Any]) -> tuple[Measured, ...]:
    """The conditions under which PyTorch's own call and the choice were measured."""
    tf32 = tuple(pair for pair in _present(record) if pair[0] == "tf32")
    compared = (record["baseline"], record["choice"])
    return tuple(
        Measured(
            (*without_tf32((name, value) for name, value in row["measurement"]["conditions"]), *tf32),
            row["measurement"]["samples"],
            row["remembered"],
        )
        for row in record["candidates"]
        if row["id"] in compared and row["measurement"] is not None
    )


def _present(record: Mapping[str, Any]) -> Conditions:
    """The conditions when the record was made. PyTorch's TF32 flag is among them for fp32 only."""
    facts = tuple(record["conditions"].items())
    return facts if "dt:fp32" in record["problem"].split() else without_tf32(facts)


def is_like(id_: str, pattern: str) -> bool:
    """Whether a candidate's name matches ``pattern``, in which ``*`` matches anything.

    >>> is_like("cudnn/engine-48[k2=2]", "cudnn/engine-*"), is_like("pad-c(8, cudnn/engine-48)", "cudnn/engine-*")
    (True, False)
    """
    return re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), id_) is not None


def _interval(data: Mapping[str, Any]) -> Interval:
    # Strict JSON has words for figures that are not finite.
    return Interval(*(float(data[name]) for name in ("value", "low", "high")))


def _normal_error(measurement: Mapping[str, Any] | None) -> float | None:
    errors = measurement["errors"] if measurement is not None else []
    return next((float(error["relative_l2"]) for error in errors if error["kind"] == "normal"), None)
