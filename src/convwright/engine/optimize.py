"""``optimize``: a model and an example → an engine. Capture, passes, plan, run; read from the top."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from torch import nn

from convwright import torch_api
from convwright.api.finding import refuse_ignored
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.beside_model import beside_model
from convwright.engine.blueprint import Blueprint
from convwright.engine.buckets.bucketed import BucketedEngine, planned_in_buckets
from convwright.engine.buckets.buckets import Bucket
from convwright.engine.decision import Decision
from convwright.engine.engine import Engine
from convwright.engine.export.exported import NotExported, exported
from convwright.engine.export.inputs import check_evaluates, check_has_weights, inputs_of, policy_of
from convwright.engine.in_place import fastest_in_place
from convwright.engine.inspecting.explained import disturbed
from convwright.engine.network import Network
from convwright.engine.origin import Origin
from convwright.engine.partial import PartialEngine, has_parts, planned_in_parts
from convwright.engine.planned_engine import PlannedEngine
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.memory_budget import checked
from convwright.engine.planning.planned import Planner
from convwright.engine.planning.searched_times import SearchedTimes
from convwright.engine.planning.times import TimeSource
from convwright.engine.precision.asked import Asked
from convwright.engine.precision.lowering import Lowering, Precision, lowered
from convwright.engine.predicting import planned_engine
from convwright.engine.running.failure import OnFailure
from convwright.errors import BadInput, Refused
from convwright.measuring.compare import Outcome
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.paired import Paired
from convwright.naming import one_of
from convwright.option_names import ModeName, OnFailureName, PrecisionName
from convwright.settings import Mode
from convwright.shortage import OutOfMemory
from convwright.store.store import Store
from convwright.tuning.session import using
from convwright.wording.progress import Progress, progress_to


class _Options(TypedDict, total=False):
    """Options of ``optimize`` that all of its overloads share."""

    policy: Policy | None
    mode: Mode | ModeName
    store: Store | Path | str | None
    progress: bool | Progress | None
    precision: Precision | PrecisionName | None
    samples: Iterable[Any] | None
    max_output_error: float | None
    memory_budget: int | None
    on_failure: OnFailure | OnFailureName


@overload
def optimize(
    model: nn.Module, example: Any, *, partial: Literal[False] = ..., buckets: None = ..., **options: Unpack[_Options]
) -> Engine: ...


@overload
def optimize(
    model: nn.Module, example: Any, *, partial: Literal[False] = ..., buckets: Iterable[Bucket],
    **options: Unpack[_Options],
) -> BucketedEngine: ...  # fmt: skip


@overload
def optimize(
    model: nn.Module, example: Any, *, plan_only: Literal[True], device: str | DeviceFacts | None = ...,
    **options: Unpack[_Options],
) -> PlannedEngine: ...  # fmt: skip


@overload
def optimize(
    model: nn.Module, example: Any, *, partial: bool, buckets: Iterable[Bucket] | None = ...,
    **options: Unpack[_Options],
) -> Engine | PartialEngine | BucketedEngine: ...  # fmt: skip


def optimize(
    model: nn.Module,
    example: Any,
    *,
    policy: Policy | None = None,
    mode: Mode | ModeName = Mode.QUICK,
    store: Store | Path | str | None = None,
    progress: bool | Progress | None = None,
    partial: bool = False,
    precision: Precision | PrecisionName | None = None,
    samples: Iterable[Any] | None = None,
    max_output_error: float | None = None,
    buckets: Iterable[Bucket] | None = None,
    memory_budget: int | None = None,
    on_failure: OnFailure | OnFailureName = OnFailure.RAISE,
    plan_only: bool = False,
    device: str | DeviceFacts | None = None,
) -> Engine | PartialEngine | BucketedEngine | PlannedEngine:
    """An engine that computes what ``model`` computes, for inputs of the shapes, dtypes and layouts of ``example``.

    ``example`` is a tensor, or a tuple of the model's arguments. The model must be in evaluation mode; its weights are
    taken as they are now. Each layer is searched in each layout as ``mode`` says: "quick" and "full" measure,
    "predict-top" measures the best predictions, "heuristic" and "predict" measure nothing. Then layouts, candidates and
    copies are chosen for the whole network together. On a GPU the engine is one CUDA graph. Outputs are checked against
    float64: their error is at most ``policy.max_error`` times the model's own.

    ``partial=True`` plans the largest submodules that can be exported, if the whole model cannot; the rest runs
    unchanged. ``memory_budget`` limits the bytes that layer results and workspaces take at once; if no plan fits, the
    error names the smallest possible number. If memory runs out, the engine is planned again without workspaces. A step
    that fails during a run raises an error with its name; with ``on_failure="torch"`` PyTorch's own call computes it
    from then on.

    ``precision`` "fp16" or "bf16" computes the network in that type; "tf32" lets fp32 convolutions and matrix products
    use TF32 on a GPU. Inputs and outputs keep their types; errors may be ``policy.max_error`` times the errors of the
    model in that precision. "mixed" chooses fp32, TF32 or 16 bits for each layer, so that the relative L2 error of each
    output is at most ``max_output_error`` (1e-3) on ``samples``. A sample is like ``example``, the only one by default.

    ``buckets`` plans for several input sizes: each bucket is a batch size, the shape of the input, or a tuple of the
    shapes of all inputs. Buckets share weights and one arena. A batch between two buckets is padded, and one above the
    largest is split. ``example`` then gives dtypes, layouts and the device.

    ``plan_only=True`` runs nothing, neither the model nor a candidate. It plans for ``device``, which need not be in
    this machine ("h200"), by default for the example's device. Times come from the store's findings for that device,
    and otherwise from predictions.

    >>> import torch
    >>> model, x = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval(), torch.ones(1, 3, 8, 8)
    >>> engine = optimize(model, x, mode="heuristic")
    >>> bool(torch.allclose(engine(x), model(x), atol=1e-5))
    True
    """
    check_evaluates(model)
    mode, policy = one_of(Mode, "mode", mode, but=Mode.OFF), policy_of(policy)
    asked, budget = Asked.of(precision, samples, max_output_error, policy, partial=partial), checked(memory_budget)
    on_failure = one_of(OnFailure, "on_failure", on_failure)
    if partial and budget is not None:
        raise BadInput("`memory_budget` needs a model exported as a whole: leave out `memory_budget` or `partial`")
    if partial and buckets is not None:
        raise BadInput("`buckets` need a model exported as a whole: leave out `partial` or `buckets`")
    if samples is not None and buckets is not None:
        raise BadInput("`samples` have the sizes of `example`, not of each bucket: leave out `samples` or `buckets`")
    inputs, tell = inputs_of(example), progress_to(progress)
    if plan_only:
        ignored = {
            "partial": partial, "buckets": buckets, "samples": samples,
            "mode": mode in (Mode.FULL, Mode.PREDICT_TOP), "on_failure": on_failure is not OnFailure.RAISE,
        }  # fmt: skip
        refuse_ignored(ignored, "plan_only=True plans the whole model for one size and runs nothing")
        with using(store) as kept:
            planned = planned_engine(
                model, inputs, device, policy, kept, precision=precision, memory_budget=budget, progress=tell
            )
        tell(1, 1, "")
        return planned
    if device is not None:
        raise BadInput(f"an engine runs on the device of `example`: leave out device={device!r}, or set plan_only=True")
    with using(store) as kept:

        def plan(model: nn.Module, inputs: tuple[Any, ...]) -> Engine:
            try:
                return _planned(model, inputs, policy, mode, kept, tell, asked, budget, on_failure)
            except OutOfMemory:
                if policy.max_workspace_bytes == 0:
                    raise
            least = replace(policy, max_workspace_bytes=0)
            return _planned(model, inputs, least, mode, kept, tell, asked, budget, on_failure)

        try:
            if buckets is not None:
                return planned_in_buckets(model, inputs, buckets, plan, on_failure)
            return plan(model, inputs)
        except Refused as why:
            if partial:
                return planned_in_parts(model, inputs, plan, why)
            takes_parts = buckets is None and budget is None and asked.precision is not Precision.MIXED
            if isinstance(why, NotExported) and takes_parts and has_parts(model):
                raise Refused(f"{why}; `partial=True`, or --partial, plans the parts that can be exported") from why
            raise
        finally:
            tell(1, 1, "")


def _planned(
    model: nn.Module, inputs: tuple[Any, ...], policy: Policy, mode: Mode, store: Store, tell: Progress, asked: Asked,
    memory_budget: int | None, on_failure: OnFailure,
) -> Engine:  # fmt: skip
    tensors, _ = torch_api.flatten(inputs)
    check_evaluates(model)  # a part of a model may be in another mode than the whole
    if any(each.is_meta for each in tensors):
        raise BadInput('the example is on "meta", where nothing runs: give real tensors, or set plan_only=True')
    check_has_weights(model)
    facts, captured = device_facts(tensors[0].device), exported(model, inputs, tensors)
    origin = Origin.of(captured, model)
    network = origin.network(model)

    def in_types(lowering: Lowering) -> Network:
        return lowered(network, lowering.dtypes).network

    def planner(net: Network, lowering: Lowering, policy: Policy, times: TimeSource | None = None) -> Planner:
        return Planner(
            net, facts, policy, mode=mode, store=store, tf32=lowering.tf32, memory_budget=memory_budget,
            progress=lambda what, done, of: tell(done, of, what), times=times,
        )  # fmt: skip

    def cheapest(net: Network, lowering: Lowering, policy: Policy) -> Assignment:
        return planner(net, lowering, policy).assignment(Costs())

    def ready(net: Network, lowering: Lowering, assignment: Assignment) -> Engine:
        own = replace(origin, lowering=lowering)
        made = Blueprint(assignment, net.constants, captured.structure, lambda: own, net.graph)
        return Engine(made, facts, on_failure)

    def compare(engine: Engine) -> None:
        engine.assignment = replace(engine.assignment, beside_model=beside_model(engine, model, inputs))

    def remembered(decision: Decision, build: Callable[[Assignment], Engine]) -> Engine | None:
        """The engine that the store remembers, if it is still good enough."""
        with suppress(Exception):  # a damaged plan can raise anything; then the network is planned again
            if (known := decision.remembered()) is not None:
                engine = build(known)
                engine.assignment = known.taking(engine.step_times(tensors))
                compare(engine)
                if standard.objection(engine) is None and not _is_slow(engine):
                    return engine
        return None

    measures_nothing = not mode.measures
    if measures_nothing and asked.precision is None:
        return ready(network, Lowering(), cheapest(network, Lowering(), policy))
    standard = asked.standard(model, inputs, captured.network, policy)
    plan = None if measures_nothing else lambda lowering: cheapest(in_types(lowering), lowering, policy)
    looked_up = list[Lowering]()
    for lowering, allowed, planes in asked.attempts(network, inputs, policy, facts, plan):
        net = in_types(lowering)
        build = partial(ready, net, lowering)
        if measures_nothing:
            best = build(cheapest(net, lowering, allowed))
            if (wrong := standard.objection(best)) is None:
                return best
            continue
        decision = Decision.of(net.graph, facts, policy, mode, store, tf32=lowering.tf32, memory_budget=memory_budget)
        if lowering not in looked_up:  # attempts differ by their limits too, which a decision does not depend on
            looked_up.append(lowering)
            if (known := remembered(decision, build)) is not None:
                return known
        times = SearchedTimes(facts, allowed, mode, store, frugal=memory_budget is not None, planes=planes)
        best = fastest_in_place(planner(net, lowering, allowed, times), build, tensors)
        if (wrong := standard.objection(best)) is None:
            compare(best)
            if not _is_slow(best) and not any(disturbed(best.assignment)):
                decision.remember(best.assignment, times.rests_on)
            return best
    raise Refused(f"no engine is as exact as requested: {wrong}; {standard.remedy}")


def _is_slow(engine: Engine) -> bool:
    """Whether a call of the engine is surely slower than one of its model."""
    pair = engine.assignment.beside_model
    return isinstance(pair, Paired) and pair.unstable is None and pair.outcome is Outcome.SLOW
