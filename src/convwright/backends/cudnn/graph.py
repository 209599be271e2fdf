"""cuDNN's graph API: every engine that it proposes for a convolution, planned here or for a device elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import torch

from convwright.backends.cudnn.graph_attributes import NumericalNote
from convwright.backends.cudnn.graph_descriptor import Descriptor
from convwright.backends.cudnn.graph_device import Target, target
from convwright.backends.cudnn.graph_engine import (
    Engine,
    Knobs,
    engine_config,
    execution_plan,
    expected_workspace_bytes,
    proposed_engines,
    workspace_bytes,
)
from convwright.backends.cudnn.graph_plan import GraphPlan
from convwright.backends.cudnn.graph_problem import operation_graph
from convwright.core.candidate import Candidate, Config, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.epilogue import Activation
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError, Refused

REFUSAL_ID = "cudnn/graph"
_PREFIX = "engine-"
_FEWER_PRODUCTS = frozenset({NumericalNote.FFT, NumericalNote.WINOGRAD})


def candidates(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every engine and configuration that cuDNN proposes, best first by its own judgement, with its workspace.

    Where cuDNN proposes nothing, ``cudnn/graph`` is refused, in its words. The first asking takes 5 to 20 ms of
    planning; nothing runs, and the device need not be present.
    """
    yield from _offers(problem, device)


def build(candidate: Candidate, device: DeviceFacts) -> Plan:
    """``candidate`` made ready on a device that is present."""
    if device.torch_name is None:
        raise Refused(f"{candidate.id} can be planned for {device.name}, but not run: it is not in this machine")
    where = torch.device(device.torch_name)
    with torch.cuda.device(where):
        return GraphPlan(candidate, finalized(candidate, device), where)


def finalized(candidate: Candidate, device: DeviceFacts) -> Descriptor:
    """cuDNN's execution plan of ``candidate``; it takes no heuristic, so one that was remembered needs no planning."""
    where = target(device)
    index = int(candidate.algorithm.removeprefix(_PREFIX))
    graph = operation_graph(candidate.problem, where)
    return execution_plan(engine_config(graph, where, index, _knobs(candidate.config)), where)


def objection(problem: ConvProblem) -> str | None:
    """Why no engine can be asked about ``problem``, or None where they can."""
    if problem.epilogue.activation not in (Activation.NONE, Activation.RELU):
        return f"cuDNN's compiled pattern can fuse relu, not {problem.epilogue.activation}"
    return None


@lru_cache(maxsize=256)
def _offers(problem: ConvProblem, device: DeviceFacts) -> tuple[Offer, ...]:
    reason = objection(problem)
    if reason is not None:
        return (Refusal(REFUSAL_ID, reason),)
    try:
        where = target(device)
        engines = proposed_engines(operation_graph(problem, where), where)
    except BackendError as failure:
        return (Refusal(REFUSAL_ID, str(failure)),)
    return tuple(_offer(problem, engine, where, final=not device.present) for engine in engines)


def _offer(problem: ConvProblem, engine: Engine, device: Target, *, final: bool) -> Offer:
    """The engine as a candidate. ``final`` finalizes a plan, too, and refuses in cuDNN's words what does not.

    On a device that is present that would load or compile each engine's kernels, 7 to 60 ms for each on an H200; so
    there it is left to whoever builds the candidate.
    """
    candidate = Candidate(
        problem=problem,
        backend="cudnn",
        algorithm=f"{_PREFIX}{engine.index}",
        config=_config(engine.knobs),
        arithmetic=arithmetic(problem.dtype, engine.notes),
        workspace_bytes=expected_workspace_bytes(engine.config),
        deterministic=NumericalNote.NONDETERMINISTIC not in engine.notes,
        source=Source.PLANNER,
        saves_products=bool(engine.notes & _FEWER_PRODUCTS),
        compiles=engine.compiles,
    )
    if final:
        try:
            plan = execution_plan(engine.config, device)
        except BackendError as failure:
            return Refusal(candidate.id, str(failure))
        return replace(candidate, workspace_bytes=workspace_bytes(plan))
    return candidate


def arithmetic(dtype: DType, notes: frozenset[NumericalNote]) -> Arithmetic:
    """How an engine with ``notes`` computes on operands stored as ``dtype``.

    >>> arithmetic(DType.FP32, frozenset({NumericalNote.TENSOR_CORE}))
    <Arithmetic.TF32: 'tf32'>
    """
    # Tensor cores take no fp32, so what uses them rounds its inputs. cuDNN's TF32 engines say TENSOR_CORE and nothing
    # else; DOWN_CONVERT_INPUTS alone would not say to what, and is called TF32 to be on the safe side.
    rounds = bool(notes & {NumericalNote.TENSOR_CORE, NumericalNote.DOWN_CONVERT_INPUTS})
    return native_arithmetic(dtype, tf32=rounds)


def _config(knobs: Knobs) -> Config:
    return tuple((f"k{knob}", value) for knob, value in knobs)


def _knobs(config: Config) -> Knobs:
    return tuple((int(name.removeprefix("k")), int(value)) for name, value in config)
