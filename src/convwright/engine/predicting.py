"""Plan a model for a device on which nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.finding import Interval
from convwright.core.policy import Policy
from convwright.core.predictor import Predictor
from convwright.engine.export.exported import exported
from convwright.engine.export.foreign import devices, on_device
from convwright.engine.network import Network
from convwright.engine.origin import Origin
from convwright.engine.passes.listed import passed
from convwright.engine.planned_engine import PlannedEngine, with_bases
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.footprints import Footprints
from convwright.engine.planning.forecast_times import ForecastTimes, check_objective
from convwright.engine.planning.lifetimes import Lifetimes
from convwright.engine.planning.memory_budget import checked
from convwright.engine.planning.planned import Planner
from convwright.engine.precision.lowering import Lowering, Precision, lowered
from convwright.engine.running.memory_report import MemoryReport
from convwright.engine.structure import Structure
from convwright.errors import BadInput
from convwright.graph.operations import Foreign
from convwright.measuring.hardware.machine import device_facts
from convwright.prediction.models import served
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.wording.progress import Progress, progress_to

# The time of a step inside a CUDA graph beyond its own, and of each byte of its weight, which no cache holds there:
# networks on an H200, compared with the sums of their steps (`benchmarks/results/h200-whole-networks.jsonl`).
_STEP_US, _WEIGHT_BYTE_US = 0.5, 0.5e-6


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """A model as a network that can be planned for any device."""

    model: nn.Module
    network: Network
    lowering: Lowering
    origin: Origin
    structure: Structure


def planned_engine(
    model: nn.Module,
    inputs: tuple[Any, ...],
    device: str | DeviceFacts | None,
    policy: Policy,
    store: Store,
    *,
    precision: Precision | str | None = None,
    memory_budget: int | None = None,
    progress: bool | Progress | None = None,
    predictor: Predictor | None = None,
) -> PlannedEngine:
    """Plan the network for a device, which need not be in this machine. The model is exported but not run."""
    facts = _facts(device, torch_api.flatten(inputs)[0])
    check_objective(policy)
    capture = captured(model, inputs, precision)
    return planned(
        capture, facts, policy, store, memory_budget=memory_budget, progress=progress, predictor=predictor
    )  # fmt: skip


def captured(model: nn.Module, inputs: tuple[Any, ...], precision: Precision | str | None = None) -> Capture:
    """The network of a model. The model is exported but not run."""
    precision = None if precision is None else Precision.parse(precision)
    if precision is Precision.MIXED:
        raise BadInput(
            'precision="mixed" runs the model to measure its errors, and plan_only=True runs nothing: leave out either'
        )
    found = exported(model, inputs, torch_api.flatten(inputs)[0])
    network = passed(_without_numbers(found.network)).network
    lowering = Lowering() if precision is None else Lowering.uniform(network.graph, precision)
    origin = replace(Origin.of(found, model), lowering=lowering)
    return Capture(model, lowered(network, lowering.dtypes).network, lowering, origin, found.structure)


def planned(
    capture: Capture,
    facts: DeviceFacts,
    policy: Policy,
    store: Store,
    *,
    memory_budget: int | None = None,
    progress: bool | Progress | None = None,
    predictor: Predictor | None = None,
) -> PlannedEngine:
    """The plan of a network for a device."""
    network, tell, budget = _on(facts.kind, capture.network), progress_to(progress), checked(memory_budget)
    predictor = predictor or served(facts, store.path).predictor
    times = ForecastTimes(facts, policy, store, predictor, frugal=budget is not None)
    planner = Planner(
        network, facts, policy, mode=Mode.HEURISTIC, store=store, tf32=capture.lowering.tf32, memory_budget=budget,
        times=times, progress=lambda what, done, of: tell(done, of, what),
    )  # fmt: skip
    chosen = planner.assignment(Costs(_STEP_US, _WEIGHT_BYTE_US) if facts.kind == "cuda" else Costs())
    bases = tuple(times.basis(step.operation, step.candidate) for step in chosen.steps)
    memory, unknown = predicted_memory(chosen, planner.footprints)
    return PlannedEngine(
        with_bases(bases, chosen), facts, bases, _powers(chosen, facts, predictor), memory, unknown,
        capture.structure, network.graph, partial(_constants, capture),
    )  # fmt: skip


def _constants(capture: Capture) -> Mapping[str, Tensor]:
    if any(each.is_meta for each in capture.model.state_dict().values()):
        raise BadInput("the model has no weights (its device is meta), and a folder holds them: plan it with weights")
    return capture.origin.network(capture.model).constants


def _powers(assignment: Assignment, facts: DeviceFacts, predictor: Predictor) -> tuple[Interval | None, ...]:
    """The predicted power of each step."""
    candidates = {step.candidate: None for step in assignment.steps if step.candidate is not None}
    predicted = dict(zip(candidates, predictor.predict_all([*candidates], facts), strict=True))
    found = (None if step.candidate is None else predicted[step.candidate] for step in assignment.steps)
    return tuple(None if each is None else each.power_w for each in found)


def _facts(device: str | DeviceFacts | None, tensors: Sequence[Tensor]) -> DeviceFacts:
    if device is not None:
        return device_facts(device)
    if tensors[0].is_meta:
        raise BadInput('an example on "meta" does not say which device to plan for: give one, such as device="h200"')
    return device_facts(tensors[0].device)


def _without_numbers(network: Network) -> Network:
    """The network with constants on "meta": a plan depends on their shapes alone."""
    return Network(network.graph, {name: tensor.to("meta") for name, tensor in network.constants.items()})


def _on(kind: str, network: Network) -> Network:
    """The network whose foreign operators create their tensors on a device of this kind."""
    nodes = [
        replace(node, operation=on_device(node.operation, kind))
        if isinstance(node.operation, Foreign) and devices(node.operation) else node
        for node in network.graph.nodes
    ]  # fmt: skip
    return network.with_graph(network.graph.with_nodes(nodes))


def predicted_memory(assignment: Assignment, footprints: Footprints) -> tuple[MemoryReport, tuple[str, ...]]:
    """The memory that the engine will use, and the steps of which part is unknown."""
    lifetimes = Lifetimes(assignment, footprints.of_steps(assignment.steps, exact=False))
    weights, unknown = _weights(assignment)
    for step in assignment.steps:
        candidate = step.candidate
        if candidate is not None and (candidate.workspace_bytes is None or candidate.workspace_is_bound):
            unknown.setdefault(step.name)
    report = MemoryReport(
        lifetimes.plan, tuple(lifetimes.buffers), lifetimes.outside, weights, lifetimes.without_reuse,
        len(assignment.steps),
    )  # fmt: skip
    return report, tuple(unknown)


def _weights(assignment: Assignment) -> tuple[int, dict[str, None]]:
    """Bytes of all constants as steps read them, and the steps whose packed weight is unknown. Steps that read the same
    constant in the same form share it."""
    forms, unknown = dict[tuple[str, object], int](), dict[str, None]()
    for step in assignment.steps:
        for role, name in step.reads:
            if name not in assignment.constants:
                continue
            spec, packed = step.operation.operands.get(role, assignment.constants[name]), None
            if role == Role.W and step.candidate is not None:
                packed = listing.packed_bytes(step.candidate)
                if packed is None:
                    unknown.setdefault(step.name)
            is_packed = packed is not None and packed != spec.nbytes
            form = (packed, step.candidate.leaf.algorithm) if is_packed and step.candidate is not None else spec.strides
            forms[name, form] = spec.nbytes if packed is None else packed
    return sum(forms.values()), unknown
