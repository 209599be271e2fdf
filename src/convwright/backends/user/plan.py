"""The plan of a user's kernel. Errors of its functions include its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from convwright.backends.user.kernel import UserKernel
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.errors import BackendError, in_words
from convwright.shortage import is_shortage
from convwright.tensors import empty, laid_, torch_dtype

_Made = TypeVar("_Made")


class UserPlan(RolePlan):
    """Calls the function that the kernel returned for the problem, with operands by name."""

    def __init__(self, candidate: Candidate, kernel: UserKernel, device: DeviceFacts) -> None:
        problem = candidate.problem
        self.candidate, self.writes_out = candidate, kernel.writes_out
        self.workspace_bytes = candidate.workspace_bytes or 0
        self._name, self._device, self._out = kernel.name, torch.device(str(device.torch_name)), problem.outputs[-1]
        self._spec, self._dtype = problem.output, torch_dtype(problem.output.dtype)
        self._prepare = None if kernel.prepare is None else partial(kernel.prepare, problem)
        self._compute: Callable[..., Any] = self._called(kernel.run, problem)
        if not callable(self._compute):
            raise BackendError(f"{self._named}: its `run` must return a function, got {self._compute!r}")

    @property
    def _named(self) -> str:
        return f"the registered kernel {self._name!r}"

    def prepare(self, weight: Tensor) -> Tensor:
        packed = weight if self._prepare is None else self._called(self._prepare, weight)
        if not isinstance(packed, Tensor):
            raise BackendError(f"{self._named}: its `prepare` must return a tensor, got {type(packed).__name__}")
        return packed

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        return partial(self.compute, operands, workspace)

    def compute(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Tensor:
        if torch.is_autocast_enabled(self._device.type):  # autocast would cast operands inside the function
            with torch.autocast(self._device.type, enabled=False):
                return self._computed(operands, workspace)
        return self._computed(operands, workspace)

    def _computed(self, operands: Mapping[str, Tensor], workspace: Tensor | None) -> Tensor:
        given, out = {str(role): each for role, each in operands.items()}, operands.get(self._out)
        if self.writes_out:
            out = given[str(self._out)] = empty(self._spec, self._device) if out is None else out
        else:
            given.pop(str(self._out), None)
        if self.workspace_bytes:
            given["workspace"] = self._scratch() if workspace is None else workspace
        result = self._called(self._compute, **given)
        if self.writes_out and out is not None:
            return out
        self._check(result)
        if out is not None:
            return out.copy_(result)
        # The operand may be overwritten after this call, so the result must not alias it.
        shares = any(_storage(result) == _storage(each) for each in given.values())
        return laid_(result.clone() if shares else result, self._spec)

    def _scratch(self) -> Tensor:
        return torch.empty(self.workspace_bytes, dtype=torch.uint8, device=self._device)

    def _called(self, function: Callable[..., _Made], *args: Any, **named: Any) -> _Made:
        try:
            return function(*args, **named)
        except Exception as error:  # a user's function may raise anything
            if is_shortage(error):
                raise
            raise BackendError(f"{self._named} raised {in_words(error)}") from error

    def _check(self, result: object) -> None:
        wanted = f"{self._dtype} {self._spec.shape} on {self._device.type}"
        if not isinstance(result, Tensor):
            raise BackendError(f"{self._named} must return a tensor of {wanted}, got {type(result).__name__}")
        if (result.shape, result.dtype, result.device.type) != (self._spec.shape, self._dtype, self._device.type):
            got = f"{result.dtype} {tuple(result.shape)} on {result.device.type}"
            raise BackendError(f"{self._named} must return a tensor of {wanted}, got {got}")


class UserConvPlan(UserPlan):
    """The same for a convolution, whose plans take operands in the order of their direction."""

    def __call__(  # type: ignore[override]
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        **rare: Tensor,
    ) -> Tensor:
        roles = *self.candidate.problem.direction.operands, Role.BIAS, Role.RESIDUAL, self._out
        given = dict(zip(map(str, roles), (first, second, bias, residual, out), strict=True)) | rare
        return self.compute({role: each for role, each in given.items() if each is not None}, workspace)


def _storage(tensor: Tensor) -> int | None:
    """The address of its memory; None for tensors that a library has packed."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else None
