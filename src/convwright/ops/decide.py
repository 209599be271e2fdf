"""What a call will run from now on: the chosen candidates of its directions, made ready."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from convwright.backends.torch_native import TorchPlan, torch_candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.epilogue import Epilogue
from convwright.core.policy import Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.machine import device_facts
from convwright.ops.autograd import Training
from convwright.ops.node_cost import node_host_us
from convwright.ops.runner import Runner, runner
from convwright.tuning.choose import TIE
from convwright.tuning.session import Choice, session

# Input, weight, bias, residual.
Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
_BACKWARD = (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT)


@dataclass(frozen=True, slots=True)
class Decision:
    """``run`` None: PyTorch's own function, called with the caller's own arguments."""

    run: Runner | None
    choices: tuple[Choice, ...]


def decide(
    problem: ConvProblem, operands: Operands, *, algorithm: str | None, policy: Policy, bare: bool = True
) -> Decision:
    """Choose a candidate for each direction that these tensors need, and make it ready.

    ``bare`` says that a call's own arguments could go to ``F.conv2d``, as they could not with an output given.
    """
    facts = device_facts(operands[0].device)
    forward = session().choose(problem, facts, policy, algorithm)
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in operands if t is not None)):
        run = _torchs_own(problem, bare=bare) if forward.is_torch else _bound(forward, operands, policy)
        return Decision(run, (forward,))
    backward = _backward_choices(problem, operands, facts, policy)
    choices = (forward, *(choice for choice in backward if choice is not None))
    if all(choice.is_torch for choice in choices) or (algorithm is None and not _worth_a_node(choices)):
        return Decision(_torchs_own(problem, bare=bare), choices)
    return Decision(_trained(problem, forward, backward, operands, policy), choices)


def training(problem: ConvProblem, operands: Operands, *, algorithm: str | None, policy: Policy) -> Training:
    """The three directions of a convolution, whether or not they are PyTorch's own."""
    facts = device_facts(operands[0].device)
    forward = session().choose(problem, facts, policy, algorithm)
    return _trained(problem, forward, _backward_choices(problem, operands, facts, policy), operands, policy)


def _backward_choices(
    problem: ConvProblem, operands: Operands, device: DeviceFacts, policy: Policy
) -> list[Choice | None]:
    dense = problem.y.layout if problem.y.layout is not Layout.STRIDED else Layout.NCHW
    behind = replace(problem, y=problem.y.dense(dense))
    return [
        session().choose(behind.asking(direction), device, policy, None) if tensor.requires_grad else None
        for direction, tensor in zip(_BACKWARD, operands[:2], strict=True)
    ]


def _trained(
    problem: ConvProblem, forward: Choice, backward: list[Choice | None], operands: Operands, policy: Policy
) -> Training:
    bound = [None if choice is None or choice.is_torch else _bound(choice, operands, policy) for choice in backward]
    chosen = next((choice for choice in backward if choice is not None), None)
    gradient = chosen.candidate.problem.y if chosen is not None else problem.y
    return Training(problem, gradient, _bound(forward, operands, policy), *bound)


def _worth_a_node(choices: tuple[Choice, ...]) -> bool:
    """Whether the chosen candidates, behind a Python autograd node, are surely faster than PyTorch's own calls.

    Eagerly a step takes as long as the slower of host and device; on a CPU they are one.
    """
    ours_us = sum(choice.device_us.high if choice.device_us else inf for choice in choices)
    torchs_us = sum(choice.torch_device_us.low if choice.torch_device_us else 0.0 for choice in choices)
    kind = choices[0].device.kind
    with_node_us, without_us = node_host_us(kind)
    if kind == "cpu":
        return ours_us + with_node_us - without_us < (1 - TIE) * torchs_us
    return max(ours_us, with_node_us) < (1 - TIE) * max(torchs_us, without_us)


def _torchs_own(problem: ConvProblem, *, bare: bool) -> Runner | None:
    """PyTorch's own functions and gradient; None where the caller's arguments can go there as they are."""
    if bare and problem.epilogue in (Epilogue(), Epilogue(bias=True)) and problem.symmetric_padding is not None:
        return None
    return TorchPlan(torch_candidate(problem))


def _bound(choice: Choice, operands: Operands, policy: Policy) -> Runner:
    """A choice bound to calls with operands like these; those of a backward direction have no bias and no residual."""
    problem = choice.candidate.problem
    given = operands if problem.direction is Direction.FORWARD else (*operands[:2], None, None)
    own = TorchPlan(torch_candidate(problem))
    return runner(choice.plan(), given, own, weights_constant=policy.weights is Weights.CONSTANT)
