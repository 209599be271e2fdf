"""Convert an observation to one flat row of a table, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convwright import strict_json
from convwright.core.finding import Measurement
from convwright.core.kinds.problem import Problem
from convwright.core.observation import SCHEMA, Observation, candidate_record
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

# Columns and the types of their values. Most are for readers of the table. The last three, whose names start with an
# underscore, hold the rest of an observation, so that it can be read back.
COLUMNS: Mapping[str, str] = {
    "problem": "text", "kind": "text", "direction": "text", "dtype": "text", "origin": "text", "campaign": "text",
    "n": "count", "c": "count", "k": "count", "sizes": "counts", "out_sizes": "counts", "taps": "counts",
    "stride": "counts", "dilation": "counts", "groups": "count", "flops": "number", "bytes": "number",
    "device": "text", "fingerprint": "text", "candidate": "text", "backend": "text", "algorithm": "text",
    "config": "text", "arithmetic": "text", "depth": "count", "outcome": "text", "reason": "text",
    "time_us": "number", "low_us": "number", "high_us": "number", "prepare_us": "number", "rounds_us": "numbers",
    "samples": "count", "workspace_bytes": "count", "peak_bytes": "count", "energy_mj": "number",
    "energy_halfwidth_mj": "number", "relative_l2": "number", "scaled_max": "number", "estimated_us": "number",
    "tiled": "number", "doubt": "text", "mode": "text", "budget_us": "number", "created": "number",
    "conditions": "text", "_candidate": "text", "_measurement": "text", "_policy": "text",
}  # fmt: skip


def row_of(observation: Observation) -> dict[str, Any]:
    """A value for each of ``COLUMNS``; None if unknown, or if the kind of problem does not have it."""
    candidate, measured = observation.candidate, observation.measurement
    leaf = candidate.leaf
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= _of_problem(candidate.problem)
    row |= {
        "device": observation.device, "fingerprint": observation.fingerprint, "candidate": candidate.id,
        "backend": leaf.backend, "algorithm": leaf.algorithm, "arithmetic": str(candidate.arithmetic),
        "config": ",".join(f"{name}={value}" for name, value in leaf.config), "depth": candidate.depth,
        "outcome": str(observation.outcome), "reason": observation.reason,
        "rounds_us": list(observation.rounds_us), "workspace_bytes": candidate.workspace_bytes,
        "estimated_us": leaf.estimated_us, "tiled": None if leaf.tiled is None else float(leaf.tiled),
        "mode": observation.mode, "budget_us": observation.budget_us, "created": observation.created,
        "_candidate": _text(candidate_record(candidate)), "_policy": _text(observation.policy.to_json()),
    }  # fmt: skip
    return row if measured is None else row | _of_measurement(measured)


def _of_problem(problem: Problem) -> dict[str, Any]:
    known: dict[str, Any] = {
        "problem": problem.key, "kind": problem.kind, "dtype": str(problem.dtype),
        "flops": float(problem.flops), "bytes": float(problem.bytes),
        "sizes": list(next(iter(problem.operands.values())).shape), "out_sizes": list(problem.output.shape),
    }  # fmt: skip
    if isinstance(problem, ConvProblem):
        known |= {
            "direction": str(problem.direction), "n": problem.n, "c": problem.c, "k": problem.k,
            "sizes": list(problem.x.shape[2:]), "out_sizes": list(problem.y.shape[2:]), "taps": list(problem.taps),
            "stride": list(problem.stride), "dilation": list(problem.dilation), "groups": problem.groups,
        }  # fmt: skip
    return known


def _of_measurement(measured: Measurement) -> dict[str, Any]:
    conditions, time_us = dict(measured.conditions), measured.device_us
    first = measured.errors[0] if measured.errors else None
    return {
        "time_us": time_us.value, "low_us": time_us.low, "high_us": time_us.high,
        "prepare_us": None if measured.prepare_us is None else measured.prepare_us.value,
        "samples": measured.samples, "workspace_bytes": measured.workspace_bytes, "peak_bytes": measured.peak_bytes,
        "energy_mj": measured.energy_mj, "energy_halfwidth_mj": measured.energy_halfwidth_mj,
        "relative_l2": None if first is None else first.relative_l2,
        "scaled_max": None if first is None else first.scaled_max,
        "doubt": measured.doubt, "origin": conditions.get("origin"), "campaign": conditions.get("campaign"),
        "conditions": _text(list(measured.conditions)),
        # Values that no other column holds.
        "_measurement": _text({
            "prepare_us": None if measured.prepare_us is None else measured.prepare_us.to_json(),
            "errors": [error.to_json() for error in measured.errors],
            "paired": None if measured.paired is None else measured.paired.to_json(),
        }),
    }  # fmt: skip


def observation_of(row: Mapping[str, Any]) -> Observation:
    """The observation of a row."""
    try:
        return Observation.from_json(
            {
                "schema": SCHEMA, "candidate": strict_json.loads(row["_candidate"]),
                "device": row["device"],
                "fingerprint": row["fingerprint"], "outcome": row["outcome"], "measurement": _measurement(row),
                "reason": row["reason"], "rounds_us": row["rounds_us"], "policy": strict_json.loads(row["_policy"]),
                "mode": row["mode"], "budget_us": row["budget_us"], "created": row["created"],
            }
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"this is not a row of observations: {error}") from error


def _measurement(row: Mapping[str, Any]) -> dict[str, Any] | None:
    if row["_measurement"] is None:
        return None
    return {
        **strict_json.loads(row["_measurement"]),
        "device_us": {"value": row["time_us"], "low": row["low_us"], "high": row["high_us"]},
        "workspace_bytes": row["workspace_bytes"], "samples": row["samples"],
        "conditions": strict_json.loads(row["conditions"]), "energy_mj": row["energy_mj"],
        "energy_halfwidth_mj": row["energy_halfwidth_mj"], "peak_bytes": row["peak_bytes"], "doubt": row["doubt"],
    }  # fmt: skip


def _text(record: Any) -> str:
    return strict_json.dumps(strict_json.in_words(record), compact=True)
