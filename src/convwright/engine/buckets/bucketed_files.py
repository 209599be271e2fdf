"""Engines for several buckets in one folder: a constant that several of them share is written once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from convwright.core.device import DeviceFacts
from convwright.engine.blueprint import Blueprint
from convwright.engine.buckets.buckets import Bucket, bucket_of, bucket_text
from convwright.engine.saving.saved import needed, plan_of, write

# What a folder says of all buckets: why batches are not padded or split, and the plans; and in each of these, what
# its constants are called in the file.
WHOLE, _BUCKETS, _NAMES = "whole", "buckets", "weights"


def save_buckets(
    folder: Path, planned: Mapping[Bucket, Blueprint], device: DeviceFacts, whole: str | None, kernels: bytes | None
) -> None:
    """Write all plans, their weights and their compiled ``kernels`` to a folder. ``whole`` is why batches are not
    padded or split."""
    held, plans = dict[str, Tensor](), list[dict[str, Any]]()
    for bucket, each in planned.items():
        names = {name: f"{name} of {bucket_text(bucket)}" for name, tensor in each.constants.items()
                 if held.setdefault(name, tensor) is not tensor}  # fmt: skip
        held |= {own: each.constants[name] for name, own in names.items()}
        plans.append({"bucket": bucket, _NAMES: names, **plan_of(each)})
    runs = needed([each.assignment for each in planned.values()], device)
    write(folder, held, device, {WHOLE: whole, _BUCKETS: plans, **runs}, kernels)


Part = tuple[Mapping[str, Any], Mapping[str, Tensor]]


def parts_of(plan: Mapping[str, Any], constants: Mapping[str, Tensor]) -> dict[Bucket | None, Part]:
    """The data of each engine in a folder by its bucket, and the constants by the names that it has for them. The only
    engine of a folder without buckets has None."""
    if _BUCKETS not in plan:
        return {None: (plan, constants)}
    return {
        bucket_of(each["bucket"]): (each, {**constants} | {name: constants[own] for name, own in each[_NAMES].items()})
        for each in plan[_BUCKETS]
    }
