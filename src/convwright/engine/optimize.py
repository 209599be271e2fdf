"""A model and an example → an engine. Read from the top: capture, passes, plan, engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.policy import Policy
from convwright.engine.assignment import Assignment
from convwright.engine.checking import objection
from convwright.engine.costs import Costs
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.failure import OnFailure
from convwright.engine.in_place import fastest_in_place
from convwright.engine.origin import Origin
from convwright.engine.partial import PartialEngine, planned_in_parts
from convwright.engine.planned import Planner
from convwright.engine.reference import reference
from convwright.errors import BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import one_of
from convwright.settings import Mode
from convwright.shortage import OutOfMemory
from convwright.store.store import Store
from convwright.tuning.session import using
from convwright.wording.progress import Progress, progress_to

# How many times the error that is allowed of the network each layer may show: errors of layers average out. Where they
# do not, less is allowed.
_LAYER_ERRORS = (2.0, 1.0, 0.5)


@overload
def optimize(
    model: nn.Module,
    example: Any,
    *,
    policy: Policy | None = ...,
    mode: Mode | str = ...,
    store: Store | Path | str | None = ...,
    progress: bool | Progress | None = ...,
    partial: Literal[False] = ...,
    on_failure: OnFailure | str = ...,
) -> Engine: ...


@overload
def optimize(
    model: nn.Module,
    example: Any,
    *,
    policy: Policy | None = ...,
    mode: Mode | str = ...,
    store: Store | Path | str | None = ...,
    progress: bool | Progress | None = ...,
    partial: bool,
    on_failure: OnFailure | str = ...,
) -> Engine | PartialEngine: ...


def optimize(
    model: nn.Module,
    example: Any,
    *,
    policy: Policy | None = None,
    mode: Mode | str = Mode.QUICK,
    store: Store | Path | str | None = None,
    progress: bool | Progress | None = None,
    partial: bool = False,
    on_failure: OnFailure | str = OnFailure.RAISE,
) -> Engine | PartialEngine:
    """An engine that computes what ``model`` computes, for inputs of the shapes, dtypes and layouts of ``example``.

    ``example`` is a tensor, or a tuple of what the model takes. Each layer is searched for in each layout, as ``mode``
    says ("quick", "full", or "heuristic", which measures nothing); then layouts, candidates and copies are chosen for
    the whole network together. On a GPU the engine is one CUDA graph. Outputs are held against float64: their error
    is at most ``policy.max_error`` times the model's own. Weights are taken as they are now. The model must be in
    evaluation mode. With ``partial`` a model that cannot be exported as a whole is planned in parts: its largest
    submodules that can be are engines, and the rest runs as it is. A step that fails while it runs is an error that
    names it; with ``on_failure="torch"`` PyTorch's own call computes it from then on. If there is no memory for the
    engine, it is planned anew without workspaces.

    >>> import torch
    >>> model, x = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval(), torch.ones(1, 3, 8, 8)
    >>> engine = optimize(model, x, mode="heuristic")
    >>> bool(torch.allclose(engine(x), model(x), atol=1e-5))
    True
    """
    mode, policy = one_of(Mode, "mode", mode, but=Mode.OFF), policy or Policy()
    inputs = example if isinstance(example, tuple) else (example,)
    on_failure = one_of(OnFailure, "on_failure", on_failure)
    with using(store) as kept:

        def plan(model: nn.Module, inputs: tuple[Any, ...]) -> Engine:
            try:
                return _planned(model, inputs, policy, mode, kept, progress_to(progress), on_failure)
            except OutOfMemory:
                if policy.max_workspace_bytes == 0:
                    raise
            least = replace(policy, max_workspace_bytes=0)
            return _planned(model, inputs, least, mode, kept, progress_to(progress), on_failure)

        try:
            return plan(model, inputs)
        except Refused as why:
            if not partial:
                raise
            return planned_in_parts(model, inputs, plan, why)


def _planned(
    model: nn.Module,
    inputs: tuple[Any, ...],
    policy: Policy,
    mode: Mode,
    store: Store,
    tell: Progress,
    on_failure: OnFailure,
) -> Engine:
    tensors, _ = torch_api.flatten(inputs)
    if not tensors or not all(isinstance(each, Tensor) for each in tensors):
        raise BadInput("`example` must be a tensor, or a tuple of what the model takes, made of tensors")
    if any(each.layout is not torch.strided for each in tensors):
        raise BadInput("`example` must be made of dense tensors, got a sparse one")
    if model.training:
        raise BadInput("the model is in training mode: call model.eval() first")
    facts, captured = device_facts(tensors[0].device), exported(model, inputs, tensors)
    origin = Origin.of(captured)
    network = origin.network(model)

    def engine(assignment: Assignment) -> Engine:
        return Engine(
            assignment, network.constants, facts, captured.structure, origin, network.graph, on_failure
        )  # fmt: skip

    def planner(policy: Policy) -> Planner:
        return Planner(
            network, facts, policy, mode=mode, store=store, progress=lambda what, done, of: tell(done, of, what)
        )

    if mode is Mode.HEURISTIC:
        return engine(planner(policy).assignment(Costs()))
    exact = reference(captured.network, tensors)
    with torch.no_grad():
        own = torch_api.flatten(model(*inputs))[0]
    for layer in _LAYER_ERRORS:
        allowed = replace(policy, max_error=layer * policy.max_error)
        best = fastest_in_place(planner(allowed), engine, tensors)
        wrong = objection(torch_api.flatten(best(*inputs))[0], own, exact, policy.max_error)
        if wrong is None:
            return best
    raise Refused(f"no engine is as exact as the model: {wrong}; a larger `max_error` of the policy allows more")
