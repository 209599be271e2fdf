"""A classic algorithm, ready to run: one foreign call with everything prepared except the pointers."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_double, c_float, c_void_p
from functools import partial
from typing import Any

import torch
from torch import Tensor

from convwright import torch_api
from convwright.backends.cudnn.classic.descriptors import ConvDescriptors, activation_descriptor, bias_descriptor
from convwright.backends.cudnn.classic.operands import filter_layout, is_dense
from convwright.backends.cudnn.library import Library, handle
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError, BadInput
from convwright.tensors import allocator, empty, spec_of

# (handle, first, second, bias, residual, out, workspace) → status. All pointers are local to a call, so several threads
# can share one plan.
Enqueue = Callable[[c_void_p, int, int, int, int, int, int], Any]

_FLOATS = c_float(1.0), c_float(0.0)
_DOUBLES = c_double(1.0), c_double(0.0)


class ClassicPlan:
    """Runs one classic algorithm on PyTorch's current stream of the plan's device.

    Operands must have the shapes and strides of ``candidate.problem``, and all operands of its epilogue must be given:
    a call checks nothing. The first call on a stream creates a handle, so call once before capturing a CUDA graph.
    """

    writes_out = True

    def __init__(
        self, candidate: Candidate, library: Library, enqueue: Enqueue, *, workspace_bytes: int, device: torch.device
    ) -> None:
        problem = candidate.problem
        self.candidate = candidate
        self.workspace_bytes = workspace_bytes
        self._library = library
        self._enqueue = enqueue
        self._device_index: int = device.index
        self._layout = filter_layout(problem)
        self._weight = problem.w.dense(self._layout)
        self._dense_strides = {self._weight.strides}
        self._new_out = allocator(problem.output, device)
        self._new_workspace = partial(torch.empty, workspace_bytes, dtype=torch.uint8, device=device)
        self._handles: dict[int, c_void_p] = {}
        self._current_device = torch_api.current_gpu
        self._current_stream = torch_api.current_stream

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight itself if it is dense in the activations' layout, else a dense copy."""
        if weight.stride() in self._dense_strides:
            return weight
        if not is_dense(spec_of(weight), self._layout):
            return empty(self._weight, weight.device).copy_(weight)
        # A dimension of size 1 may have any stride, so one layout has several stride tuples.
        self._dense_strides.add(weight.stride())
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
        if self._current_device() != self._device_index:
            with torch.cuda.device(self._device_index):
                return self(first, second, bias, residual, out, workspace)
        if out is None:
            out = self._new_out()
        if workspace is None and self.workspace_bytes:
            workspace = self._new_workspace()
        self.launch(
            first.data_ptr(),
            second.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            0 if residual is None else residual.data_ptr(),
            out.data_ptr(),
            0 if workspace is None else workspace.data_ptr(),
            self._current_stream(self._device_index),
        )
        return out

    def launch(self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Run on these addresses, on this stream."""
        if self.workspace_bytes and not workspace:
            raise BadInput(f"{self.candidate.id} needs a workspace of {self.workspace_bytes:,} bytes, got none")
        cudnn = self._handles.get(stream) or self._handle(stream)
        status = self._enqueue(cudnn, first, second, bias, residual, out, workspace)
        if status:
            raise BackendError(f"{self.candidate.id}: {self._library.explain(status)}")

    def _handle(self, stream: int) -> c_void_p:
        return self._handles.setdefault(stream, handle(self._device_index, stream))


def plain_call(
    name: str, problem: ConvProblem, described: ConvDescriptors, number: int, workspace_bytes: int
) -> Enqueue:
    """The convolution alone: cuDNN's function ``name`` with the algorithm ``number``."""
    function = described.library.functions[name]
    convolution = described.convolution
    weight_first = problem.direction is Direction.BACKWARD_DATA
    one, zero = _scalars(problem.dtype)
    kept = one if problem.epilogue.accumulate else zero
    a, b, c = described.operands(problem.direction)

    def enqueue(cudnn: c_void_p, first: int, second: int, _: int, __: int, out: int, workspace: int) -> Any:
        if weight_first:
            first, second = second, first
        return function(cudnn, one, a, first, b, second, convolution, number, workspace, workspace_bytes, kept, c, out)

    return enqueue


def fused_call(
    problem: ConvProblem,
    described: ConvDescriptors,
    number: int,
    workspace_bytes: int,
    *,
    zero_bias: Tensor | None = None,
) -> Enqueue:
    """Convolution, residual, bias, activation. cuDNN always adds a bias: ``zero_bias`` if the problem has none."""
    library = described.library
    function = library.functions["cudnnConvolutionBiasActivationForward"]
    x, w, y, convolution = described.x, described.w, described.y, described.convolution
    bias_ = bias_descriptor(library, problem)
    activation = activation_descriptor(library, problem.epilogue.activation)
    one, zero = _scalars(problem.dtype)

    has_residual = problem.epilogue.residual

    def enqueue(cudnn: c_void_p, first: int, second: int, bias: int, residual: int, out: int, workspace: int) -> Any:
        added = bias if zero_bias is None else zero_bias.data_ptr()
        # A residual scaled by 0 is not read, but its address must be valid.
        scale, z = (one, residual) if has_residual else (zero, out)
        fixed = number, workspace, workspace_bytes
        return function(
            cudnn, one, x, first, w, second, convolution, *fixed, scale, y, z, bias_, added, activation, y, out
        )  # fmt: skip

    return enqueue


def _scalars(dtype: DType) -> tuple[c_void_p, c_void_p]:
    """The addresses of 1 and 0 in the type in which cuDNN reads its scaling factors."""
    one, zero = _DOUBLES if dtype is DType.FP64 else _FLOATS
    return c_void_p(addressof(one)), c_void_p(addressof(zero))
