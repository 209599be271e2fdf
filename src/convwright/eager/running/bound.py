"""A decision's choices, bound to the calls that they are for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convwright.core.direction import Direction
from convwright.core.epilogue import Activation, activation_named
from convwright.core.policy import Policy
from convwright.eager.asking import ambient
from convwright.eager.calls.call import Call
from convwright.eager.calls.slots import Run
from convwright.eager.running.oom_fallback import bound
from convwright.eager.running.runner import Runner
from convwright.eager.running.strides import with_strides
from convwright.eager.running.unfused_epilogue import torchs_functions, unfused_epilogue
from convwright.tuning.session import Choice

_C: Any = torch._C


def direction_runner(choice: Choice, call: Call) -> Runner:
    """A choice for one of the directions of a call that trains."""
    return (
        call_runner(choice, call) if choice.candidate.problem.direction is call.form.direction else _bound(choice, call)
    )


def call_runner(choice: Choice, call: Call) -> Runner:
    """A choice for the call itself; a transposed convolution's bias and activation follow it."""
    run = _bound(choice, call)
    return unfused_epilogue(run, call) if choice.candidate.problem.direction is Direction.BACKWARD_DATA else run


def _bound(choice: Choice, call: Call) -> Runner:
    """A choice bound to calls with operands like these; only a forward problem has a bias and a residual."""
    problem = choice.candidate.problem
    given = call.operands[:4] if problem.direction is Direction.FORWARD else (call.x, call.w, None, None)
    demanded = _is_demanded(problem.direction, call)
    return with_strides(bound(choice, given, call.request.policy or Policy(), demanded=demanded), problem, call)


def torchs_own(call: Call) -> Run | None:
    """PyTorch's own functions and gradient; None where the caller's arguments can go there as they are."""
    return torchs_functions(call) if _has_more(call) else None


def _own_runner(call: Call) -> Runner:
    """PyTorch's own functions, called as a candidate is."""
    if _has_more(call):
        return torchs_functions(call)
    own, window = call.form.own, call.form.window(call.request)
    return lambda x, w, bias=None, _residual=None, _out=None: own(x, w, bias, *window)


def _has_more(call: Call) -> bool:
    """Whether there is more to a call than ``F.conv2d`` takes."""
    return call.extra is not None or activation_named(call.request.activation) is not Activation.NONE


def either_runner(eager: Run | None, captured: Run | None, call: Call) -> Runner:
    """``captured`` while the current stream is captured, and ``eager`` otherwise."""
    is_capturing, ours = _C._cuda_isCurrentStreamCapturing, eager or _own_runner(call)
    in_graph = captured or _own_runner(call)

    def run(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        return (in_graph if is_capturing() else ours)(x, w, bias, residual, out)

    return run


def _is_demanded(direction: Direction, call: Call) -> bool:
    """Whether what computes a direction of a call was named, so that nothing else may."""
    if call.request.algorithm is not None and direction is call.form.direction:
        return True
    around = ambient.current()
    return around is not None and around.demanded(direction) is not None
