"""Bind a decision's choices to calls, with the part of the epilogue that is not fused."""

from __future__ import annotations

from torch import Tensor

from convwright import torch_api
from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.direction import Direction
from convwright.core.epilogue import activation_named
from convwright.eager.asking import ambient
from convwright.eager.asking.autocast import autocasting
from convwright.eager.calls.call import Call, per_call
from convwright.eager.calls.slots import Run
from convwright.eager.running.oom_fallback import bound
from convwright.eager.running.pytorchs_own import composite
from convwright.eager.running.runner import Runner
from convwright.eager.running.strides import with_strides
from convwright.tensors import activate, activate_
from convwright.tuning.session import Choice


def call_runner(choice: Choice, call: Call) -> Runner:
    """A choice for the call itself; for a transposed convolution, bias and activation follow it."""
    run = direction_runner(choice, call)
    return unfused_epilogue(run, call) if choice.candidate.problem.direction is Direction.BACKWARD_DATA else run


def direction_runner(choice: Choice, call: Call) -> Runner:
    """A choice for one direction, bound to calls with operands like these. Only a forward problem has a bias and a
    residual."""
    problem = choice.candidate.problem
    given = call.operands[:4] if problem.direction is Direction.FORWARD else (call.x, call.w, None, None)
    demanded = _is_demanded(problem.direction, call)
    return with_strides(bound(choice, given, call.policy, demanded=demanded), problem, call)


def torchs_own(call: Call) -> Run | None:
    """PyTorch's own functions and gradient; None if they can take the caller's arguments directly."""
    return torchs_functions(call) if call.has_more else None


def own_runner(call: Call) -> Runner:
    """PyTorch's own functions with a candidate's signature."""
    own, window = call.form.own, call.form.window(call.request)
    return torchs_own(call) or (lambda x, w, bias=None, _residual=None, _out=None: own(x, w, bias, *window))


def either_runner(eager: Run, captured: Run) -> Runner:
    """``captured`` during a capture of the current stream, else ``eager``."""
    is_capturing = torch_api.is_capturing
    return lambda *operands: (captured if is_capturing() else eager)(*operands)


def _is_demanded(direction: Direction, call: Call) -> bool:
    """Whether the caller named the candidate for a direction, so that no other may run."""
    if call.request.algorithm is not None and direction is call.form.direction:
        return True
    around = ambient.current()
    return around is not None and around.demanded(direction) is not None


def unfused_epilogue(run: Runner, call: Call) -> Runner:
    """``run``, which only convolves, followed by residual, bias and activation in place."""
    activation, shape = activation_named(call.request.activation), (-1, *[1] * call.form.rank)

    def runs(
        x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        y = run(x, w, None, None, out)
        if residual is not None:
            y.add_(residual)
        if bias is not None:
            y.add_(bias.view(shape))
        return activate_(y, activation)

    return runs


def activated(run: Runner | None, call: Call) -> Runner:
    """``run``, which computes all except the activation, followed by PyTorch's differentiable activation.

    None stands for PyTorch's own function, as it does in a slot.
    """
    own, window, activation = call.form.own, call.form.window(call.request), activation_named(call.request.activation)

    def runs(
        x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, _out: None = None
    ) -> Tensor:
        y = own(x, w, bias, *window) if run is None else run(x, w, bias, residual)
        return activate(y, activation)

    return runs


def torchs_functions(call: Call) -> Runner:
    """PyTorch's own functions for a call that needs more than ``F.conv2d``."""
    form, request = call.form, call.request
    if not (form.transposed or call.trains or autocasting(call.x)):
        return TorchPlan(torch_candidate(call.problem())).bare
    return per_call(form, request, composite)
