"""What stands for a tensor without being one, as in ``torch.fx.symbolic_trace``: it is told of the call."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.overrides import handle_torch_function

from convwright.eager.asking.request import Request
from convwright.eager.calls.form import PUBLIC, Form


def is_proxy(operand: object) -> bool:
    """True for what wants to be told of functions and is no tensor."""
    return operand is not None and not isinstance(operand, Tensor) and hasattr(operand, "__torch_function__")


def noted(form: Form, x: Any, w: Any, bias: Any, request: Request, residual: Any, out: Any) -> Tensor:
    """Let such an operand do with the call what it does with those of PyTorch's functions."""
    relevant = [operand for operand in (x, w, bias, residual, out) if operand is not None]
    asked = {"activation": request.activation, "algorithm": request.algorithm, "policy": request.policy}
    named = {name: value for name, value in (asked | {"residual": residual, "out": out}).items() if value is not None}
    function, window = PUBLIC[form.name], form.window(request)
    made: Tensor = handle_torch_function(function, relevant, x, w, bias, *window, **named)
    return made
