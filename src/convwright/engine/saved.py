"""An engine in a folder: ``plan.json`` and ``weights.safetensors``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convwright import strict_json
from convwright.core.device import DeviceFacts
from convwright.engine.assignment import Assignment
from convwright.engine.plan_text import graph_written, written
from convwright.engine.structure import Structure
from convwright.errors import BackendError
from convwright.graph.graph import Graph
from convwright.tuning import listing

VERSION = 1
PLAN, WEIGHTS = "plan.json", "weights.safetensors"


def save(
    folder: Path, assignment: Assignment, constants: Mapping[str, Tensor], device: DeviceFacts, structure: Structure,
    graph: Graph | None,
) -> None:  # fmt: skip
    """Write a plan and its weights to a folder, which is made where it does not exist. Files that are there are
    replaced, not written to: other names of them, and whoever reads them, keep what they had."""
    folder.mkdir(parents=True, exist_ok=True)
    # The tensors of a file share no memory, as a model's may.
    contiguous = torch.contiguous_format
    held = {name: each.cpu().clone(memory_format=contiguous) for name, each in constants.items()}
    raw = safetensors().save(held)
    _replace(folder / WEIGHTS, raw)
    plan = {
        "version": VERSION,
        "device": device.key,
        "fingerprints": fingerprints(assignment, device),
        "weights": digest(raw),
        "structure": structure,
        **written(assignment),
        **({} if graph is None else {"graph": graph_written(graph)}),
    }
    text = strict_json.dumps(plan | {"checksum": checksum(plan)}, indent=1)
    _replace(folder / PLAN, f"{text}\n".encode())


def _replace(path: Path, data: bytes) -> None:
    written_ = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written_.write_bytes(data)
        written_.replace(path)
    finally:
        written_.unlink(missing_ok=True)


def fingerprints(assignment: Assignment, device: DeviceFacts) -> dict[str, str]:
    """What must be the same for the plan to run as it was made: of each candidate's backend, and of PyTorch itself."""
    of = {step.candidate.leaf.backend: listing.fingerprint(step.candidate.leaf, device) for step in assignment.steps
          if step.candidate is not None}  # fmt: skip
    return {"pytorch": torch.__version__, **of}


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
