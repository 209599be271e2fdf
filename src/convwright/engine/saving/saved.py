"""Write an engine to a folder: ``plan.json``, ``weights.safetensors`` and, on request, ``kernels.json``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import chain
from pathlib import Path
from reprlib import repr as brief
from tempfile import TemporaryFile
from typing import Any

import torch
from torch import Tensor

from convwright import strict_json
from convwright.core.device import DeviceFacts
from convwright.engine.blueprint import Blueprint
from convwright.engine.planning.assignment import Assignment
from convwright.engine.saving.origin_text import ORIGIN, origin_tensors, origin_written
from convwright.engine.saving.plan_text import graph_written, written
from convwright.engine.saving.user_kernels import user_kernels
from convwright.errors import BackendError, BadInput
from convwright.tuning import listing

VERSION = 2
PLAN, WEIGHTS, KERNELS = "plan.json", "weights.safetensors", "kernels.json"
# The plan's key for the checksum of compiled kernels; its "kernels" are kernels that the user has registered.
COMPILED = "compiled"
# The plan's key that says that nothing of it was run; it has the bases of its times, and its totals in words.
PREDICTED = "predicted"


def save(
    folder: Path,
    engine: Blueprint,
    device: DeviceFacts,
    kernels: bytes | None,
    *,
    predicted: Mapping[str, Any] | None = None,
) -> None:
    """Write a plan, its weights and its compiled ``kernels`` to a folder, which is created if needed. A plan that was
    only ``predicted`` has what is known of its times."""
    mark = {} if predicted is None else {PREDICTED: predicted}
    body = {**mark, **needed([engine.assignment], device), **plan_of(engine)}
    write(folder, tensors_of(engine), device, body, kernels)


def plan_of(engine: Blueprint) -> dict[str, Any]:
    """An engine as data, without weights."""
    graph = {} if engine.graph is None else {"graph": graph_written(engine.graph)}
    origin = {} if engine.origin is None else {ORIGIN: origin_written(engine.origin())}
    return {"structure": engine.structure, **written(engine.assignment), **graph, **origin}


def tensors_of(engine: Blueprint) -> dict[str, Tensor]:
    """The tensors of an engine, by their names in the weights file."""
    return {**engine.constants, **({} if engine.origin is None else origin_tensors(engine.origin()))}


def needed(assignments: Sequence[Assignment], device: DeviceFacts) -> dict[str, Any]:
    """The library versions and kernels that plans depend on."""
    kernels = {name: version for each in assignments for name, version in user_kernels(each).items()}
    return {"fingerprints": fingerprints(assignments, device), "kernels": kernels}


def folder_of(given: Path | str) -> Path:
    """The folder that a user names."""
    if not isinstance(given, (str, os.PathLike)) or not os.fspath(given):
        raise BadInput(f"`folder` must be the path of an engine's folder, got {brief(given)}")
    return Path(given).expanduser()


def check_is_engine(folder: Path) -> None:
    """Refuse a path that is no folder, with the path to name instead."""
    if folder.is_dir():
        return
    if not folder.exists():
        raise BadInput(
            f"there is no folder {str(folder)!r}: `convwright optimize TARGET --out FOLDER`, or `engine.save(folder)`, "
            "writes an engine"
        )
    if (folder.parent / PLAN).is_file():
        raise BadInput(f"{str(folder)!r} is a file of an engine: name its folder, {str(folder.parent)!r}")
    raise BadInput(
        f"{str(folder)!r} is a file, and an engine is a folder: `convwright optimize` writes one, with --out"
    )


def check_folder(folder: Path) -> None:
    """Make the folder of an engine, or refuse one that cannot be made or written, or that holds something else."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BadInput(f"an engine is written to a folder, and {str(folder)!r} is a file") from None
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"the folder {str(folder)!r} cannot be made: {why}; choose another folder") from error
    try:
        with TemporaryFile(dir=folder):
            pass
        others = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"the folder {str(folder)!r} cannot be written: {why}; choose another folder") from error
    if others and not _has_engine(folder):
        raise BadInput(
            f"the folder {str(folder)!r} holds other files, such as {others[0]!r}, and no engine that could be "
            "replaced: choose a new or an empty folder"
        )


def _has_engine(folder: Path) -> bool:
    """Whether an engine was saved to a folder, by this or another version."""
    try:
        plan = strict_json.loads((folder / PLAN).read_bytes())
    except (OSError, strict_json.JsonError):
        return False
    return isinstance(plan, dict) and plan.keys() >= {"version", "weights", "checksum"}


def write(
    folder: Path, constants: Mapping[str, Tensor], device: DeviceFacts, body: Mapping[str, Any], kernels: bytes | None
) -> None:
    """Write the weights and kernels, then the plan that uses them. Existing files are replaced, not overwritten: hard
    links and open readers keep the old contents."""
    check_folder(folder)
    # Tensors in a file share no memory, although a model's may.
    contiguous = torch.contiguous_format
    held = {name: each.cpu().clone(memory_format=contiguous) for name, each in constants.items()}
    raw = safetensors().save(held)
    _replace(folder / WEIGHTS, raw)
    plan = {"version": VERSION, "device": device.key, "weights": digest(raw), **body}
    if kernels is not None:
        _replace(folder / KERNELS, kernels)
        plan[COMPILED] = digest(kernels)
    text = strict_json.dumps(plan | {"checksum": checksum(plan)}, indent=1)
    _replace(folder / PLAN, f"{text}\n".encode())


def _replace(path: Path, data: bytes) -> None:
    written_ = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written_.write_bytes(data)
        written_.replace(path)
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be written: {error.strerror or error}") from error
    finally:
        written_.unlink(missing_ok=True)


def fingerprints(assignments: Sequence[Assignment], device: DeviceFacts) -> dict[str, str]:
    """Fingerprints that must match: of each backend's candidates, and of PyTorch itself."""
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
            "safetensors is needed to save and load engines, and is not installed: pip install 'convwright[engine]'"
        ) from None
