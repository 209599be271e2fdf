"""An engine in a folder: ``plan.json`` and ``weights.safetensors``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convwright import strict_json
from convwright.core.device import DeviceFacts
from convwright.engine.assignment import Assignment
from convwright.engine.plan_text import written
from convwright.engine.structure import Structure
from convwright.engine.user_kernels import user_kernels
from convwright.errors import BackendError
from convwright.tuning import listing

VERSION = 1
PLAN, WEIGHTS = "plan.json", "weights.safetensors"


def save(
    folder: Path, assignment: Assignment, constants: Mapping[str, Tensor], device: DeviceFacts, structure: Structure
) -> None:
    """Write a plan and its weights to a folder, which is made where it does not exist."""
    body = {"structure": structure, **needed([assignment], device), **written(assignment)}
    write(folder, constants, device, body)


def write(folder: Path, constants: Mapping[str, Tensor], device: DeviceFacts, body: Mapping[str, Any]) -> None:
    """Write tensors, and data that says what is made of them."""
    folder.mkdir(parents=True, exist_ok=True)
    # The tensors of a file share no memory, as a model's may.
    contiguous = torch.contiguous_format
    held = {name: each.cpu().clone(memory_format=contiguous) for name, each in constants.items()}
    safetensors().save_file(held, folder / WEIGHTS)
    plan = {
        "version": VERSION,
        "device": device.key,
        "weights": digest((folder / WEIGHTS).read_bytes()),
        **body,
    }
    text = strict_json.dumps(plan | {"checksum": checksum(plan)}, indent=1)
    (folder / PLAN).write_text(f"{text}\n")


def needed(assignments: Sequence[Assignment], device: DeviceFacts) -> dict[str, Any]:
    """What plans need to run as they were made."""
    kernels = {name: version for each in assignments for name, version in user_kernels(each).items()}
    return {"fingerprints": fingerprints(assignments, device), "kernels": kernels}


def fingerprints(assignments: Sequence[Assignment], device: DeviceFacts) -> dict[str, str]:
    """What must be the same: of each backend's candidates, and of PyTorch itself."""
    of = dict[str, set[str]]()
    for step in chain.from_iterable(each.steps for each in assignments):
        if step.candidate is not None:
            leaf = step.candidate.leaf
            of.setdefault(leaf.backend, set()).add(listing.fingerprint(leaf, device))
    return {"pytorch": torch.__version__, **{backend: "; ".join(sorted(prints)) for backend, prints in of.items()}}


def checksum(plan: Mapping[str, Any]) -> str:
    return digest(strict_json.dumps(plan, compact=True, sort_keys=True).encode())


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def safetensors() -> Any:
    try:
        return import_module("safetensors.torch")
    except ImportError:
        raise BackendError(
            "safetensors keeps tensors in files, and is not installed here: pip install 'convwright[engine]'"
        ) from None
