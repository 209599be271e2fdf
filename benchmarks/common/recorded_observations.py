"""Recorded results of benchmarks → observations, as far as their candidates still exist.

Three forms are read: findings with all candidates (``bench``, ``find``), tables of a search's best (``suite_choices``,
``classes``), and times of our own kernels (``own_kernels``).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, Measurement
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.core.profiles import profile_for
from convwright.errors import ConvwrightError
from convwright.tuning import listing
from convwright.tuning.predicting import pytorchs_own

# Candidates are looked for by name whatever a policy allows: sums in fp16 are listed only where it names them.
_EVERYTHING = Policy(max_workspace_bytes=1 << 50, arithmetic=frozenset(Arithmetic))
# What a record of our own kernels has beside them.
_PYTORCH = ("default", "benchmark")
_UNKNOWN = "recorded"


@dataclass(slots=True)
class Recorded:
    """Observations, and how many candidates of the records do not exist any more, by the name of their algorithm."""

    observations: list[Observation] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)


def read(paths: Iterable[Path]) -> Recorded:
    """The observations in files of recorded results."""
    recorded = Recorded()
    for path in paths:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for line in lines:
                _add(json.loads(line), recorded)  # older records have infinities
    return recorded


def _add(row: Mapping[str, Any], recorded: Recorded) -> None:
    timed = dict(_timed(row))
    device = profile_for(_device_name(row))
    if not timed or device is None:
        return
    candidates = candidates_named(timed, parse(row["problem"]), device)
    for id_, measurement in timed.items():
        candidate = candidates.get(id_)
        if candidate is None:
            algorithm = id_.partition("[")[0]
            recorded.gone[algorithm] = recorded.gone.get(algorithm, 0) + 1
            continue
        recorded.observations.append(_observation(row, candidate, device, measurement))


def _observation(
    row: Mapping[str, Any], candidate: Candidate, device: DeviceFacts, measurement: Measurement
) -> Observation:
    if measurement.workspace_bytes < 0:
        measurement = replace(measurement, workspace_bytes=candidate.workspace_bytes or 0)
    budget_s = row.get("budget_s")
    budget_us, created = (
        None if budget_s is None else budget_s * 1e6,
        datetime.fromisoformat(row.get("date") or dict(measurement.conditions)["date"]),
    )
    return Observation(
        candidate, device.key, _UNKNOWN, Outcome.MEASURED, measurement, None, (), Policy(),
        str(row.get("mode", "full")), budget_us, created.timestamp(),
    )  # fmt: skip


def _timed(row: Mapping[str, Any]) -> Iterator[tuple[str, Measurement]]:
    """Candidates' ids and what was measured, whatever form the row has."""
    for each in row.get("candidates") or ():
        if isinstance(each, dict) and (measured := each.get("measurement")) is not None:
            yield each["id"], _measurement(measured)
    for each in row.get("table") or ():
        if (us := each.get("us")) is not None and each.get("id"):
            yield each["id"], _of_time(us)
    if row.get("benchmark") == "own kernels":
        for id_, us in row["us"].items():
            if id_ not in _PYTORCH:
                yield id_, _of_time(us)


def _measurement(record: Mapping[str, Any]) -> Measurement:
    errors = [each for each in record["errors"] if isfinite(float(each["relative_l2"]))]
    return Measurement.from_json({**record, "errors": errors})


def _of_time(us: Mapping[str, float]) -> Measurement:
    interval = Interval(us["value"], us["low"], us["high"])
    return Measurement(interval, None, (), -1, 0, (("mode", "full"),))


def _device_name(row: Mapping[str, Any]) -> str:
    conditions = row.get("conditions") or {}
    return str(row.get("device") or conditions.get("device") or "")


def candidates_named(ids: Iterable[str], problem: Problem, device: DeviceFacts) -> Mapping[str, Candidate]:
    """The candidates with these ids, as far as this version has them. PyTorch's own call is one on any device."""
    known = {each.id: each for each in listing.candidates(listing.direct(problem, device, _EVERYTHING))}
    found = ((id_, known.get(id_) or _named(id_, problem, device)) for id_ in ids)
    return {id_: candidate for id_, candidate in found if candidate is not None}


def _named(id_: str, problem: Problem, device: DeviceFacts) -> Candidate | None:
    name, _, setting = id_.removesuffix("]").partition("[")
    if name in ("torch/default", "torch/cudnn"):
        config = (tuple(setting.split("=")),) if setting else ()
        own = next((each for each in pytorchs_own(problem, device) if each.config == config), None)
        return None if own is None else replace(own, algorithm=name.partition("/")[2])
    try:
        return listing.with_id(id_, problem, device, _EVERYTHING)
    except ConvwrightError:  # whatever made it cannot be asked here
        return None
