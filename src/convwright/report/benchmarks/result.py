"""The result of a benchmark for one problem: a record with all conditions, which is written to a file and read back."""

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
# What stands for any part of a candidate's name.
ANY = "*"


class Outcome(StrEnum):
    """The chosen candidate compared with PyTorch's own call, by the ratio of the rounds in which both ran. FASTER and
    SLOWER: by more than a tie, beyond the interval of the ratio (of both times, where they did not run in one run).
    AMBIGUOUS: PyTorch's own call stays though another may be faster by more than a tie, or the ratio is not known to
    within a tie, so that nothing can be called the same."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Asked:
    """Under what a benchmark runs: equal rows that were asked for alike need no second run."""

    suite: str
    device: DeviceFacts
    mode: str
    policy: Policy
    tf32: bool | None = None  # None is what PyTorch's flag says

    def __str__(self) -> str:
        flag = "" if self.tf32 is None else f" · TF32 {'on' if self.tf32 else 'off'}"
        return singular(f"{self.device.key} · mode {self.mode}{flag}")

    def key(self, row: Row) -> tuple[object, ...]:
        """What tells the record of this row from any other in a file."""
        return _key(self._given(row))

    def record(self, row: Row, found: Findings, seconds: float) -> Record:
        """Everything that was found out about a row, and what a table shows of it."""
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
        """That nothing could be found out about a row, and why."""
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
    """What ``Asked.key`` says of the row of this record; None where it is of something else, has failed or was too
    much disturbed to be kept."""
    if record.get("benchmark") != "bench" or record.get("failure") is not None or record.get("unstable") is not None:
        return None
    return _key(record)


def _key(record: Mapping[str, Any]) -> tuple[object, ...]:
    # Records of earlier versions have the device's key, which has a plural for any count.
    given = (record["name"], record["problem"], singular(record["device"]), record["mode"], record.get("tf32"))
    return (*given, *map(str, record["policy"].values()))


def outcome_of(found: Findings) -> Outcome | None:
    """None where one of the two was not measured."""
    pair = _pair(found)
    if pair is None:
        return None
    ours, torchs = pair
    if found.undecided is not None:
        return Outcome.AMBIGUOUS
    if found.paired is not None and found.times_faster is not None:
        return _by_rounds(found.times_faster)
    if found.unstable is not None:  # PyTorch's own call is the choice, by the ratios of all others
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
    """The times of the choice and of PyTorch's own call; one and the same where that is chosen."""
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
    """Why nothing was compared with PyTorch's own call, where that is so."""
    if _pair(found) is not None:
        return None
    if not found.verdicts:
        return "there is no way of computing it here"
    if all(verdict.finding.measurement is None for verdict in found.verdicts) and not found.device.present:
        said = "so nothing ran; the first candidate should take the least time"
        return f"{found.device.name} is not in this machine, {said}"
    base = next((verdict for verdict in found.verdicts if verdict.finding is found.baseline), None)
    if base is not None and base.finding.measurement is None:
        return base.reason
    return (
        "nothing that was measured is allowed" if base is not None else "PyTorch's own call is none of the candidates"
    )


def _data(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)


@dataclass(frozen=True, slots=True)
class Result:
    """A record read back: what a table and a plot show. None is what is not known."""

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
        """What a call of the candidate of that name takes; of a name without configuration, its fastest, and of one
        with a ``*`` the fastest of those that may be chosen and are called like that."""
        if candidate is None:
            return None
        names = self.measured_like(candidate)
        if ANY in candidate:
            names = [name for name in names if name not in self.disallowed]
        return min(((self.times_us or {})[name] for name in names), key=lambda each: each.value, default=None)

    def measured_like(self, candidate: str) -> list[str]:
        """Of what was measured, whether or not it may be chosen, the names that such a name stands for."""
        measured = self.times_us or {}
        if candidate in measured:
            return [candidate]
        if ANY in candidate:
            return [name for name in measured if is_like(name, candidate)]
        return [name for name in measured if name.partition("[")[0] == candidate]


def _first(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The most promising candidate of a row of which nothing was measured."""
    if record["times_us"]:
        return None
    return next((row for row in record["candidates"] if row.get("permitted", True)), None)


def _workspace(row: Mapping[str, Any]) -> str:
    return bytes_text(row.get("workspace_bytes"), at_most=row.get("workspace_is_bound", False))


def _measured(record: Mapping[str, Any]) -> tuple[Measured, ...]:
    """What the times of PyTorch's own call and of the choice were measured under."""
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
    """What held when the record was made; PyTorch's flag for TF32 where that is a question."""
    facts = tuple(record["conditions"].items())
    return facts if "dt:fp32" in record["problem"].split() else without_tf32(facts)


def is_like(id_: str, pattern: str) -> bool:
    """Whether a candidate is called as ``pattern`` says, in which ``*`` stands for anything.

    >>> is_like("cudnn/engine-48[k2=2]", "cudnn/engine-*"), is_like("pad-c(8, cudnn/engine-48)", "cudnn/engine-*")
    (True, False)
    """
    return re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), id_) is not None


def _interval(data: Mapping[str, Any]) -> Interval:
    # What is not finite is a word in strict JSON.
    return Interval(*(float(data[name]) for name in ("value", "low", "high")))


def _normal_error(measurement: Mapping[str, Any] | None) -> float | None:
    errors = measurement["errors"] if measurement is not None else []
    return next((float(error["relative_l2"]) for error in errors if error["kind"] == "normal"), None)
