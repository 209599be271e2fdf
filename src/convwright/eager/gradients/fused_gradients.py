"""Gradients by kernels that also compute ReLU's derivative and the bias's gradient.

Without fusion, the gradient before the activation is written to memory first; both gradients then read it, and the bias
sums it. With many outputs and few channels that takes as long as the gradients themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction, Role
from convwright.core.epilogue import Epilogue
from convwright.core.fusing import has_extended_epilogue
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec, same_order
from convwright.eager.calls.call import Call
from convwright.eager.calls.posed import FROM_OUTPUT, Wanted, gradient_problems
from convwright.eager.gradients.autograd import Gradients
from convwright.eager.running.runner import on_device
from convwright.eager.running.strides import with_strides
from convwright.eager.running.workspace import workspace
from convwright.errors import Refused
from convwright.measuring.compare import TIE
from convwright.shortage import SHORTAGES, is_shortage
from convwright.tensors import empty
from convwright.tuning import listing
from convwright.tuning.session import Choice

_FASTEST = (Objective.TIME, Objective.DEVICE_TIME)


def fused_problems(
    problem: ConvProblem, wanted: Wanted, policy: Policy, device: DeviceFacts
) -> list[ConvProblem | None]:
    """The fused gradient problems of input and weight, None where no gradient is needed. The list is empty if there is
    nothing to fuse, no kernel fuses it, or the policy asks for more than speed."""
    activation = problem.epilogue.activation
    if problem.direction is not Direction.FORWARD or activation not in FROM_OUTPUT:
        return []
    # A residual needs the gradient before the activation itself.
    if policy.objective not in _FASTEST or wanted.residual or (wanted.bias and not wanted.w):
        return []
    to_input, to_weight = gradient_problems(problem, wanted)
    asked = [
        to_input and replace(to_input, epilogue=Epilogue(activation=activation)),
        to_weight and replace(to_weight, epilogue=Epilogue(bias=wanted.bias, activation=activation)),
    ]
    rare = [each for each in asked if each is not None and has_extended_epilogue(each)]
    return asked if rare and all(_is_fused(each, device) for each in rare) else []


def _is_fused(problem: ConvProblem, device: DeviceFacts) -> bool:
    offers = listing.direct(problem, device, Policy())
    return any(isinstance(offer, Candidate) and offer.backend != "torch" for offer in offers)


def fused_choices(
    asked: Sequence[ConvProblem | None], plain: Sequence[Choice | None], choose: Callable[[ConvProblem], Choice]
) -> list[Choice | None] | None:
    """Choices for fused gradients, if surely faster than ``plain``."""
    try:
        found = [None if each is None else choose(each) for each in asked]
    except Refused:
        return None
    return with_shared_work(found, plain) if found and are_faster(found, plain) else None


def are_faster(fused: Sequence[Choice | None], plain: Sequence[Choice | None]) -> bool:
    """Whether fused choices are surely faster than ``plain`` ones after a separate derivative.

    The time of the derivative is the difference between PyTorch's own calls with it and without.
    """
    fused_us = alone_us = ahead_us = 0.0
    for ours, alone in zip(fused, plain, strict=True):
        if ours is None or alone is None:
            continue
        if ours.device_us is None or alone.device_us is None:
            return False
        fused_us += ours.device_us.high
        alone_us += alone.device_us.low
        if has_extended_epilogue(ours.candidate.problem):
            together_us, alone_torch_us = ours.torch_device_us, alone.torch_device_us
            is_one_kernel = not ours.is_torch and ours.candidate.inner is None
            if not is_one_kernel or together_us is None or alone_torch_us is None:
                return False
            # Both fuse the derivative; the weight's gradient, which comes last, also fuses the bias's gradient.
            ahead_us = max(together_us.value - alone_torch_us.value, 0.0)
    return fused_us < (1 - TIE) * (alone_us + ahead_us)


def with_shared_work(fused: Sequence[Choice | None], plain: Sequence[Choice | None]) -> list[Choice | None]:
    """The same choices, with times of PyTorch's own calls that count the shared derivative once."""
    to_input, to_weight = fused
    alone = plain[0]
    if to_input and to_weight and alone and has_extended_epilogue(to_input.candidate.problem):
        to_input = replace(to_input, torch_device_us=alone.torch_device_us)
    return [to_input, to_weight]


class FusedGradients:
    """Both fused gradients, ready for operands with the layouts of their problems."""

    __slots__ = ("_masks", "_needs", "_run")

    def __init__(self, choices: Sequence[Choice | None], call: Call) -> None:
        to_input, to_weight = choices
        steps = [None if choice is None else _step(choice, call) for choice in choices]
        with_bias = Wanted.at(call).bias
        self._needs = (to_input is not None, to_weight is not None, with_bias)
        chosen = to_weight or to_input
        assert chosen is not None
        problem = chosen.candidate.problem
        self._masks = tuple(spec.alignment - 1 for spec in (problem.y, problem.x, problem.w, problem.y))
        bias = TensorSpec((problem.k,), problem.dtype) if with_bias else None
        self._run = on_device(partial(_gradients, steps, bias), call.x.device)

    def __call__(
        self, dy: Tensor, x: Tensor, w: Tensor, y: Tensor | None, needs: tuple[bool, bool, bool]
    ) -> Gradients | None:
        """The gradients of input, weight and bias. None if other gradients are needed than were chosen, if an operand
        has another layout, or if memory runs out."""
        if needs != self._needs or self._is_astray(dy, x, w, y):
            return None
        try:
            return self._run(dy, x, w, y)
        except SHORTAGES as error:
            if not is_shortage(error):
                raise
        return None

    def _is_astray(self, dy: Tensor, x: Tensor, w: Tensor, y: Tensor | None) -> bool:
        if y is not None and not same_order(y.shape, y.stride(), dy.stride()):
            return True
        given = (dy, x, w, dy if y is None else y)
        return any(tensor.data_ptr() & mask for tensor, mask in zip(given, self._masks, strict=True))


def _gradients(
    steps: Sequence[Callable[..., Tensor] | None],
    bias: TensorSpec | None,
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    y: Tensor | None,
) -> Gradients:
    to_input, to_weight = steps
    db = None if bias is None else empty(bias, dy.device)
    dx = None if to_input is None else to_input(dy, w, y, None)
    dw = None if to_weight is None else to_weight(x, dy, y, db)
    return dx, dw, db


def _step(choice: Choice, call: Call) -> Callable[..., Tensor]:
    """One plan with its workspace, called with its epilogue's operands."""
    problem, plan = choice.candidate.problem, choice.plan()
    run: Callable[..., Tensor] = plan
    scratch = workspace(plan.workspace_bytes, call.x.device) if plan.workspace_bytes else None
    packs, has_z, has_db = (role in problem.operands for role in (Role.W, Role.Z, Role.DB))

    def step(first: Tensor, second: Tensor, z: Tensor | None, db: Tensor | None) -> Tensor:
        packed = plan.prepare(second) if packs else second
        rare = {"z": z} if has_z else {}
        if has_db:
            rare["db"] = db
        return run(first, packed, None, None, None, None if scratch is None else scratch(), **rare)

    return with_strides(step, problem, call)
