"""The weight's gradient made ready for one problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Self

import torch
from torch import Tensor

from convwright.backends.triton.launch import Binary, DriverLaunch, Launch, launch_of
from convwright.backends.triton.weight_gradient import packed_bytes
from convwright.backends.triton.weight_gradient_algorithms import algorithm_named
from convwright.backends.triton.weight_gradient_call import kernel_calls
from convwright.backends.triton.weight_gradient_tiles import PartedTile
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.errors import BackendError, BadInput
from convwright.tensors import allocator

# What a kernel's operand is: of the call, or a place in the workspace.
_X, _DY, _DW, _PACKED, _SUMS = range(5)


class WeightGradientPlan:
    """Runs one configuration of the weight's gradient; its device must be PyTorch's current one."""

    writes_out = True

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        problem = candidate.problem
        place = torch.device(device.torch_name or "cpu")
        self.candidate = candidate
        self.workspace_bytes = candidate.workspace_bytes or 0
        self._sums_from = packed_bytes(problem, algorithm_named(candidate.algorithm, problem.dtype))
        self._steps = tuple(zip(launches, _operands(candidate), strict=True))
        self._new_output = allocator(problem.w, place)
        self._new_workspace = partial(torch.empty, self.workspace_bytes, dtype=torch.uint8, device=place)

    @classmethod
    def built(cls, candidate: Candidate, device: DeviceFacts) -> Self:
        return cls(candidate, device, [launch_of(call, device) for call in kernel_calls(candidate)])

    @classmethod
    def read(cls, candidate: Candidate, device: DeviceFacts, text: str) -> Self:
        """The plan whose ``text`` this is; Triton need not be loaded for it."""
        kept = _texts(text, len(_operands(candidate)))
        return cls(candidate, device, [DriverLaunch(Binary.read(each), device) for each in kept])

    @property
    def text(self) -> str | None:
        """The compiled kernels and how they are launched; None in the interpreter."""
        ready = [launch.binary.text for launch, _ in self._steps if isinstance(launch, DriverLaunch)]
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
        if workspace is None and self.workspace_bytes:
            workspace = self._new_workspace()
        sums = workspace[self._sums_from :] if workspace is not None and self._sums_from else workspace
        tensors = (first, second, out, workspace, sums)
        for launch, places in self._steps:
            launch(*[tensors[place] for place in places])
        return out

    def launch(self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Run on these addresses."""
        if self.workspace_bytes and not workspace:
            raise BadInput(f"{self.candidate.id} needs a workspace of {self.workspace_bytes:,} bytes, got none")
        addresses = (first, second, out, workspace, workspace + self._sums_from)
        for launch, places in self._steps:
            launch.at([addresses[place] for place in places], stream)


def _operands(candidate: Candidate) -> list[tuple[int, ...]]:
    """Of each kernel, in the order of ``kernel_calls``."""
    packed = algorithm_named(candidate.algorithm, candidate.problem.dtype).packed
    parted = PartedTile.of(candidate).parts > 1
    product = (_X, _PACKED if packed else _DY, _SUMS if parted else _DW)
    return [*[(_DY, _PACKED)] * packed, product, *[(_SUMS, _DW)] * parted]


def _texts(text: str, count: int) -> list[str]:
    try:
        texts = json.loads(text)
    except ValueError as error:
        raise BackendError(f"kernels that were kept cannot be read: {error}") from error
    if not isinstance(texts, list) or len(texts) != count or not all(isinstance(each, str) for each in texts):
        raise BackendError(f"kernels that were kept cannot be read: they are no list of {count} texts")
    return texts
