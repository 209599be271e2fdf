"""A call: one of the six functions, its options and its tensors, and the problem that they describe."""

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
    """The arguments of a call that are not tensors. ``output_padding`` belongs to a transposed convolution."""

    no_bias: bool = True
    stride: IntOrTuple = 1
    padding: IntOrTuple | str = 0
    dilation: IntOrTuple = 1
    groups: int = 1
    activation: str | None = None
    algorithm: str | None = None
    policy: Policy | None = None
    output_padding: IntOrTuple = 0

    def kept(self) -> Request:
        """A copy to remember: immune to later changes of a caller's list, with numbers as ints.

        An unknown algorithm or activation, or a bad policy, is refused here: at the first call only.
        """
        name = self.algorithm
        if name is not None and not (isinstance(name, str) and name):
            raise BadInput(
                f"`algorithm` must be an algorithm's id, for example 'torch/default', 'auto' or None, got {name!r}"
            )
        check_policy(self.policy)
        activation_named(self.activation)
        if _FIXED.issuperset(map(type, self)) and not any(_holds(value, list | Tensor) for value in self):
            return self
        return Request._make([_kept(name, value) for name, value in zip(self._fields, self, strict=True)])

    def same(self, other: tuple[object, ...]) -> bool:
        """Whether these are equal. Arrays and tensors, which compare by element, never are, nor are numbers that equal
        an int but that PyTorch does not take as one."""
        try:
            return bool(self == other) and not any(map(_is_mistaken, (*other[1:5], other[8])))
        except (ValueError, TypeError, RuntimeError, OverflowError):
            return False


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """One public function: PyTorch's ``own`` counterpart, and the remembered calls.

    ``axes`` are the spatial dimensions. ``stands_in`` marks a function put in PyTorch's place, whose callers asked for
    no option of ours.
    """

    name: str
    axes: tuple[str, ...]
    transposed: bool
    own: Callable[..., Tensor]
    slots: Slots = field(default_factory=Slots)
    stands_in: bool = False

    def window(self, request: Request) -> tuple[Any, ...]:
        """The arguments that ``own`` takes after the tensors, in order."""
        if self.transposed:
            return request.stride, request.padding, request.output_padding, request.groups, request.dilation
        return request.stride, request.padding, request.dilation, request.groups

    @property
    def direction(self) -> Direction:
        """The direction of its calls' problems."""
        return Direction.BACKWARD_DATA if self.transposed else Direction.FORWARD

    @property
    def rank(self) -> int:
        """The number of spatial dimensions. It is computed, since a compiler takes a stored number for a variable."""
        return len(self.axes)


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
    def operands(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Input, weight, bias, residual, output."""
        return self.x, self.w, self.bias, self.residual, self.out

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are given, input and weight first."""
        return tuple(tensor for tensor in self.operands if tensor is not None)

    @property
    def extra(self) -> object:
        """A key for the residual and the output; None if the call has neither."""
        if self.residual is None and self.out is None:
            return None
        return self.residual is not None, self.out is not None

    @property
    def has_more(self) -> bool:
        """Whether the call uses more than PyTorch's function takes."""
        return self.extra is not None or (self.request.activation or "none") != "none"

    @property
    def policy(self) -> Policy:
        """The policy of the call, or the default."""
        return self.request.policy or Policy()

    @property
    def trains(self) -> bool:
        """Whether a gradient is needed."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    def torchs_own(self) -> Tensor:
        """PyTorch's function on the caller's own arguments."""
        return self.form.own(self.x, self.w, self.bias, *self.form.window(self.request))

    def problem(self) -> ConvProblem:
        """The problem of this call. Bad input raises one sentence."""
        request, padding = self.request, self.request.padding
        if self.form.transposed:
            return transposed_problem_of(
                self.x, self.w, self.bias,
                stride=request.stride, padding=request.padding, output_padding=request.output_padding,
                dilation=request.dilation, groups=request.groups, residual=self.residual, out=self.out,
            )  # fmt: skip
        if not isinstance(padding, str):
            padding = per_axis("padding", padding, self.form.rank)  # PyTorch's functions accept no pairs
        return problem_of(
            self.x, self.w, self.bias,
            stride=request.stride, padding=padding, dilation=request.dilation, groups=request.groups,
            activation=request.activation, residual=self.residual, out=self.out,
        )  # fmt: skip

    def output_layout(self, problem: ConvProblem) -> Layout:
        """The layout of PyTorch's own output for the problem of this call."""
        added = per_axis("output_padding", self.request.output_padding, problem.rank) if self.form.transposed else None
        return output_layout(problem, self.x, self.w, self.bias, added)


def as_batch(operand: Tensor | None) -> Tensor | None:
    """A single image as a batch of one."""
    return operand.unsqueeze(0) if isinstance(operand, Tensor) else operand


def per_call(form: Form, request: Request, compute: Callable[[Call], Tensor]) -> Callable[..., Tensor]:
    """``compute`` with a candidate's signature: it takes the tensors of each call."""
    return lambda x, w, bias=None, residual=None, out=None: compute(Call(form, x, w, bias, residual, out, request))


CONV1D = Form("conv1d", ("L",), False, torch.conv1d)
CONV2D = Form("conv2d", ("H", "W"), False, torch.conv2d)
CONV3D = Form("conv3d", ("D", "H", "W"), False, torch.conv3d)
CONV_TRANSPOSE1D = Form("conv_transpose1d", ("L",), True, torch.conv_transpose1d)
CONV_TRANSPOSE2D = Form("conv_transpose2d", ("H", "W"), True, torch.conv_transpose2d)
CONV_TRANSPOSE3D = Form("conv_transpose3d", ("D", "H", "W"), True, torch.conv_transpose3d)
# The functions that users call, by name.
PUBLIC: dict[str, Callable[..., Tensor]] = {}
FORMS = (CONV1D, CONV2D, CONV3D, CONV_TRANSPOSE1D, CONV_TRANSPOSE2D, CONV_TRANSPOSE3D)


@cache
def stand_ins() -> tuple[Form, ...]:
    """The six forms again, with their own memory, for the functions put in PyTorch's place."""
    return tuple(replace(form, slots=Slots(), stands_in=True) for form in FORMS)


def forget() -> None:
    """Drop every remembered call, so that the next call of each kind decides again."""
    for form in (*FORMS, *stand_ins()):
        form.slots.forget()


def _forget_gpu() -> None:
    """In a forked child: drop decisions for GPUs, which PyTorch does not let it use."""
    if flags.cuda_lost():
        forget()


when_news(forget)
in_child(_forget_gpu)


_FIXED = {int, bool, str, tuple, type(None), Policy}


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
