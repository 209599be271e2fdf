"""A model and an example → an engine. Read from the top: capture, passes, plan, engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.policy import Policy
from convwright.engine.assignment import Assignment
from convwright.engine.checking import objection
from convwright.engine.costs import Costs
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.in_place import fastest_in_place
from convwright.engine.passes.listed import passed
from convwright.engine.planned import Planner
from convwright.engine.reference import reference
from convwright.errors import BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.session import using
from convwright.tuning.trials.search_input import NO_HOOKS, Progress

# How many times the error that is allowed of the network each layer may show: errors of layers average out. Where they
# do not, less is allowed.
_LAYER_ERRORS = (2.0, 1.0, 0.5)


def optimize(
    model: nn.Module,
    example: Any,
    *,
    policy: Policy | None = None,
    mode: Mode = Mode.QUICK,
    store: Store | Path | str | None = None,
    progress: Progress = NO_HOOKS.progress,
) -> Engine:
    """The engine that computes what ``model`` computes for inputs like ``example``, as fast as is known here.

    Weights are taken as they are now. The model must be in evaluation mode.
    """
    inputs = example if isinstance(example, tuple) else (example,)
    tensors, _ = torch_api.flatten(inputs)
    if not tensors or not all(isinstance(each, Tensor) for each in tensors):
        raise BadInput("`example` must be a tensor, or a tuple of what the model takes, made of tensors")
    if model.training:
        raise BadInput("the model is in training mode: call model.eval() first")
    facts, policy = device_facts(tensors[0].device), policy or Policy()
    captured = exported(model, inputs, tensors)
    network = passed(captured.network).network

    def engine(assignment: Assignment) -> Engine:
        return Engine(assignment, network.constants, facts, captured.structure)

    with using(store) as kept:
        if mode is Mode.HEURISTIC:
            planner = Planner(network, facts, policy, mode=mode, store=kept, progress=progress)
            return engine(planner.assignment(Costs()))
        exact = reference(captured.network, tensors)
        with torch.no_grad():
            own = torch_api.flatten(model(*inputs))[0]
        for layer in _LAYER_ERRORS:
            allowed = replace(policy, max_error=layer * policy.max_error)
            planner = Planner(network, facts, allowed, mode=mode, store=kept, progress=progress)
            best = fastest_in_place(planner, engine, tensors)
            wrong = objection(torch_api.flatten(best(*inputs))[0], own, exact, policy.max_error)
            if wrong is None:
                return best
    raise Refused(f"no engine is as exact as the model: {wrong}; a larger `max_error` of the policy allows more")
