"""The constants of a network, as its steps read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from convwright.core.binding import prepared
from convwright.core.plan import Plan
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.running.shared import Shared
from convwright.tensors import empty, lies_as


class Weights:
    """``operands`` are the constants of each step by role, in the layout of its operation and packed. ``tensors`` are
    the constants that PyTorch's operators read, by name. Nothing writes to them, so programs may share them; ``shared``
    avoids a second copy."""

    def __init__(
        self,
        assignment: Assignment,
        plans: Sequence[Plan | None],
        constants: Mapping[str, Tensor],
        device: torch.device,
        shared: Shared,
    ) -> None:
        there = {name: shared.one(name, constants[name].to(device)) for name in assignment.constants}
        steps = list(zip(assignment.steps, plans, strict=True))
        self.operands = [{} if plan is None else _operands(step, plan, there, shared) for step, plan in steps]
        as_they_are = {name for step, plan in steps if plan is None for _, name in step.reads}
        as_they_are.update(assignment.outputs)
        self.tensors = {name: tensor for name, tensor in there.items() if name in as_they_are}

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.tensors.values()
        for of_step in self.operands:
            yield from of_step.values()


def nbytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of all memory that tensors use, shared memory counted once."""
    return sum(dict(map(_memory, tensors)).values())


def _operands(step: Step, plan: Plan, constants: Mapping[str, Tensor], shared: Shared) -> Mapping[str, Tensor]:
    of, names = step.operation.operands, {role: name for role, name in step.reads if name in constants}
    read = {role: _laid(constants[name], of[role]) for role, name in names.items()}
    return {role: shared.one(names[role], each) for role, each in prepared(plan, read).items()}


def _memory(tensor: Tensor) -> tuple[object, int]:
    """The storage of a tensor, and its size in bytes. What a library packs for itself has no address."""
    if tensor.layout is not torch.strided:
        return id(tensor), tensor.numel() * tensor.element_size()
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _laid(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """A constant in the form that an operation takes."""
    return tensor if lies_as(tensor, spec) else empty(spec, tensor.device).copy_(tensor)
