"""A convolution module of PyTorch that convwright computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import is_parametrized

from convwright import torch_api
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager import functional
from convwright.eager.asking.ambient import AUTO, algorithms_of, asking
from convwright.eager.asking.autocast import autocasting, lowered_dtype
from convwright.eager.asking.describe import problem_of, transposed_problem_of
from convwright.eager.calls.posed import Wanted, gradient_problems
from convwright.eager.decision import choices_for, choices_where_possible
from convwright.eager.gradients.fused_gradients import fused_choices, fused_problems
from convwright.eager.running.pytorchs_own import COMPUTED_ON
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import SERVED
from convwright.tuning.session import Choice
from convwright.uncompiled import uncompiled

_FUNCTIONS: dict[tuple[bool, int], Callable[..., Tensor]] = {
    (False, 1): functional.conv1d, (False, 2): functional.conv2d, (False, 3): functional.conv3d,
    (True, 1): functional.conv_transpose1d, (True, 2): functional.conv_transpose2d,
    (True, 3): functional.conv_transpose3d,
}  # fmt: skip
# Of PyTorch's classes: whether it is transposed, and its spatial dimensions.
_FORMS: dict[Any, tuple[bool, int]] = {
    nn.Conv1d: (False, 1), nn.Conv2d: (False, 2), nn.Conv3d: (False, 3),
    nn.ConvTranspose1d: (True, 1), nn.ConvTranspose2d: (True, 2), nn.ConvTranspose3d: (True, 3),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wish:
    """How to compute a layer: algorithms by direction, and a policy. The key None stands for the direction of the
    call. Unless it is ``strict``, the choice is free for a problem that an algorithm cannot compute."""

    algorithms: Mapping[Direction | None, str]
    policy: Policy | None
    strict: bool = True

    def within(self, policy: Policy | None, *, strict: bool) -> Wish:
        return replace(self, policy=policy, strict=strict)

    def around(self, own: Direction) -> AbstractContextManager[None]:
        """What has to be open around a call whose own direction is ``own``."""
        forward, backward_data, backward_weight = (self.named(direction, own) or AUTO for direction in Direction)
        return asking(algorithms_of(forward, backward_data, backward_weight, self.strict))

    def named(self, direction: Direction, own: Direction) -> str | None:
        return self.algorithms.get(direction) or (self.algorithms.get(None) if direction is own else None)

    def is_of_calls(self, own: Direction) -> bool:
        """Whether no algorithm is named but for the calls themselves."""
        return all(direction in (None, own) for direction in self.algorithms)


class Converted:
    """Stands before the class of PyTorch's that a converted layer had."""

    _original: Any
    _form: tuple[bool, int]
    _wish: Wish
    _seen: tuple[Any, ...] | None = None
    weight: Tensor
    bias: Tensor | None

    @property
    def choices(self) -> dict[str, str]:
        """By direction the id of what computes this layer for an input like the last one; empty before the first.

        A direction is there where the last call asked for it: those of the gradients where they were wanted. Where
        nothing is named this is the free choice, for a gradient together with what stands ahead of it if that is
        surely faster. PyTorch's own call may still serve in its place where a layer's shapes never come again, or where
        finding the choice would cost the host more than it saves.
        """
        if not self._seen_in_full():
            return {}
        assert self._seen is not None
        device, wish, wanted = device_facts(self._seen[3]), self._wish, self._seen[-1]
        policy, problem = wish.policy or Policy(), self._problem()

        def choose(asked: ConvProblem) -> Choice:
            chosen = choices_for if wish.strict else choices_where_possible
            return chosen(asked, device, policy, wish.named(asked.direction, self._direction)).eager

        main = choose(problem)
        chosen = [None if each is None else choose(each) for each in gradient_problems(problem, wanted)]
        if not wish.algorithms:
            chosen = fused_choices(fused_problems(problem, wanted, policy, device), chosen, choose) or chosen
        every = (choice.candidate for choice in (main, *chosen) if choice is not None)
        return {str(candidate.problem.direction): candidate.id for candidate in every}

    def _seen_in_full(self) -> bool:
        """Whether there was a call, and not a compiler's or a tracer's, or one that only PyTorch serves."""
        if self._seen is None:
            return False
        shape, strides, dtype, device, *_ = self._seen
        return (
            isinstance(device, torch.device) and device.type in COMPUTED_ON and dtype in SERVED
            and {int}.issuperset(map(type, (*shape, *strides)))
        )  # fmt: skip

    @property
    def _direction(self) -> Direction:
        return Direction.BACKWARD_DATA if self._form[0] else Direction.FORWARD

    def _problem(self) -> ConvProblem:
        assert self._seen is not None
        shape, strides, dtype, _, window, *_ = self._seen
        x = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        weight = self.weight.to("meta", dtype)
        bias = None if self.bias is None else self.bias.to("meta", dtype)
        if x.dim() == self.weight.dim() - 1:
            x = x.unsqueeze(0)
        names = ("stride", "padding", "dilation", "groups")
        if self._form[0]:
            named = dict(zip(("stride", "padding", "output_padding", "groups", "dilation"), window, strict=True))
            return transposed_problem_of(x, weight, **named)
        return problem_of(x, weight, bias, **dict(zip(names, window, strict=True)))

    def _compute(self, x: Tensor, weight: Tensor, bias: Tensor | None, *window: Any) -> Tensor:
        wish = self._wish
        if not isinstance(x, Tensor):  # what a tracer follows a call by: the choice becomes a part of that
            named = wish.named(self._direction, self._direction)
            return _FUNCTIONS[self._form](x, weight, bias, *window, algorithm=named, policy=wish.policy)
        # Set as an attribute it would be looked for among parameters and modules first, which took 1.7 µs (a Xeon).
        try:
            dtype = lowered_dtype(x) if autocasting(x) else x.dtype
            self.__dict__["_seen"] = (x.shape, x.stride(), dtype, x.device, window, Wanted.of(x, weight, bias))
        except (RuntimeError, TypeError):
            self.__dict__["_seen"] = None  # some tensors take the functions of layers only, and tell nothing else
        if not wish.algorithms:
            return _FUNCTIONS[self._form](x, weight, bias, *window, policy=wish.policy)
        if torch.compiler.is_dynamo_compiling() and wish.strict and wish.is_of_calls(self._direction):
            named = wish.named(self._direction, self._direction)
            return _FUNCTIONS[self._form](x, weight, bias, *window, algorithm=named, policy=wish.policy)
        return self._within(x, weight, bias, *window)

    @uncompiled(
        "algorithms for gradients are no part of a graph: name one for the call alone, or call `cw.revert` before"
    )
    def _within(self, x: Tensor, weight: Tensor, bias: Tensor | None, *window: Any) -> Tensor:
        wish = self._wish
        with wish.around(self._direction):
            return _FUNCTIONS[self._form](x, weight, bias, *window, policy=wish.policy)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What the forward of PyTorch's modules calls."""
        module: Any = self
        padding = module.padding
        if module.padding_mode != "zeros":
            x = F.pad(x, torch_api.padded_sides(module), mode=module.padding_mode)
            padding = 0
        return self._compute(x, weight, bias, module.stride, padding, module.dilation, module.groups)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: A002  as PyTorch's
        if not self._form[0]:
            return self._conv_forward(input, self.weight, self.bias)
        module: Any = self
        if module.padding_mode != "zeros":
            raise ValueError(f"Only `zeros` padding mode is supported for {self._original.__name__}")
        output_padding = torch_api.output_padding_of(
            module, input, output_size,
            module.stride, module.padding, module.kernel_size, self._form[1], module.dilation,
        )  # fmt: skip
        window = module.stride, module.padding, output_padding, module.groups, module.dilation
        return self._compute(input, self.weight, self.bias, *window)

    def __prepare_scriptable__(self) -> Any:
        """What TorchScript asks a module for that it is to compile."""
        raise BadInput("a converted layer is not compiled by torch.jit.script: call `cw.revert` on the model before")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copied and pickled as what it was, with its wish: the class is made here and can be found nowhere."""
        if "_original" not in vars(type(self)):
            return super().__reduce_ex__(protocol)  # whoever put a class on it says how, or that it cannot be
        return _rebuilt, (self._original, {**self.__dict__, "_seen": None})


def is_convertible(layer: Any) -> bool:
    """Whether a layer computes as PyTorch's own convolution modules do."""
    conv = next((kind for kind in _FORMS if isinstance(layer, kind)), None)
    if conv is None or isinstance(layer, Converted):
        return conv is not None
    # A forward of PyTorch's calls the other, which a class may replace as well.
    return all(getattr(type(layer), name) is getattr(conv, name) for name in ("forward", "_conv_forward"))


def to_converted(layer: Any, wish: Wish) -> None:
    """Let ``layer`` be computed by convwright from now on."""
    if not isinstance(layer, Converted):
        beneath = _unparametrized(layer)
        layer.__class__ = _exchanged(type(layer), beneath, _converted(beneath))
    layer.__dict__["_wish"] = wish


def to_original(layer: Any) -> None:
    """Give ``layer`` the class back that it had."""
    made: Any = next(kind for kind in type(layer).__mro__ if "_original" in vars(kind))
    layer.__class__ = _exchanged(type(layer), made, made._original)
    for attribute in ("_wish", "_seen"):
        layer.__dict__.pop(attribute, None)


@cache
def _converted(original: Any) -> Any:
    """``original`` with what a converted layer adds, so that it still is one."""
    form = next(form for kind, form in _FORMS.items() if issubclass(original, kind))
    # Tracers tell PyTorch's own modules, which they leave whole, by where their class is from.
    namespace = {"_original": original, "_form": form, "__module__": original.__module__}
    return type(original.__name__, (Converted, original), namespace)


def _unparametrized(layer: Any) -> Any:
    """The class of ``layer`` below the one that PyTorch's parametrizations put on it, and take off again."""
    kind = type(layer)
    return kind.__bases__[0] if is_parametrized(layer) and kind.__name__.startswith("Parametrized") else kind


def _exchanged(kind: Any, old: Any, new: Any) -> Any:
    """``kind`` with ``new`` in the place of ``old``, which others, such as parametrizations and sharding, may have put
    a class on."""
    if kind is old:
        return new
    bases = tuple(_exchanged(base, old, new) if issubclass(base, old) else base for base in kind.__bases__)
    own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind)(kind.__name__, bases, own)


def _rebuilt(original: Any, state: dict[str, Any]) -> Any:
    made = original.__new__(original)
    made.__setstate__(state)
    made.__class__ = _converted(original)
    return made
