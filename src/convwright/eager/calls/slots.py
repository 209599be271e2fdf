"""The memory of the fast path: decisions of earlier calls, found by one check in C++.

A slot is valid for certain tensor types, shapes, strides, devices and dispatch keys (which distinguish autocast,
functorch and dispatch modes). PyTorch's own ``TensorGuards`` compare these in 0.2 µs; building a Python key takes 0.8.
The weight's id, or its shape, only finds a slot; the check decides.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from convwright import flags
from convwright.core.policy import Policy, Weights
from convwright.eager.asking import ambient
from convwright.torch_api import TensorGuards, address_of, forward_gradient_level, is_capturing, is_watched

if TYPE_CHECKING:
    from convwright.eager.calls.call import Request

Run = Callable[..., Tensor]
# A layer with more shapes is served by the second look, which finds a slot by its shape.
_MOST_AT_FIRST_LOOK = 3
_MOST_ALIKE = 8
_MOST_WEIGHTS = 4096
_MOST_KINDS = 1 << 16


class Slot:
    """One remembered decision. If ``run`` is None, PyTorch's own function is called with the same arguments; while a
    CUDA graph is captured, ``in_graph`` runs instead if given.

    PyTorch's own function is right for any operands, so its slots check only the input and the precision flag, which
    affect the choice. The fields of the request are copied here, because comparing each by ``is`` is fastest; ``plain``
    is True if three of them are None. ``extra`` separates calls with a residual or a given output from others. Slots of
    several weights may share one ``decision``.
    """

    __slots__ = (
        "alike", "ambient", "decision", "dilation", "extra", "flags", "grad", "groups", "in_graph", "matches",
        "no_bias", "output_padding", "padding", "plain", "request", "run", "same", "state", "stride", "tf32",
    )  # fmt: skip

    def __init__(
        self,
        tensors: tuple[Tensor, ...],
        request: Request,
        run: Run | None,
        extra: object = None,
        in_graph: Run | None = None,
    ) -> None:
        self.alike = guard(tensors)
        self.matches = guard(tensors[:1]) if run is None else self.alike
        self.decision = object()
        self._ask(request)
        self.plain = request.activation is None and request.algorithm is None and request.policy is None
        self.extra = extra
        self.ambient = ambient.current()
        self.grad = torch.is_grad_enabled()
        # Whether PyTorch may use TF32 matters only for fp32 on a GPU.
        self.tf32 = flags.tf32_allowed() if tensors[0].is_cuda and tensors[0].dtype is torch.float32 else None
        self.state = flags.state if tensors[0].is_cuda else flags.state_on_cpu
        self.flags = self.state()
        self.run, self.in_graph = run, in_graph

    @property
    def is_torchs(self) -> bool:
        """Whether PyTorch's own function runs, even while a CUDA graph is captured."""
        return self.run is None and self.in_graph is None

    @property
    def runs_now(self) -> Run | None:
        return self.in_graph if self.in_graph is not None and is_capturing() else self.run

    def _ask(self, request: Request) -> None:
        self.request, self.same = request, request.same
        self.no_bias, self.stride, self.padding, self.dilation, self.groups, *_, self.output_padding = request

    def asked(self, request: Request) -> Slot:
        """The same decision for calls with these equal arguments. Another layer has other objects, and comparing by
        value at each call would take longer than the rest of the comparison."""
        if all(mine is theirs for mine, theirs in zip(self.request, request, strict=True)):
            return self
        kept = request.kept()
        if kept is not request:
            return self  # lists and objects made for each call are compared by value in any case
        slot = copy(self)
        slot._ask(kept)
        return slot

    def stands_for(self, request: Request, tensors: tuple[Tensor, ...], extra: object) -> bool:
        """Whether this slot serves a call, whatever weight it was made for. Not on the fast path."""
        return (
            self.same(request)
            and self.extra == extra
            and self.grad is torch.is_grad_enabled()
            and self.ambient is ambient.current()
            and self.alike(*tensors)
            and self.flags == self.state()
            and (self.is_torchs or (forward_gradient_level() < 0 and not is_watched()))
        )


class Slots:
    """The slots of one function: the latest few for each weight, and all by the shapes of their operands.

    ``skip_lookup`` holds weights whose calls mostly need no lookup, because PyTorch's own function, which is right for
    any operands, serves them. The value says whether something else runs while a CUDA graph is captured.
    """

    def __init__(self) -> None:
        self.latest: dict[int, tuple[Slot, ...]] = {}
        self.skip_lookup: dict[int, bool] = {}
        ambient.contexts.unlooked.append(self.skip_lookup)
        self.forgotten = 0  # how often all slots were dropped
        self._hidden: dict[int, tuple[Slot, ...]] = {}
        self._addresses: dict[int, int] = {}
        self._by_shape: dict[object, list[Slot]] = {}

    def matching(self, weight: Tensor, request: Request, tensors: tuple[Tensor, ...], extra: object) -> Slot | None:
        """The slot for a call with these tensors, input first; None if there is none."""
        for slot in self._by_shape.get(_key(weight, tensors[0], request), ()):
            if slot.stands_for(request, tensors, extra):
                if extra is None:
                    self._put_first(weight, self._for_layer(weight, slot, request))
                return slot
        return None

    def _for_layer(self, weight: Tensor, slot: Slot, request: Request) -> Slot:
        """``slot`` with this layer's own argument objects; unchanged if the layer sees too many shapes to keep it."""
        known = self.latest.get(id(weight), ())
        mine = next((other for other in known if other.decision is slot.decision), None)
        if mine is not None or len(known) >= _MOST_AT_FIRST_LOOK:
            return mine or slot
        return slot.asked(request)

    def remember(self, weight: Tensor, tensors: tuple[Tensor, ...], slot: Slot) -> None:
        """Store ``slot`` as the first for ``weight``; the oldest one drops out."""
        if len(self._by_shape) >= _MOST_KINDS:
            self._by_shape.clear()
        alike = self._by_shape.setdefault(_key(weight, tensors[0], slot.request), [])
        alike.insert(0, slot)
        del alike[_MOST_ALIKE:]
        self._put_first(weight, slot)

    def rest(self, weight: int, *, but_captures: bool = False) -> None:
        """Skip the lookup for most calls with the weight of this id, unless an algorithm context may apply to them, or
        the same candidate must serve each call."""
        if flags.deterministic():
            return
        self.skip_lookup[weight] = but_captures
        if ambient.contexts.open:
            self.skip_lookup.pop(weight, None)

    def remember_image(self, weight: Tensor, tensors: tuple[Tensor, ...], request: Request) -> None:
        """Remember that PyTorch's own function serves this batch of one image; the next call may omit the batch."""
        if len(self.latest.get(id(weight), ())) == 1 and request.policy is None:
            self.rest(id(weight))
        else:
            self.remember(weight, tensors, Slot(tensors, request.kept(), None))

    def leave(self, weight: Tensor, tensors: tuple[Tensor, ...], slot: Slot) -> None:
        """Let PyTorch's own functions serve the calls of a layer without a choice. Lookups are skipped if a call needs
        only the convolution itself."""
        known = self.latest.get(id(weight), ())
        is_own = slot.request.policy is None and all(each.is_torchs for each in (slot, *known))
        if len(known) < _MOST_AT_FIRST_LOOK or (slot.run is None and not is_own):
            self.remember(weight, tensors, slot)  # a layer of many shapes needs no slot for each
        if is_own:
            self.rest(id(weight))

    def forget(self) -> None:
        """Drop every slot, so that the next call of each kind decides again."""
        self.forgotten += 1
        self.skip_lookup.clear()
        for memory in (self.latest, self._hidden, self._addresses, self._by_shape):
            memory.clear()

    def show(self, shown: bool) -> None:
        """Show slots to the first lookup, or hide them until they are shown again."""
        self.skip_lookup.clear()
        if shown:
            self.latest.update(self._hidden)
            self._hidden.clear()
        else:
            self._hidden.update(self.latest)
            self.latest.clear()

    def _put_first(self, weight: Tensor, slot: Slot) -> None:
        if slot.extra is not None:
            return
        if len(self.latest) >= _MOST_WEIGHTS:
            self.latest.clear()
            self.skip_lookup.clear()
            self._addresses.clear()
        self.skip_lookup.pop(id(weight), None)
        known, address = self.latest.get(id(weight), ()), address_of(weight)
        # Probably a reused id. A weak reference would detect that, but would keep PyTorch from swapping the weight.
        if self._addresses.get(id(weight)) != address:
            known, self._addresses[id(weight)] = (), address
        others = [other for other in known if other.decision is not slot.decision]
        self.latest[id(weight)] = (slot, *others)[:_MOST_AT_FIRST_LOOK]


def _key(weight: Tensor, x: Tensor, request: Request) -> object:
    """The key of a slot. Layers of one shape share slots, unless each keeps its own packed weight."""
    policy = request.policy
    own = isinstance(policy, Policy) and policy.weights is Weights.CONSTANT
    return id(weight) if own else weight.shape, x.shape


def guard(tensors: tuple[Tensor, ...]) -> Callable[..., bool]:
    """A check that is True for tensors that PyTorch's dispatcher cannot distinguish from these."""
    sizes = [list(tensor.shape) for tensor in tensors]
    strides = [list(tensor.stride()) for tensor in tensors]
    made = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    check: Callable[..., bool] = made.check
    return check
