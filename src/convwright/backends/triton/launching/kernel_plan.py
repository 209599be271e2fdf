"""Shared by all plans of our kernels: building, storing as text, reading back, and preparing a weight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor

from convwright import strict_json
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.launching.launch import Binary, DriverLaunch, Launch, launch_of
from convwright.backends.triton.packing.weight import Packing
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.errors import BackendError
from convwright.tensors import allocator


class KernelPlan(ABC):
    """One configuration of some kernels. Its device must be PyTorch's current one."""

    writes_out = True
    packed_dtype = torch.float32

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        """``launches`` are in launch order; last is the kernel that packs the weight, if there is one."""
        shape, problem = self.packed_shape(candidate), candidate.problem
        place = torch.device(device.torch_name or "cpu")
        self.candidate = candidate
        self._launches = tuple(launches)
        self._new_output = allocator(problem.output, place)
        self._pack = None if shape is None else Packing(launches[-1], problem.w, shape, self.packed_dtype, place)

    @classmethod
    @abstractmethod
    def steps(cls, candidate: Candidate) -> int:
        """The number of kernels that a call launches."""

    @staticmethod
    def packed_shape(candidate: Candidate) -> tuple[int, ...] | None:
        """The shape of the packed weight; None if no kernel packs it."""
        return None

    def laid(self, weight: Tensor) -> Tensor:
        """An unpacked weight in the layout that the kernels read."""
        return weight

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight in the form that the kernels read."""
        return self.laid(weight) if self._pack is None else self._pack(weight)

    @classmethod
    def built(cls, candidate: Candidate, device: DeviceFacts, calls: Iterable[KernelCall]) -> Self:
        return cls(candidate, device, [launch_of(call, device) for call in calls])

    @classmethod
    def read(cls, candidate: Candidate, device: DeviceFacts, text: str) -> Self:
        """The plan from its ``text``, without loading Triton."""
        kept = _texts(text, cls.steps(candidate) + (cls.packed_shape(candidate) is not None))
        return cls(candidate, device, [DriverLaunch(Binary.read(each), device) for each in kept])

    @property
    def text(self) -> str | None:
        """The compiled kernels and their launch data; None in the interpreter."""
        ready = [launch.binary.text for launch in self._launches if isinstance(launch, DriverLaunch)]
        return strict_json.dumps(ready) if ready else None


def wrong_operands(candidate: Candidate, bias: object, residual: object) -> str:
    given = [name for name, operand in (("bias", bias), ("residual", residual)) if operand is not None]
    named = " and ".join(given) or "neither bias nor residual"
    return f"the plan needs the operands of the epilogue {candidate.problem.epilogue}, got {named}"


def _texts(text: str, count: int) -> list[str]:
    try:
        texts = strict_json.loads(text)
    except ValueError as error:
        raise BackendError(f"stored kernels cannot be read: {error}") from error
    if not isinstance(texts, list) or len(texts) != count or not all(isinstance(each, str) for each in texts):
        raise BackendError(f"stored kernels cannot be read: they are not a list of {count} texts")
    return texts
