"""Save engines for several buckets in one folder. Constants that they share are written once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from convwright.core.device import DeviceFacts
from convwright.engine.blueprint import Blueprint
from convwright.engine.buckets.buckets import Bucket, bucket_of, bucket_text
from convwright.engine.saving.saved import needed, plan_of, tensors_of, write

# Keys of the plan file: why batches are not padded or split; the plan of each bucket; and in each of these, the names
# of its constants in the weights file.
WHOLE, _BUCKETS, _NAMES = "whole", "buckets", "weights"


def save_buckets(
    folder: Path, planned: Mapping[Bucket, Blueprint], device: DeviceFacts, whole: str | None, kernels: bytes | None
) -> None:
    """Write all plans, their weights and compiled ``kernels`` to a folder. ``whole`` is the reason why batches are not
    padded or split."""
    held, plans = dict[str, Tensor](), list[dict[str, Any]]()
    for bucket, each in planned.items():
        tensors = tensors_of(each)
        names = {name: f"{name} of {bucket_text(bucket)}" for name, tensor in tensors.items()
                 if held.setdefault(name, tensor) is not tensor}  # fmt: skip
        held |= {own: tensors[name] for name, own in names.items()}
        plans.append({"bucket": bucket, _NAMES: names, **plan_of(each)})
    runs = needed([each.assignment for each in planned.values()], device)
    write(folder, held, device, {WHOLE: whole, _BUCKETS: plans, **runs}, kernels)


Part = tuple[Mapping[str, Any], Mapping[str, Tensor]]


def parts_of(plan: Mapping[str, Any], constants: Mapping[str, Tensor]) -> dict[Bucket | None, Part]:
    """The plan and the constants of each engine in a folder, by bucket. A folder without buckets has one engine, under
    None."""
    if _BUCKETS not in plan:
        return {None: (plan, constants)}
    return {
        bucket_of(each["bucket"]): (each, {**constants} | {name: constants[own] for name, own in each[_NAMES].items()})
        for each in plan[_BUCKETS]
    }
