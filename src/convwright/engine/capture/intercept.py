"""Observe every convolution that PyTorch computes: modules, functions, compiled and traced programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from convwright import torch_api
from convwright.eager.calls.call import Call
from convwright.eager.running.pytorchs_own import intercepted, is_transformed
from convwright.uncompiled import uncompiled

_aten = torch.ops.aten
_ORDER = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED_ORDER = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_FULL_ORDER = (*_ORDER[:6], "transposed", "output_padding", "groups")

# Functions that users call. They resolve padding="same".
_FUNCTIONS: dict[Any, tuple[str, ...]] = {
    torch.conv1d: _ORDER,
    torch.conv2d: _ORDER,
    torch.conv3d: _ORDER,
    torch.conv_transpose1d: _TRANSPOSED_ORDER,
    torch.conv_transpose2d: _TRANSPOSED_ORDER,
    torch.conv_transpose3d: _TRANSPOSED_ORDER,
}
# Operators that compiled, traced and transformed programs call, and that the functions above end in.
_OPERATORS: dict[Any, tuple[str, ...]] = {
    _aten.convolution.default: _FULL_ORDER,
    torch_api.aten_operator("convolution").default: _FULL_ORDER,
    **{getattr(_aten, f"conv{rank}d").default: _ORDER for rank in (1, 2, 3)},
    **{getattr(_aten, f"conv{rank}d").padding: _ORDER for rank in (1, 2, 3)},
    _aten.conv_transpose1d.default: _TRANSPOSED_ORDER,
    _aten.conv_transpose2d.input: _TRANSPOSED_ORDER,
    _aten.conv_transpose3d.input: _TRANSPOSED_ORDER,
}
_TRANSPOSED = {function for function, order in (_FUNCTIONS | _OPERATORS).items() if order is _TRANSPOSED_ORDER}


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """One call with the arguments of ``torch.nn.functional.conv2d`` or ``conv_transpose2d``, and the epilogue that a
    call of ours computes with it."""

    x: Tensor
    w: Tensor
    bias: Tensor | None
    stride: int | Sequence[int]
    padding: int | Sequence[int] | str
    dilation: int | Sequence[int]
    groups: int
    transposed: bool
    output_padding: int | Sequence[int]
    residual: Tensor | None = None
    activation: str | None = None

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.x, self.w, self.bias, self.residual


class Watcher:
    """Receives each call; subclasses decide what to do with it."""

    def convolution(self, call: Convolution, output: Tensor) -> None: ...

    def function(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Any other function of PyTorch that the program calls."""


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Report every convolution of this thread to ``watcher``. Compiled models run as they were written."""
    functions = _Functions(watcher)
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(intercepted(functions.around))
        stack.enter_context(_Operators(watcher, functions))
        stack.enter_context(functions)
        yield


class _Functions(TorchFunctionMode):
    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher
        self.reported = False  # whether the current convolution was reported
        self.silent = False  # while one of our own calls, already reported, is computed

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.silent:
            return func(*args, **kwargs)
        if func not in _FUNCTIONS or is_transformed():  # under vmap only operators see real tensors
            result = func(*args, **kwargs)
            self.watcher.function(func, args, kwargs, result)
            return result
        self.reported = True
        try:
            result = func(*args, **kwargs)
        finally:
            self.reported = False
        self.watcher.convolution(_call(func, _FUNCTIONS[func], args, kwargs), result)
        return result

    def around(self, call: Call, compute: Callable[[], Tensor]) -> Tensor:
        """Report one of our own calls once, whichever of PyTorch's functions compute it."""
        if is_transformed() or self.silent:
            return compute()
        self.silent = True
        try:
            result = compute()
            self.watcher.convolution(_ours(call), result)
        finally:
            self.silent = False
        return result


class _Operators(torch_api.TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, watcher: Watcher, functions: _Functions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watcher = watcher
        self.functions = functions

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which it does by loading all of Dynamo, for a second

    @uncompiled()
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _OPERATORS and not (self.functions.reported or self.functions.silent):
            self.watcher.convolution(_call(func, _OPERATORS[func], args, kwargs or {}), result)
        return result


def _ours(call: Call) -> Convolution:
    request = call.request
    return Convolution(
        call.x, call.w, call.bias, request.stride, request.padding, request.dilation, request.groups,
        call.form.transposed, request.output_padding, call.residual, request.activation,
    )  # fmt: skip


def _call(function: Any, order: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Convolution:
    given = dict(zip(order, args, strict=False)) | dict(kwargs)
    return Convolution(
        x=given["input"],
        w=given["weight"],
        bias=given.get("bias"),
        stride=given.get("stride", 1),
        padding=given.get("padding", 0),
        dilation=given.get("dilation", 1),
        groups=given.get("groups", 1),
        transposed=given.get("transposed", function in _TRANSPOSED),
        output_padding=given.get("output_padding", 0),
    )
