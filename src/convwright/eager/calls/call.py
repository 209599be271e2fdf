"""A call: which of the six functions, what is asked for, the tensors, and the problem that all this poses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from operator import index
from types import UnionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from convwright import flags
from convwright.core.direction import Direction
from convwright.core.epilogue import activation_named
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import ConvProblem, IntOrTuple, per_axis
from convwright.core.tensor_spec import Layout
from convwright.eager.asking.describe import output_layout, problem_of, transposed_problem_of
from convwright.eager.calls.slots import Slots
from convwright.errors import BadInput
from convwright.forking import in_child
from convwright.tuning.session import when_news


class Request(NamedTuple):
    """The arguments of a call that are no tensors. ``output_padding`` is a transposed convolution's."""

    no_bias: bool
    stride: IntOrTuple
    padding: IntOrTuple | str
    dilation: IntOrTuple
    groups: int
    activation: str | None = None
    algorithm: str | None = None
    policy: Policy | None = None
    output_padding: IntOrTuple = 0

    def kept(self) -> Request:
        """The same, to be remembered: a caller's list may be changed after the call, and other numbers become ints.

        What names no algorithm or activation, and what is no policy, is refused here, where a call is looked at for
        the first time.
        """
        if self.activation is not None or self.algorithm is not None or self.policy is not None:
            _check_algorithm(self.algorithm)
            check_policy(self.policy)
            activation_named(self.activation)
        if _FIXED.issuperset(map(type, self)) and not any(_holds(value, list | Tensor) for value in self):
            return self
        return Request._make([_kept(name, value) for name, value in zip(self._fields, self, strict=True)])

    def same(self, other: tuple[object, ...]) -> bool:
        """Whether these are equal; arrays and tensors, which compare by element, never are, and neither is what equals
        a whole number and is none to PyTorch."""
        try:
            return bool(self == other) and not any(map(_is_mistaken, (*other[1:5], other[8])))
        except (ValueError, TypeError, RuntimeError, OverflowError):
            return False


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """One public function: PyTorch's ``own`` counterpart, and the calls that are remembered.

    ``axes`` are the spatial dimensions; ``stands_in`` marks what is put in PyTorch's place, whose callers asked for
    nothing.
    """

    name: str
    axes: tuple[str, ...]
    transposed: bool
    own: Callable[..., Tensor]
    slots: Slots = field(default_factory=Slots)
    stands_in: bool = False

    def window(self, request: Request) -> tuple[Any, ...]:
        """The arguments that ``own`` takes after the tensors, in its order."""
        if self.transposed:
            return request.stride, request.padding, request.output_padding, request.groups, request.dilation
        return request.stride, request.padding, request.dilation, request.groups

    @property
    def direction(self) -> Direction:
        """That of the problems which its calls pose."""
        return Direction.BACKWARD_DATA if self.transposed else Direction.FORWARD

    @property
    def rank(self) -> int:
        """How many spatial dimensions there are. A number that is stored could be any to a compiler."""
        return len(self.axes)


# Input, weight, bias, residual, output.
Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    form: Form
    x: Tensor
    w: Tensor
    bias: Tensor | None
    residual: Tensor | None
    out: Tensor | None
    request: Request

    @property
    def operands(self) -> Operands:
        return self.x, self.w, self.bias, self.residual, self.out

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those that are there, input and weight first."""
        return tuple(tensor for tensor in self.operands if tensor is not None)

    @property
    def extra(self) -> object:
        """What tells this call from one without a residual and an output; None where it has neither."""
        if self.residual is None and self.out is None:
            return None
        return self.residual is not None, self.out is not None

    @property
    def has_more(self) -> bool:
        """Whether there is more to it than PyTorch's function takes."""
        return self.extra is not None or (self.request.activation or "none") != "none"

    @property
    def policy(self) -> Policy:
        """What is allowed, and what is made least; the default where nothing was asked for."""
        return self.request.policy or Policy()

    @property
    def trains(self) -> bool:
        """Whether a gradient is wanted of it."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    def torchs_own(self) -> Tensor:
        """PyTorch's function on the caller's own arguments."""
        return self.form.own(self.x, self.w, self.bias, *self.form.window(self.request))

    def problem(self) -> ConvProblem:
        """The problem that this call poses; bad input is refused here, in one sentence."""
        request, padding = self.request, self.request.padding
        if self.form.transposed:
            return transposed_problem_of(
                self.x, self.w, self.bias,
                stride=request.stride, padding=request.padding, output_padding=request.output_padding,
                dilation=request.dilation, groups=request.groups, residual=self.residual, out=self.out,
            )  # fmt: skip
        if not isinstance(padding, str):
            padding = per_axis("padding", padding, self.form.rank)  # PyTorch's functions take no pairs
        return problem_of(
            self.x, self.w, self.bias,
            stride=request.stride, padding=padding, dilation=request.dilation, groups=request.groups,
            activation=request.activation, residual=self.residual, out=self.out,
        )  # fmt: skip

    def output_layout(self, problem: ConvProblem) -> Layout:
        """The layout of PyTorch's own output, for the problem that this call poses."""
        added = per_axis("output_padding", self.request.output_padding, problem.rank) if self.form.transposed else None
        return output_layout(problem, self.x, self.w, self.bias, added)


def as_batch(operand: Tensor | None) -> Tensor | None:
    """One image as a batch of it."""
    return operand.unsqueeze(0) if isinstance(operand, Tensor) else operand


def per_call(form: Form, request: Request, compute: Callable[[Call], Tensor]) -> Callable[..., Tensor]:
    """``compute``, called as a candidate is: with the tensors of each call."""
    return lambda x, w, bias=None, residual=None, out=None: compute(Call(form, x, w, bias, residual, out, request))


CONV1D = Form("conv1d", ("L",), False, torch.conv1d)
CONV2D = Form("conv2d", ("H", "W"), False, torch.conv2d)
CONV3D = Form("conv3d", ("D", "H", "W"), False, torch.conv3d)
CONV_TRANSPOSE1D = Form("conv_transpose1d", ("L",), True, torch.conv_transpose1d)
CONV_TRANSPOSE2D = Form("conv_transpose2d", ("H", "W"), True, torch.conv_transpose2d)
CONV_TRANSPOSE3D = Form("conv_transpose3d", ("D", "H", "W"), True, torch.conv_transpose3d)
# The functions that users call, by the names of their forms.
PUBLIC: dict[str, Callable[..., Tensor]] = {}
FORMS = (CONV1D, CONV2D, CONV3D, CONV_TRANSPOSE1D, CONV_TRANSPOSE2D, CONV_TRANSPOSE3D)


@cache
def stand_ins() -> tuple[Form, ...]:
    """The same six with a memory of their own, for what is put in the place of PyTorch's functions."""
    return tuple(replace(form, slots=Slots(), stands_in=True) for form in FORMS)


def forget() -> None:
    """Drop every remembered call, so that the next one of each kind decides anew."""
    for form in (*FORMS, *stand_ins()):
        form.slots.forget()


def _forget_gpu() -> None:
    """What was decided for a GPU serves nobody in a child, which PyTorch does not let use it."""
    if flags.cuda_lost():
        forget()


when_news(forget)
in_child(_forget_gpu)


_FIXED = {int, bool, str, tuple, type(None), Policy}


def _check_algorithm(given: object) -> None:
    if given is not None and not (isinstance(given, str) and given):
        raise BadInput(
            f"`algorithm` must be an algorithm's id, for example 'torch/default', 'auto' or None, got {given!r}"
        )


def _is_mistaken(value: object) -> bool:
    return isinstance(value, float | bool) or (isinstance(value, list | tuple) and any(map(_is_mistaken, value)))


def _holds(value: object, kinds: type | UnionType) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(each, kinds) for each in value)


def _kept(name: str, value: object) -> object:
    try:
        if _holds(value, Tensor):
            value = [index(each) if isinstance(each, Tensor) else each for each in value]  # type: ignore[attr-defined]
        nested = _holds(value, list)
        if value is None or (isinstance(value, int | str | tuple | Policy) and not nested):
            return value
        if isinstance(value, list) and not nested:
            return [*value]
        return index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        wanted = "a whole number" if name == "groups" else "an int or a tuple of ints"
        raise BadInput(f"`{name}` must be {wanted}, got {value!r}") from None
