"""An engine in a folder, and back: ``plan.json`` and ``weights.safetensors``. Nothing in the folder is executed."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from convwright import strict_json
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.finding import Interval
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.assignment import Assignment, Step
from convwright.engine.engine import Engine
from convwright.errors import BackendError, BadInput, ConvwrightError, Refused
from convwright.graph.operations import NO_PROBLEM, Foreign, Join, Operation, View
from convwright.measuring.hardware.machine import device_facts
from convwright.strict_json import JsonError
from convwright.tuning import listing
from convwright.tuning.asked import named
from convwright.tuning.find import resolved

VERSION = 1
_PLAN, _WEIGHTS = "plan.json", "weights.safetensors"


def save(engine: Engine, folder: Path) -> None:
    """Write an engine's plan and weights to a folder, which is made where it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    # The tensors of a file share no memory, as a model's may.
    contiguous = torch.contiguous_format
    held = {name: each.cpu().clone(memory_format=contiguous) for name, each in engine.constants.items()}
    _safetensors().save_file(held, folder / _WEIGHTS)
    plan = {
        "version": VERSION,
        "device": engine.facts.key,
        "fingerprints": _fingerprints(engine.assignment, engine.facts),
        "weights": _digest((folder / _WEIGHTS).read_bytes()),
        "structure": engine.structure,
        **_written(engine.assignment),
    }
    text = strict_json.dumps(plan | {"checksum": _checksum(plan)}, indent=1)
    (folder / _PLAN).write_text(f"{text}\n")


def load(folder: Path, device: str | None = None) -> Engine:
    """The engine that was saved in a folder, for the same kind of device and the same versions of libraries."""
    plan = _plan(folder)
    facts = device_facts(device)
    if plan["device"] != facts.key:
        raise Refused(f"{folder} was planned for {plan['device']}, and this is {facts.key}: plan the model again")
    try:
        raw = (folder / _WEIGHTS).read_bytes()
    except OSError:
        raise BadInput(f"{folder} holds no {_WEIGHTS}, so it holds no engine") from None
    if _digest(raw) != plan["weights"]:
        raise BadInput(f"{folder / _WEIGHTS} is not what was saved: its checksum differs")
    try:
        read = _read(plan, facts)
        constants = _safetensors().load(raw)
    except (KeyError, TypeError, ValueError, ConvwrightError) as error:
        raise BadInput(f"{folder / _PLAN} cannot be read: {error}") from error
    if _fingerprints(read, facts) != plan["fingerprints"]:
        raise Refused(f"{folder} was planned with other versions of libraries: plan the model again")
    return Engine(read, constants, facts, plan["structure"])


def _plan(folder: Path) -> dict[str, Any]:
    path = folder / _PLAN
    try:
        plan = strict_json.loads(path.read_bytes())
    except OSError:
        raise BadInput(f"{folder} holds no {_PLAN}, so it holds no engine") from None
    except (JsonError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no plan of an engine: {error}") from None
    if not isinstance(plan, dict) or "version" not in plan:
        raise BadInput(f"{path} is no plan of an engine")
    if plan["version"] != VERSION:
        raise BadInput(f"{path} has version {plan['version']!r}, and this convwright reads version {VERSION}")
    if plan.pop("checksum", None) != _checksum(plan):
        raise BadInput(f"{path} is not what was saved: its checksum differs")
    return plan


def _written(assignment: Assignment) -> dict[str, Any]:
    return {
        "inputs": assignment.inputs,
        "outputs": assignment.outputs,
        "modelled_us": assignment.modelled_us,
        "tensors": {name: _spec_text(spec) for name, spec in assignment.tensors.items()},
        "constants": {name: _spec_text(spec) for name, spec in assignment.constants.items()},
        "slices": assignment.slices,
        "wholes": {name: _spec_text(spec) for name, spec in assignment.wholes.items()},
        "steps": [
            {
                "name": step.name,
                "operation": _operation_text(step.operation),
                "candidate": None if step.candidate is None else step.candidate.id,
                "reads": dict(step.reads),
                "writes": step.writes,
                "time_us": step.time_us.to_json(),
            }
            for step in assignment.steps
        ],
    }


def _read(plan: Mapping[str, Any], device: DeviceFacts) -> Assignment:
    return Assignment(
        {name: _spec(data) for name, data in plan["tensors"].items()},
        tuple(_step(data, device) for data in plan["steps"]),
        tuple(plan["inputs"]),
        tuple(plan["outputs"]),
        {name: _spec(data) for name, data in plan["constants"].items()},
        {name: (str(whole), int(start)) for name, (whole, start) in plan["slices"].items()},
        {name: _spec(data) for name, data in plan["wholes"].items()},
        float(plan["modelled_us"]),
    )


def _step(data: Mapping[str, Any], device: DeviceFacts) -> Step:
    operation = _operation(data["operation"])
    candidate = None
    if data["candidate"] is not None:
        assert not isinstance(operation, NO_PROBLEM)
        candidate = named(data["candidate"], operation, device, resolved(Policy(), operation, device))
    time_us = Interval(*(float(data["time_us"][name]) for name in ("value", "low", "high")))
    reads = tuple((str(role), str(name)) for role, name in data["reads"].items())
    return Step(data["name"], operation, reads, tuple(data["writes"]), candidate, time_us)


def _operation_text(operation: Operation) -> Any:
    if isinstance(operation, Foreign):
        return {
            "target": operation.target, "arguments": operation.arguments,
            "inputs": [_spec_text(spec) for spec in operation.inputs],
            "results": [_spec_text(spec) for spec in operation.results],
        }  # fmt: skip
    if isinstance(operation, View):
        return {"view": _spec_text(operation.x), "as": _spec_text(operation.y)}
    if isinstance(operation, Join):
        return {
            "join": [_spec_text(spec) for spec in operation.inputs], "as": _spec_text(operation.y), "dim": operation.dim
        }  # fmt: skip
    return operation.key


def _operation(data: Any) -> Operation:
    if isinstance(data, str):
        return parse(data)
    if "view" in data:
        return View(_spec(data["view"]), _spec(data["as"]))
    if "join" in data:
        return Join(tuple(map(_spec, data["join"])), _spec(data["as"]), int(data["dim"]))
    inputs, results = (tuple(map(_spec, data[name])) for name in ("inputs", "results"))
    return Foreign(str(data["target"]), str(data["arguments"]), inputs, results)


def _spec_text(spec: TensorSpec) -> list[Any]:
    return [spec.dtype, spec.shape, spec.strides]


def _spec(data: Any) -> TensorSpec:
    dtype, shape, strides = data
    return TensorSpec(tuple(shape), DType.parse(dtype), tuple(strides))


def _fingerprints(assignment: Assignment, device: DeviceFacts) -> dict[str, str]:
    """What must be the same for the plan to run as it was made: of each candidate's backend, and of PyTorch itself."""
    of = {step.candidate.leaf.backend: listing.fingerprint(step.candidate.leaf, device) for step in assignment.steps
          if step.candidate is not None}  # fmt: skip
    return {"pytorch": torch.__version__, **of}


def _checksum(plan: Mapping[str, Any]) -> str:
    return _digest(strict_json.dumps(plan, compact=True, sort_keys=True).encode())


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _safetensors() -> Any:
    try:
        return import_module("safetensors.torch")
    except ImportError:
        raise BackendError("saving an engine needs safetensors: pip install 'convwright[engine]'") from None
