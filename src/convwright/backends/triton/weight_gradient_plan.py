"""The weight's gradient made ready for one problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Self

import torch
from torch import Tensor

from convwright.backends.triton.launch import Binary, DriverLaunch, Launch, launch_of
from convwright.backends.triton.weight_gradient import workspace_bytes
from convwright.backends.triton.weight_gradient_call import kernel_calls
from convwright.backends.triton.weight_gradient_tiles import PartedTile
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BackendError, BadInput
from convwright.tensors import allocator, carve


class WeightGradientPlan:
    """Runs one configuration of the weight's gradient; its device must be PyTorch's current one."""

    writes_out = True

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        problem = candidate.problem
        place = torch.device(device.torch_name or "cpu")
        self.candidate = candidate
        self.workspace_bytes = workspace_bytes(problem, PartedTile.of(candidate))
        self._launches = tuple(launches)
        self._sums = TensorSpec((self.workspace_bytes // 4,), DType.FP32)
        self._new_output = allocator(problem.w, place)
        self._new_workspace = partial(torch.empty, self.workspace_bytes, dtype=torch.uint8, device=place)

    @classmethod
    def built(cls, candidate: Candidate, device: DeviceFacts) -> Self:
        return cls(candidate, device, [launch_of(call, device) for call in kernel_calls(candidate)])

    @classmethod
    def read(cls, candidate: Candidate, device: DeviceFacts, text: str) -> Self:
        """The plan whose ``text`` this is; Triton need not be loaded for it."""
        texts = _texts(text)
        needed = 1 if PartedTile.of(candidate).parts == 1 else 2
        if len(texts) != needed:
            raise BackendError(f"kernels that were kept cannot be read: {needed} are needed, there are {len(texts)}")
        return cls(candidate, device, [DriverLaunch(Binary.read(each), device) for each in texts])

    @property
    def text(self) -> str | None:
        """The compiled kernels and how they are launched; None in the interpreter."""
        ready = [launch.binary.text for launch in self._launches if isinstance(launch, DriverLaunch)]
        return json.dumps(ready) if ready else None

    def prepare(self, weight: Tensor) -> Tensor:
        return weight

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        if out is None:
            out = self._new_output()
        if not self.workspace_bytes:
            self._launches[0](first, second, out)
            return out
        sums = carve(self._new_workspace() if workspace is None else workspace, 0, self._sums)
        product, total = self._launches
        product(first, second, sums)
        total(sums, out)
        return out

    def launch(self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Run on these addresses."""
        if not self.workspace_bytes:
            self._launches[0].at((first, second, out), stream)
            return
        if not workspace:
            raise BadInput(f"{self.candidate.id} needs a workspace of {self.workspace_bytes:,} bytes, got none")
        product, total = self._launches
        product.at((first, second, workspace), stream)
        total.at((workspace, out), stream)


def _texts(text: str) -> list[str]:
    try:
        texts = json.loads(text)
    except ValueError as error:
        raise BackendError(f"kernels that were kept cannot be read: {error}") from error
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise BackendError("kernels that were kept cannot be read: they are no list of texts")
    return texts
