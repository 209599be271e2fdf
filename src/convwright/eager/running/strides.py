"""Give results PyTorch's strides along dimensions of size 1: a problem ignores these, but users can see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from torch import Tensor

from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, dense_strides, same_order
from convwright.eager.asking.describe import suggested
from convwright.eager.calls.call import Call

_Run = TypeVar("_Run", bound=Callable[..., Tensor])


def with_strides(run: _Run, problem: ConvProblem, call: Call) -> _Run:
    """``run``, which computes ``problem`` for ``call`` into new memory, with results whose strides along dimensions of
    size 1 are also PyTorch's."""
    spec, is_gradient = problem.output, problem.direction is not call.form.direction
    # A sum or an activation returns NCHW if it can, and a given output keeps its layout.
    if 1 not in spec.shape or (call.has_more and not is_gradient):
        return run
    shape, strides = spec.shape, dense_strides(spec.shape, _layout(problem, call))
    if strides == spec.strides or not same_order(shape, strides, spec.strides):
        return run
    return cast(_Run, lambda *given, **rare: run(*given, **rare).as_strided_(shape, strides))


def _layout(problem: ConvProblem, call: Call) -> Layout:
    """An output has the layout of PyTorch's own. An input's gradient has channels last if the output or the input has;
    a weight's gradient if the weight has, since optimizers want both in one layout."""
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return suggested(call.w)
    outputs = call.output_layout(problem)
    return outputs if problem.direction is call.form.direction or outputs is Layout.NHWC else suggested(call.x)
