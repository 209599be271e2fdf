"""Engines for several buckets in one folder: a constant that several of them share is written once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from convwright.core.device import DeviceFacts
from convwright.engine import plan_text
from convwright.engine.blueprint import Blueprint
from convwright.engine.buckets import Bucket, bucket_of, bucket_text
from convwright.engine.saved import needed, write


def save_buckets(folder: Path, planned: Mapping[Bucket, Blueprint], device: DeviceFacts, whole: str | None) -> None:
    """Write all plans and their weights to a folder. ``whole`` is why batches are not padded or split."""
    held, plans = dict[str, Tensor](), list[dict[str, Any]]()
    for bucket, each in planned.items():
        names = {name: f"{name} of {bucket_text(bucket)}" for name, tensor in each.constants.items()
                 if held.setdefault(name, tensor) is not tensor}  # fmt: skip
        held |= {own: each.constants[name] for name, own in names.items()}
        plans.append({
            "bucket": bucket, "weights": names, "structure": each.structure, **plan_text.written(each.assignment)
        })  # fmt: skip
    runs = needed([each.assignment for each in planned.values()], device)
    write(folder, held, device, {"whole": whole, "buckets": plans, **runs})


def read_buckets(
    plan: Mapping[str, Any], constants: Mapping[str, Tensor], device: DeviceFacts
) -> dict[Bucket, Blueprint]:
    """The blueprint of each engine, from a plan that is known to be as it was written."""
    found = dict[Bucket, Blueprint]()
    for each in plan["buckets"]:
        assignment = plan_text.read(each, device)
        named = {name: constants[each["weights"].get(name, name)] for name in assignment.constants}
        found[bucket_of(each["bucket"])] = Blueprint(assignment, named, each["structure"])
    return found
