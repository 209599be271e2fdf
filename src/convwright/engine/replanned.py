"""Plan a saved network again: for another device, or with other library versions."""

from __future__ import annotations

import torch

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.blueprint import Blueprint
from convwright.engine.engine import Engine
from convwright.engine.in_place import fastest_in_place
from convwright.engine.network import Network
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planned import Planner
from convwright.engine.precision.checking import objection
from convwright.engine.reference import reference
from convwright.engine.running.failure import OnFailure
from convwright.engine.running.pinned import pinned
from convwright.engine.structure import Structure
from convwright.errors import Refused
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tensors import empty


def replanned(
    network: Network, structure: Structure, facts: DeviceFacts, policy: Policy, mode: Mode, store: Store,
    on_failure: OnFailure,
) -> Engine:  # fmt: skip
    """An engine for a network without its model. Its error on random inputs is at most ``policy.max_error`` times the
    error of PyTorch's own calls."""

    def engine(assignment: Assignment) -> Engine:
        made = Blueprint(assignment, network.constants, structure, None, network.graph)
        return Engine(made, facts, on_failure)

    planner = Planner(network, facts, policy, mode=mode, store=store)
    if not mode.measures:
        return engine(planner.assignment(Costs()))
    device = torch.device(str(facts.torch_name))
    inputs = [empty(network.graph.values[name], device).normal_() for name in network.graph.inputs]
    best, exact = fastest_in_place(planner, engine, inputs), reference(network, inputs)
    every = range(len(best.assignment.steps))
    ours, own = (torch_api.flatten(each(*inputs))[0] for each in (best, engine(pinned(best.assignment, every, facts))))
    wrong = objection(ours, own, exact, policy.max_error)
    if wrong is not None:
        raise Refused(f"no engine is as exact as PyTorch's own calls: {wrong}; plan the model again")
    return best
