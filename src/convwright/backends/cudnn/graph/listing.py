"""cuDNN's graph API: every engine for a convolution, planned for a device of this machine or an absent one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import takewhile

import torch

from convwright.backends.cudnn.faults import fault_of_compiled
from convwright.backends.cudnn.graph.attributes import Attribute, Kind, NumericalNote
from convwright.backends.cudnn.graph.descriptor import Descriptor
from convwright.backends.cudnn.graph.device import Target, target
from convwright.backends.cudnn.graph.engine import (
    Engine,
    Knobs,
    configured,
    engine_count,
    execution_plan,
    expected_workspace_bytes,
    knob_ranges,
    proposed_engines,
    workspace_bytes,
)
from convwright.backends.cudnn.graph.knobs import neighbours
from convwright.backends.cudnn.graph.plan import GraphPlan
from convwright.backends.cudnn.graph.problem import is_compiled_at_run_time, operation_graph
from convwright.core.candidate import Candidate, Config, Offer, Refusal, Source, leaf_id
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.epilogue import Activation
from convwright.core.finding import may_pass
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BackendError, Refused

Offers = tuple[tuple[Offer, ...], tuple[Offer, ...]]

REFUSAL_ID = "cudnn/graph"
PREFIX = "engine-"
_COMPILED = frozenset(Activation) - {Activation.NONE, Activation.RELU}
_FEWER_PRODUCTS = frozenset({NumericalNote.FFT, NumericalNote.WINOGRAD})


def candidates(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """All engines, proposed or not."""
    for part in offers(problem, device):
        yield from part


def offers(problem: ConvProblem, device: DeviceFacts, *, briefly: bool = False) -> Offers:
    """Every proposed engine and configuration with its workspace, best first by cuDNN's judgement. Separately, each
    other engine with its default knobs, or the reason why it does not support the problem. ``briefly`` leaves out the
    latter, and the proposals of all heuristics but the first.

    If cuDNN has no engine for the problem, ``cudnn/graph`` is refused with cuDNN's reason. The first request takes 5 to
    20 ms of planning; nothing runs, and the device need not be present. Requests that failed for lack of memory are
    repeated each time.
    """
    try:
        return lasting_offers(problem, device, briefly)
    except _Passing as passing:
        return passing.offers


class _Passing(Exception):
    """Passes a temporary result through a cache without storing it."""

    def __init__(self, offers: Offers) -> None:
        super().__init__()
        self.offers = offers


@lru_cache(maxsize=256)
def lasting_offers(problem: ConvProblem, device: DeviceFacts, briefly: bool) -> Offers:
    """The same, cached."""
    found = _planned(problem, device, briefly=briefly)
    if any(isinstance(offer, Refusal) and may_pass(offer) for part in found for offer in part):
        raise _Passing(found)
    return found


def _planned(problem: ConvProblem, device: DeviceFacts, *, briefly: bool) -> Offers:
    final = not device.present
    try:
        where = target_of(device)
        graph = operation_graph(problem, where)
    except (BackendError, Refused) as failure:
        return (Refusal(REFUSAL_ID, str(failure)),), ()
    try:
        proposed, refusal = proposed_engines(graph, where, briefly=briefly), None
    except BackendError as failure:
        proposed, refusal = [], Refusal(REFUSAL_ID, _why_only_if_present(problem, device) or str(failure))
    known = {engine.index for engine in proposed}
    others = () if briefly else tuple(_others(problem, graph, where, known, final=final))
    if refusal is not None and may_pass(refusal):
        return (refusal,), others
    if refusal is not None and not any(isinstance(offer, Candidate) for offer in others):
        return (refusal,), ()
    return tuple(_offer(problem, engine, where, final=final) for engine in proposed), others


def one(problem: ConvProblem, device: DeviceFacts, algorithm: str, config: Config) -> Offer:
    """An engine by its name and knobs, proposed or not."""
    index, knobs = numbers(algorithm, config)
    try:
        where = target_of(device)
        graph = operation_graph(problem, where)
        most = engine_count(graph) - 1
        if index > most:
            return Refusal(engine_id(index, config), f"cuDNN's engines for this are numbered 0 to {most}")
        engine = configured(graph, where, index, knobs)
    except (BackendError, Refused) as failure:
        return Refusal(engine_id(index, config), str(failure))
    return _offer(problem, engine, where, final=not device.present)


def variants(candidate: Candidate, device: DeviceFacts, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
    """The same engine with one or two knobs changed, if cuDNN accepts the setting."""
    where, (index, now) = target_of(device), numbers(candidate.algorithm, candidate.config)
    graph = operation_graph(candidate.problem, where)
    for knobs in takewhile(lambda _: goes_on(), neighbours(now, knob_ranges(graph, where, index))):
        try:
            engine = configured(graph, where, index, knobs)
        except BackendError:
            continue  # most combinations are invalid
        offer = _offer(candidate.problem, engine, where, final=False)
        if isinstance(offer, Candidate):
            yield offer


def build(candidate: Candidate, device: DeviceFacts) -> Plan:
    """``candidate``, ready to run on a present device."""
    if device.torch_name is None:
        raise Refused(f"{candidate.id} cannot run on {device.name}, which is not in this machine")
    where = torch.device(device.torch_name)
    with torch.cuda.device(where):
        return GraphPlan(candidate, finalized(candidate, device), where)


def written(plan: GraphPlan) -> str | None:
    """The plan as text if its kernels were compiled for it, with these kernels, in 50 to 150 kB. Reading it takes 1 ms,
    building it 30 to 900 (H200). cuDNN's own kernels are not included, since they load as fast from its libraries."""
    return plan.text if plan.candidate.compiles else None


def read(candidate: Candidate, device: DeviceFacts, text: str) -> GraphPlan:
    """The plan from its text. Raises cuDNN's reason if the text is from another version or device."""
    torch_device = torch.device(str(device.torch_name))
    with torch.cuda.device(torch_device):
        plan = Descriptor(Kind.EXECUTION_PLAN).set_text(Attribute.PLAN_JSON, text)
        return GraphPlan(candidate, target_of(device).of_plan(plan).finalize(), torch_device)


def finalized(candidate: Candidate, device: DeviceFacts) -> Descriptor:
    """cuDNN's execution plan of ``candidate``. It asks no heuristic, so a stored candidate needs no planning."""
    where = target_of(device)
    graph = operation_graph(candidate.problem, where)
    engine = configured(graph, where, *numbers(candidate.algorithm, candidate.config))
    return execution_plan(engine.config, where)


def target_of(device: DeviceFacts) -> Target:
    """The device as cuDNN takes it. If the first device that a process plans for has no TF32, cuDNN 9.19 plans without
    TF32 for all others, too. So one that has it comes first."""
    if device.peak(Arithmetic.TF32) is None:
        _plan_with_tf32()
    return target(device)


@lru_cache
def _plan_with_tf32() -> None:
    where = target(profile("a100"))
    with suppress(BackendError):
        proposed_engines(operation_graph(ConvProblem.of((1, 8, 8, 8), (8, 8, 3, 3)), where), where, briefly=True)


def _why_only_if_present(problem: ConvProblem, device: DeviceFacts) -> str | None:
    """Why cuDNN cannot plan for an absent device: it would have to ask the device's driver."""
    if device.present or not is_compiled_at_run_time(problem):
        return None
    if problem.dtype.narrow and device.peak(native_arithmetic(problem.dtype, tf32=False)) is None:
        return f"{device.name} has no arithmetic for {problem.dtype}"
    activation = problem.epilogue.activation
    compiled = f"fuses {activation}" if activation in _COMPILED else f"stores {problem.dtype} sums as {problem.y.dtype}"
    return f"cuDNN compiles what {compiled} at run time, so {device.name} must be in this machine"


def _others(
    problem: ConvProblem, graph: Descriptor, device: Target, proposed: set[int], *, final: bool
) -> Iterator[Offer]:
    """Each engine that is not proposed, with cuDNN's default knobs."""
    for index in range(engine_count(graph)):
        if index in proposed:
            continue
        try:
            yield _offer(problem, configured(graph, device, index), device, final=final)
        except BackendError as failure:
            yield Refusal(engine_id(index), str(failure))


def _offer(problem: ConvProblem, engine: Engine, device: Target, *, final: bool) -> Offer:
    """The engine as a candidate. ``final`` also finalizes a plan and refuses, with cuDNN's reason, if that fails.

    On a present device this would load or compile the kernels of each engine (7 to 60 ms each on an H200), so there it
    is left to ``build``.
    """
    fault = fault_of_compiled(problem) if engine.compiles else None
    if fault is not None:
        return Refusal(engine_id(engine.index, _config(engine.knobs)), fault)
    try:
        plan = execution_plan(engine.config, device) if final else None
    except BackendError as failure:
        return Refusal(engine_id(engine.index, _config(engine.knobs)), str(failure))
    return Candidate(
        problem=problem,
        backend="cudnn",
        algorithm=f"{PREFIX}{engine.index}",
        config=_config(engine.knobs),
        arithmetic=arithmetic(problem.dtype, engine.notes),
        workspace_bytes=expected_workspace_bytes(engine.config) if plan is None else workspace_bytes(plan),
        deterministic=NumericalNote.NONDETERMINISTIC not in engine.notes,
        source=Source.PLANNER,
        saves_products=bool(engine.notes & _FEWER_PRODUCTS),
        rounds_sums=NumericalNote.REDUCED_PRECISION_REDUCTION in engine.notes,
        compiles=engine.compiles,
    )


def arithmetic(dtype: DType, notes: frozenset[NumericalNote]) -> Arithmetic:
    """The arithmetic of an engine with ``notes`` on operands of ``dtype``.

    >>> arithmetic(DType.FP32, frozenset({NumericalNote.TENSOR_CORE}))
    <Arithmetic.TF32: 'tf32'>
    """
    # cuDNN's TF32 engines have only the note TENSOR_CORE, since tensor cores take no fp32. Those that also convert
    # their inputs copy them to fp16 first.
    if dtype is DType.FP32 and NumericalNote.DOWN_CONVERT_INPUTS in notes:
        return Arithmetic.FP16_ACC32
    return native_arithmetic(dtype, tf32=NumericalNote.TENSOR_CORE in notes)


def engine_id(index: int, config: Config = ()) -> str:
    return leaf_id("cudnn", f"{PREFIX}{index}", config)


def _config(knobs: Knobs) -> Config:
    return tuple((f"k{knob}", value) for knob, value in knobs)


def numbers(algorithm: str, config: Config) -> tuple[int, Knobs]:
    """The engine's number and its knobs, from a candidate's algorithm and configuration."""
    return int(algorithm.removeprefix(PREFIX)), tuple(
        (int(name.removeprefix("k")), int(value)) for name, value in config
    )
