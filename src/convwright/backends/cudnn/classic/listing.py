"""cuDNN's classic API: the numbered algorithms of each direction as candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_size_t, c_void_p
from dataclasses import dataclass
from functools import partial

import torch

from convwright.backends.cudnn.classic.descriptors import ConvDescriptors, describe
from convwright.backends.cudnn.classic.operands import epilogue_objection, is_alone, objection
from convwright.backends.cudnn.classic.plan import ClassicPlan, Enqueue, fused_call, plain_call
from convwright.backends.cudnn.classic.planned import planned_bytes
from convwright.backends.cudnn.classic.rules import VERIFIED_ON, answer, is_bound
from convwright.backends.cudnn.library import Missing, handle, load
from convwright.backends.cudnn.status import SUCCESS
from convwright.core.candidate import Candidate, Config, Offer, Refusal, Source, leaf_id
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError, BadInput, Refused
from convwright.tensors import zeros


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One of cuDNN's algorithms. ``fuses``: it computes an epilogue in the same call."""

    name: str
    number: int
    deterministic: bool = True
    fuses: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """The algorithms of one direction and cuDNN's functions for them."""

    function: str
    workspace_query: str
    algorithms: tuple[Algorithm, ...]


FAMILIES = {
    Direction.FORWARD: Family(
        "cudnnConvolutionForward",
        "cudnnGetConvolutionForwardWorkspaceSize",
        algorithms=(
            Algorithm("implicit-gemm", 0),
            Algorithm("implicit-precomp-gemm", 1, fuses=True),
            Algorithm("gemm", 2),
            Algorithm("direct", 3),
            Algorithm("fft", 4),
            Algorithm("fft-tiling", 5),
            Algorithm("winograd", 6),
            Algorithm("winograd-nonfused", 7),
        ),
    ),
    Direction.BACKWARD_DATA: Family(
        "cudnnConvolutionBackwardData",
        "cudnnGetConvolutionBackwardDataWorkspaceSize",
        algorithms=(
            Algorithm("algo-0", 0, deterministic=False),
            Algorithm("algo-1", 1),
            Algorithm("fft", 2),
            Algorithm("fft-tiling", 3),
            Algorithm("winograd", 4),
            Algorithm("winograd-nonfused", 5),
        ),
    ),
    Direction.BACKWARD_WEIGHT: Family(
        "cudnnConvolutionBackwardFilter",
        "cudnnGetConvolutionBackwardFilterWorkspaceSize",
        algorithms=(
            Algorithm("algo-0", 0, deterministic=False),
            Algorithm("algo-1", 1),
            Algorithm("fft", 2),
            Algorithm("algo-3", 3, deterministic=False),
            Algorithm("winograd", 4),
            Algorithm("winograd-nonfused", 5),
            Algorithm("fft-tiling", 6),
        ),
    ),
}


def candidates(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every algorithm of the problem's direction in every arithmetic. cuDNN answers on a device of this machine; the
    rules answer for other devices.

    Algorithms that ``policy`` forbids are included: the choice says so in its table.
    """
    for arithmetic, config in _variants(problem.dtype):
        workspace_of = _answers(problem, device, arithmetic)
        for algorithm in FAMILIES[problem.direction].algorithms:
            answered = workspace_of(algorithm)
            if isinstance(answered, str):
                yield Refusal(leaf_id("cudnn", algorithm.name, config), answered)
                continue
            yield Candidate(
                problem,
                "cudnn",
                algorithm.name,
                config,
                arithmetic,
                workspace_bytes=answered,
                deterministic=algorithm.deterministic,
                source=Source.PLANNER if device.present else Source.RULE,
                saves_products=algorithm.name.startswith(("fft", "winograd")),
                workspace_is_bound=not device.present and is_bound(problem, algorithm.name, answered or 0),
            )


def build(candidate: Candidate, device: DeviceFacts) -> Plan:
    """The candidate, ready to run on the live device. cuDNN is asked again whether it supports the problem."""
    problem, algorithm = candidate.problem, _algorithm_of(candidate)
    asked = _described(problem, device, candidate.arithmetic)
    answer = asked if isinstance(asked, str) else _workspace_bytes(problem, device, asked, algorithm)
    if isinstance(asked, str) or isinstance(answer, str):
        raise Refused(f"{candidate.id}: {answer}")
    enqueue = _enqueue(problem, device, asked, algorithm, answer)
    return ClassicPlan(candidate, asked.library, enqueue, workspace_bytes=answer, device=_torch_device(device))


def _variants(dtype: DType) -> tuple[tuple[Arithmetic, Config], ...]:
    """The math types to offer. A candidate without one in its name computes in the dtype's own arithmetic."""
    own: tuple[Arithmetic, Config] = native_arithmetic(dtype, tf32=False), ()
    return (own, (Arithmetic.TF32, (("math", "tf32"),))) if dtype is DType.FP32 else (own,)


def _algorithm_of(candidate: Candidate) -> Algorithm:
    family = FAMILIES[candidate.problem.direction]
    found = next((algorithm for algorithm in family.algorithms if algorithm.name == candidate.algorithm), None)
    if found is None:
        names = ", ".join(algorithm.name for algorithm in family.algorithms)
        raise BadInput(f"algorithms of the classic API {candidate.problem.direction} are {names}, got {candidate.id!r}")
    return found


def _answers(
    problem: ConvProblem, device: DeviceFacts, arithmetic: Arithmetic
) -> Callable[[Algorithm], int | str | None]:
    """A function that returns the workspace of an algorithm (None if unknown), or the reason for a refusal."""
    if device.kind == "cuda" and not device.present:
        return partial(_ruled_bytes, problem, device, arithmetic)
    asked = _described(problem, device, arithmetic)
    return (lambda _: asked) if isinstance(asked, str) else partial(_workspace_bytes, problem, device, asked)


def _ruled_bytes(
    problem: ConvProblem, device: DeviceFacts, arithmetic: Arithmetic, algorithm: Algorithm
) -> int | str | None:
    """The rules' answer. They need no GPU, and use cuDNN's planner only for workspaces that no rule predicts."""
    if reason := _arithmetic_objection(device, arithmetic) or objection(problem):
        return reason
    if device.architecture not in VERIFIED_ON:
        verified = " and ".join(VERIFIED_ON)
        return f"unknown on {device.architecture}: the rules for the classic API are verified only on {verified}"
    if reason := epilogue_objection(problem, fuses=algorithm.fuses):
        return reason
    answered = answer(problem, algorithm.name, arithmetic)
    return planned_bytes(problem, device, arithmetic) if answered is None else answered


def _described(problem: ConvProblem, device: DeviceFacts, arithmetic: Arithmetic) -> ConvDescriptors | str:
    """The problem in cuDNN's descriptors, or the reason why no classic algorithm supports it."""
    reason = _device_objection(device, arithmetic) or objection(problem)
    if reason is not None:
        return reason
    library = load()
    if isinstance(library, Missing):
        return str(library)
    if library.no_classic_api is not None:
        return f"this is {library}"
    try:
        _current_handle(device)
        return describe(library, problem, arithmetic)
    except BackendError as failure:
        return str(failure)


def _device_objection(device: DeviceFacts, arithmetic: Arithmetic) -> str | None:
    if device.kind != "cuda":
        return f"cuDNN needs an NVIDIA GPU, got {device.name}"
    if not device.present:
        return f"cuDNN's classic API needs a device of this machine, and {device.name} is not in it"
    return _arithmetic_objection(device, arithmetic)


def _arithmetic_objection(device: DeviceFacts, arithmetic: Arithmetic) -> str | None:
    if arithmetic is Arithmetic.TF32 and not device.computes(arithmetic):
        return f"{device.name} ({device.architecture}) has no TF32"
    return None


def _torch_device(device: DeviceFacts) -> torch.device:
    return torch.device(str(device.torch_name))


def _current_handle(device: DeviceFacts) -> c_void_p:
    index: int = _torch_device(device).index
    return handle(index, torch.cuda.current_stream(index).cuda_stream)


def _workspace_bytes(
    problem: ConvProblem, device: DeviceFacts, described: ConvDescriptors, algorithm: Algorithm
) -> int | str:
    """The workspace that ``algorithm`` needs, or the reason for a refusal."""
    if reason := epilogue_objection(problem, fuses=algorithm.fuses):
        return reason
    family, size, library = FAMILIES[problem.direction], c_size_t(), described.library
    first, second, out = described.operands(problem.direction)
    asked = first, second, described.convolution, out, algorithm.number, byref(size)
    with torch.cuda.device(_torch_device(device)):
        status = library.status(family.workspace_query, _current_handle(device), *asked)
    return size.value if status == SUCCESS else library.explain(status)


def _enqueue(
    problem: ConvProblem, device: DeviceFacts, described: ConvDescriptors, algorithm: Algorithm, workspace_bytes: int
) -> Enqueue:
    fixed = algorithm.number, workspace_bytes
    if is_alone(problem):
        return plain_call(FAMILIES[problem.direction].function, problem, described, *fixed)
    if problem.epilogue.bias:
        return fused_call(problem, described, *fixed)
    return fused_call(problem, described, *fixed, zero_bias=zeros(problem.k, problem.dtype, _torch_device(device)))
