"""What a call will run from now on: the chosen candidates of its directions, made ready."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.epilogue import Epilogue
from convwright.core.policy import Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.machine import device_facts
from convwright.ops.autograd import Training
from convwright.ops.runner import Runner, runner
from convwright.tuning.session import Choice, session

# Host time that a Python autograd node adds to forward and backward together (benchmarks/results/host-cost.jsonl).
AUTOGRAD_HOST_US = 10.0
_BACKWARD = (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT)


@dataclass(frozen=True, slots=True)
class Decision:
    """``run`` None: PyTorch's own function, called with the caller's own arguments."""

    run: Runner | None
    choices: tuple[Choice, ...]


def decide(problem: ConvProblem, tensors: tuple[Tensor, ...], *, algorithm: str | None, policy: Policy) -> Decision:
    """Choose a candidate for each direction that these tensors need, and make it ready."""
    device, facts = tensors[0].device, device_facts(tensors[0].device)
    forward = session().choose(problem, facts, policy, algorithm)
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        run = _torchs_own(problem, facts, policy) if forward.is_torch else _bound(forward, device, policy)
        return Decision(run, (forward,))
    backward = _backward_choices(problem, tensors[:2], facts, policy)
    choices = (forward, *(choice for choice in backward if choice is not None))
    if all(choice.is_torch for choice in choices) or (algorithm is None and not _worth_a_node(choices)):
        return Decision(_torchs_own(problem, facts, policy), choices)
    return Decision(_trained(problem, forward, backward, device, policy), choices)


def training(
    problem: ConvProblem, operands: tuple[Tensor, Tensor], *, algorithm: str | None, policy: Policy
) -> Training:
    """The three directions of a convolution, whether or not they are PyTorch's own."""
    device, facts = operands[0].device, device_facts(operands[0].device)
    forward = session().choose(problem, facts, policy, algorithm)
    return _trained(problem, forward, _backward_choices(problem, operands, facts, policy), device, policy)


def _backward_choices(
    problem: ConvProblem, operands: tuple[Tensor, ...], device: DeviceFacts, policy: Policy
) -> list[Choice | None]:
    dense = problem.y.layout if problem.y.layout is not Layout.STRIDED else Layout.NCHW
    behind = replace(problem, y=problem.y.dense(dense))
    return [
        session().choose(behind.asking(direction), device, policy, None) if tensor.requires_grad else None
        for direction, tensor in zip(_BACKWARD, operands, strict=True)
    ]


def _trained(
    problem: ConvProblem, forward: Choice, backward: list[Choice | None], device: torch.device, policy: Policy
) -> Training:
    bound = [None if choice is None or choice.is_torch else _bound(choice, device, policy) for choice in backward]
    chosen = next((choice for choice in backward if choice is not None), None)
    gradient = chosen.candidate.problem.y if chosen is not None else problem.y
    return Training(problem, gradient, _bound(forward, device, policy), *bound)


def _worth_a_node(choices: tuple[Choice, ...]) -> bool:
    """Whether the time saved over PyTorch's own calls pays for a Python autograd node."""
    return sum(choice.saved_us or 0.0 for choice in choices) > AUTOGRAD_HOST_US


def _torchs_own(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Runner | None:
    """PyTorch's own functions and gradient; None where the caller's arguments can go there as they are."""
    if problem.epilogue in (Epilogue(), Epilogue(bias=True)) and problem.symmetric_padding is not None:
        return None
    return session().choose(problem, device, policy, "torch/default").plan()


def _bound(choice: Choice, device: torch.device, policy: Policy) -> Runner:
    packs = choice.candidate.problem.direction is not Direction.BACKWARD_WEIGHT
    constant = policy.weights is Weights.CONSTANT
    return runner(choice.plan(), device, packs_weight=packs, weights_constant=constant)
