"""One kernel made ready for one problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from convwright.backends.triton.kernel_call import KernelCall
from convwright.backends.triton.launch import Binary, DriverLaunch, Launch, launch_of
from convwright.backends.triton.sequence_plan import wrong_operands
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.errors import BadInput
from convwright.tensors import allocator


class SingleKernelPlan(ABC):
    """Runs one configuration of a kernel; its device must be PyTorch's current one.

    A kernel of the forward direction has places for bias and residual, whether they are there or not.
    """

    workspace_bytes = 0
    writes_out = True

    def __init__(self, candidate: Candidate, device: DeviceFacts, launch: Launch) -> None:
        self.candidate = candidate
        self._takes_bias = candidate.problem.epilogue.bias
        self._takes_residual = candidate.problem.epilogue.residual
        self._is_forward = candidate.problem.direction is Direction.FORWARD
        self._launch = launch
        self._new_output = allocator(candidate.problem.output, torch.device(device.torch_name or "cpu"))

    @staticmethod
    @abstractmethod
    def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
        """What the driver is asked to launch: one kernel."""

    @abstractmethod
    def prepare(self, weight: Tensor) -> Tensor:
        """The weight as the kernel reads it."""

    @classmethod
    def built(cls, candidate: Candidate, device: DeviceFacts) -> Self:
        (call,) = cls.kernel_calls(candidate)
        return cls(candidate, device, launch_of(call, device))

    @classmethod
    def read(cls, candidate: Candidate, device: DeviceFacts, text: str) -> Self:
        """The plan whose ``text`` this is; Triton need not be loaded for it."""
        return cls(candidate, device, DriverLaunch(Binary.read(text), device))

    @property
    def text(self) -> str | None:
        """The compiled kernel and how it is launched; None in the interpreter."""
        return self._launch.binary.text if isinstance(self._launch, DriverLaunch) else None

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        if (bias is None) is self._takes_bias or (residual is None) is self._takes_residual:
            raise BadInput(wrong_operands(self.candidate, bias, residual))
        if out is None:
            out = self._new_output()
        if self._is_forward:
            self._launch(first, second, bias, residual, out)
        else:
            self._launch(first, second, out)
        return out

    def launch(self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Run on these addresses; the weight's is that of a prepared one."""
        if bool(bias) is not self._takes_bias or bool(residual) is not self._takes_residual:
            raise BadInput(wrong_operands(self.candidate, bias or None, residual or None))
        addresses = (first, second, bias, residual, out) if self._is_forward else (first, second, out)
        self._launch.at(addresses, stream)
