"""Load an engine from a folder. Nothing in the folder is executed, unless the user trusts its kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import torch
from torch import Tensor

from convwright import strict_json
from convwright.api.finding import refuse_ignored
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.policy import Policy
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.blueprint import Blueprint
from convwright.engine.buckets.bucketed import BucketedEngine
from convwright.engine.buckets.bucketed_files import WHOLE, parts_of
from convwright.engine.buckets.buckets import Bucket
from convwright.engine.engine import Engine
from convwright.engine.export.inputs import policy_of
from convwright.engine.network import Network
from convwright.engine.origin import Origin
from convwright.engine.planned_engine import PlannedEngine
from convwright.engine.planning.footprints import Footprints
from convwright.engine.planning.forecast_times import Basis
from convwright.engine.predicting import predicted_memory
from convwright.engine.replanned import replanned
from convwright.engine.running.failure import OnFailure
from convwright.engine.saving.kernels_file import kernels_read
from convwright.engine.saving.origin_text import origin_read
from convwright.engine.saving.plan_checks import check_assignment
from convwright.engine.saving.plan_text import graph_read
from convwright.engine.saving.plan_text import read as read_plan
from convwright.engine.saving.saved import (
    COMPILED,
    KERNELS,
    PLAN,
    PREDICTED,
    VERSION,
    WEIGHTS,
    check_is_engine,
    checksum,
    digest,
    fingerprints,
    folder_of,
    safetensors,
)
from convwright.engine.saving.user_kernels import unlike
from convwright.engine.structure import Structure, filled
from convwright.errors import BadInput, Refused, first_line
from convwright.graph.states import States
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import one_of
from convwright.option_names import ModeName, OnChangeName, OnFailureName
from convwright.settings import Mode
from convwright.store.kept_plans import KeptPlans
from convwright.store.store import Store
from convwright.strict_json import JsonError
from convwright.tensors import is_like
from convwright.tuning.session import using

_Made = TypeVar("_Made")
# Error sentences quote at most this many characters of a file, which may have been changed.
_QUOTED = 300
_NO_ENGINE = "so it holds no engine: `convwright optimize TARGET --out FOLDER`, or `engine.save(folder)`, writes one"


class OnChange(StrEnum):
    """What to do with a plan for another device or for other library versions."""

    REFUSE = "refuse"
    REPLAN = "replan"


class _Options(TypedDict, total=False):
    """Options of ``load`` for an engine."""

    on_change: OnChange | OnChangeName
    policy: Policy | None
    mode: Mode | ModeName
    store: Store | Path | str | None
    on_failure: OnFailure | OnFailureName
    trust_kernels: bool


@overload
def load(
    folder: Path | str, device: str | None = None, *, plan_only: Literal[False] = ..., **options: Unpack[_Options]
) -> Engine | BucketedEngine: ...


@overload
def load(folder: Path | str, *, plan_only: Literal[True]) -> PlannedEngine: ...


def load(
    folder: Path | str,
    device: str | None = None,
    *,
    plan_only: bool = False,
    on_change: OnChange | OnChangeName = OnChange.REFUSE,
    policy: Policy | None = None,
    mode: Mode | ModeName = Mode.QUICK,
    store: Store | Path | str | None = None,
    on_failure: OnFailure | OnFailureName = OnFailure.RAISE,
    trust_kernels: bool = False,
) -> Engine | BucketedEngine | PlannedEngine:
    """The engine saved in a folder, on the device that it was planned for, or on ``device``.

    A plan is valid for one kind of device and one set of library versions; for others it is refused. With
    ``on_change="replan"`` the network is then planned again with ``policy``, ``mode`` and ``store``, as ``optimize``
    does. Nothing in the folder is executed unless ``trust_kernels`` is True: then compiled kernels that were saved with
    ``kernels=True`` run as they are, and nothing is compiled. Planning again ignores them. ``on_failure`` is as in
    ``optimize``.

    ``plan_only=True`` reads a plan that ``optimize(…, plan_only=True)`` made, on any machine: nothing runs.
    """
    on_change, mode = one_of(OnChange, "on_change", on_change), one_of(Mode, "mode", mode, but=Mode.OFF)
    on_failure, folder = one_of(OnFailure, "on_failure", on_failure), folder_of(folder)
    policy, ignored = policy_of(policy), {"policy": policy, "store": store is not None, "mode": mode is not Mode.QUICK}
    if plan_only:
        ignored |= {"device": device is not None, "on_change": on_change is OnChange.REPLAN}
        ignored |= {"on_failure": on_failure is not OnFailure.RAISE, "trust_kernels": trust_kernels}
        refuse_ignored(ignored, "`load` with plan_only=True reads a plan as it was saved")
        if (saved := saved_plan(folder)) is None:
            raise BadInput(f"{folder} holds an engine, not a plan alone: leave out plan_only")
        return saved
    if on_change is OnChange.REFUSE:
        refuse_ignored(ignored, '`load` plans nothing without on_change="replan"')
    plan = _plan(folder)
    facts = _home(plan) if device is None else device_facts(device)
    parts = _read(folder, parts_of, plan, _constants(folder, plan))
    if (change := _change(folder, plan, facts)) is None:
        try:
            read = {bucket: _read(folder, _blueprint, folder, *part, facts) for bucket, part in parts.items()}
        except Refused as why:  # a kernel that this machine does not have
            change = f"{folder} needs something that is missing here: {first_line(why)[:_QUOTED]}"
        else:
            if fingerprints([each.assignment for each in read.values()], facts) == plan["fingerprints"]:
                kernels = _kernels(folder, plan, read.values(), facts) if trust_kernels else None
                trusted = {bucket: replace(each, kernels=kernels) for bucket, each in read.items()}
                return _ready(trusted, plan, facts, on_failure)
            change = f"{folder} was planned with other versions of libraries"
    if on_change is OnChange.REFUSE:
        reads = "; convwright.load(folder, plan_only=True) reads the plan" if plan.get(PREDICTED) else ""
        again = 'plan the model again, or call convwright.load(folder, on_change="replan") in Python'
        raise Refused(f"{change}: {again}{reads}")
    if not all("graph" in data for data, _ in parts.values()):
        raise Refused(f"{change}, and holds no graph: plan the model again")
    anew = dict[Bucket | None, Blueprint]()
    with using(store) as kept:
        for bucket, (data, constants) in parts.items():
            network = _read(folder, _network, data, constants, facts)
            structure = _read(folder, _structure, data, len(network.graph.outputs))
            made = replanned(network, structure, facts, policy, mode, kept, on_failure).blueprint
            anew[bucket] = replace(made, origin=_read(folder, _origin, folder, data, constants))
    return _ready(anew, plan, facts, on_failure)


def saved_plan(folder: Path | str) -> PlannedEngine | None:
    """The plan in a folder that was only predicted; None if the folder holds an engine. Its device need not be in this
    machine."""
    folder = folder_of(folder)
    plan = _plan(folder)
    if not (known := plan.get(PREDICTED)):
        return None
    if not isinstance(known, dict) or "powers" not in known:
        raise BadInput(f"{folder} holds a plan of an older convwright, which cannot be read: plan the model again")
    home, key = _home(plan), str(plan.get("device"))
    facts = home if home.key == key else device_facts(key[:_QUOTED])
    return _read(folder, _saved_plan, folder, plan, known, facts)


def _saved_plan(folder: Path, plan: Mapping[str, Any], known: Mapping[str, Any], facts: DeviceFacts) -> PlannedEngine:
    read, graph = read_plan(plan, facts), graph_read(plan)
    check_assignment(read, facts.kind)
    memory, unknown = predicted_memory(read, Footprints(graph, States(graph), facts))
    of_steps = list(zip(read.steps, known["bases"], known["powers"], strict=True))
    bases = tuple(Basis(basis) for _, basis, _ in of_steps)
    powers = tuple(None if watts is None else Interval.from_json(watts) for _, _, watts in of_steps)
    structure = _structure(plan, len(read.outputs))
    return PlannedEngine(
        read, facts, bases, powers, memory, unknown, structure, graph, partial(_constants, folder, plan)
    )


def _ready(
    planned: Mapping[Bucket | None, Blueprint], plan: Mapping[str, Any], facts: DeviceFacts, on_failure: OnFailure
) -> Engine | BucketedEngine:
    if None in planned:
        return Engine(planned[None], facts, on_failure)
    of = {bucket: each for bucket, each in planned.items() if bucket is not None}
    return BucketedEngine.of(of, facts, plan[WHOLE], on_failure)


def _home(plan: Mapping[str, Any]) -> DeviceFacts:
    """The device here that the plan was made for, even with another number of threads; else the best device."""
    planned = str(plan.get("device"))
    here = [device_facts(), device_facts("cpu"), *(device_facts(f"cuda:{n}") for n in range(torch.cuda.device_count()))]
    same = [each for each in here if each.key == planned] or [each for each in here if planned.startswith(each.name)]
    return [*same, here[0]][0]


def _change(folder: Path, plan: Mapping[str, Any], facts: DeviceFacts) -> str | None:
    """Why a plan is not valid here, as far as its header says."""
    if plan.get(PREDICTED):
        planned = str(plan.get("device"))[:_QUOTED]
        return f"{folder} was planned from predictions for {planned}, and nothing of it has run"
    if plan.get("device") != facts.key:
        return f"{folder} was planned for {str(plan.get('device'))[:_QUOTED]}, and this is {facts.key}"
    versions = plan.get("fingerprints")
    if not isinstance(versions, dict) or versions.get("pytorch") != torch.__version__:
        return f"{folder} was planned with other versions of libraries"
    kernels = plan.get("kernels")
    missing = unlike(kernels) if isinstance(kernels, dict) else None
    return None if missing is None else f"{folder} runs {missing}"


def _blueprint(folder: Path, plan: Mapping[str, Any], constants: Mapping[str, Tensor], facts: DeviceFacts) -> Blueprint:
    read = read_plan(plan, facts)
    check_assignment(read, facts.kind)
    _check_constants(read.constants, constants)
    named = {name: constants[name] for name in read.constants}
    graph = graph_read(plan) if "graph" in plan else None
    return Blueprint(read, named, _structure(plan, len(read.outputs)), _origin(folder, plan, constants), graph)


def _origin(folder: Path, plan: Mapping[str, Any], constants: Mapping[str, Tensor]) -> Callable[[], Origin] | None:
    """Reads the origin when it is first needed, which is seldom."""
    read = origin_read(plan, constants)
    return None if read is None else cache(partial(_read, folder, read))


def _network(plan: Mapping[str, Any], constants: Mapping[str, Tensor], facts: DeviceFacts) -> Network:
    graph, device = graph_read(plan), torch.device(str(facts.torch_name))
    _check_constants({name: graph.values[name] for name in graph.constants}, constants)
    return Network(graph, {name: constants[name].to(device) for name in graph.constants})


def _check_constants(specs: Mapping[str, TensorSpec], held: Mapping[str, Tensor]) -> None:
    for name, spec in specs.items():
        if not is_like(held.get(name), spec):
            raise BadInput(f"{WEIGHTS} holds no {name!r} of {spec.dtype} {spec.shape}: save the engine again")


def _structure(plan: Mapping[str, Any], outputs: int) -> Structure:
    structure = plan.get("structure")
    filled(structure, range(outputs))
    return structure


def _constants(folder: Path, plan: Mapping[str, Any]) -> Mapping[str, Tensor]:
    raw = _bytes(folder, WEIGHTS)
    if digest(raw) != plan.get("weights"):
        raise BadInput(f"{folder / WEIGHTS} was changed after saving: its checksum differs; save the engine again")
    held: Mapping[str, Tensor] = _read(folder, safetensors().load, raw)
    return held


def _kernels(folder: Path, plan: Mapping[str, Any], read: Collection[Blueprint], facts: DeviceFacts) -> KeptPlans:
    if COMPILED not in plan:
        raise Refused(
            f"{folder} was saved without compiled kernels: load it without trust_kernels, or save with kernels=True"
        )
    raw = _bytes(folder, KERNELS, "though it was saved with compiled kernels: load it without trust_kernels")
    if digest(raw) != plan[COMPILED]:
        raise BadInput(f"{folder / KERNELS} was changed after saving: its checksum differs; load without trust_kernels")
    return kernels_read(folder / KERNELS, raw, read, facts)


def _plan(folder: Path) -> dict[str, Any]:
    path = folder / PLAN
    check_is_engine(folder)
    try:
        plan = strict_json.loads(_bytes(folder, PLAN))
    except JsonError as error:
        raise BadInput(f"{path} is not the plan of an engine: {error}") from None
    if not isinstance(plan, dict) or "version" not in plan:
        raise BadInput(f"{path} is not the plan of an engine: it must be a JSON object")
    if plan["version"] != VERSION:
        version = str(plan["version"])[:_QUOTED]
        raise BadInput(
            f"{path} has version {version}, and this convwright reads version {VERSION}: save the engine again"
        )
    said = plan.pop("checksum", None)
    if said != _read(folder, checksum, plan):
        raise BadInput(f"{path} was changed after saving: its checksum differs; save the engine again")
    return plan


def _bytes(folder: Path, name: str, missing: str = _NO_ENGINE) -> bytes:
    path = folder / name
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is not a file")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{folder} holds no {name}, {missing}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def _read(folder: Path, read: Callable[..., _Made], *given: Any) -> _Made:
    """Call ``read``. Any exception means that the folder is wrong, unless something that it names is missing here."""
    try:
        return read(*given)
    except Refused:
        raise
    except KeyError as error:
        raise BadInput(f"{folder} holds no engine that can run: {str(error)[:_QUOTED]} is missing") from error
    except Exception as error:
        raise BadInput(f"{folder} holds no engine that can run: {first_line(error)[:_QUOTED]}") from error
