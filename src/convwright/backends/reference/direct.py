"""Convolution by its definition: for each tap, the product of what it reads is added to the sums.

    forward           y[p]               += w[tap] · x[p ∗ stride + tap]
    backward data     dx[p ∗ stride + tap] += w[tap]ᵀ · dy[p]
    backward weight   dw[tap]             = Σ dy[p] · x[p ∗ stride + tap]ᵀ     over images and positions p

The input is never padded: each tap reads only the part that exists. Sums are kept in fp32 at least.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from convwright.backends.reference.buffers import Buffers
from convwright.backends.reference.direct_channels import Channels
from convwright.backends.reference.direct_depthwise import Depthwise
from convwright.backends.reference.operands import by_tap, epilogue_, offer, start_, stored_
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.tensors import empty, torch_dtype


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """It computes every problem."""
    yield offer(problem, "direct", _buffers(_products(problem)).nbytes)


def plan(candidate: Candidate) -> Plan:
    return DirectPlan(candidate)


class DirectPlan:
    """Runs ``reference/direct``."""

    writes_out = True

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.problem = candidate.problem
        self.products = _products(candidate.problem)
        self.buffers = _buffers(self.products)
        self.workspace_bytes = self.buffers.nbytes

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight by taps: (taps…, G, K / G, C / G), in the dtype of the sums."""
        dtype = torch_dtype(self.products.dtype)
        return by_tap(weight, self.problem.groups).to(dtype).contiguous()

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
            out = empty(self.problem.output, first.device)
        buffers = self.buffers.of(workspace, first.device)
        sums = start_(buffers.get("sums", out), residual)
        if self.problem.direction is Direction.FORWARD:
            self.products.forward(first, second, sums, buffers)
            epilogue_(sums, bias, None, self.problem.epilogue.activation)
        elif self.problem.direction is Direction.BACKWARD_DATA:
            self.products.backward_data(first, second, sums, buffers)
        else:
            self.products.backward_weight(first, second, sums, buffers)
        return out if sums is out else stored_(out, sums)


def _products(problem: ConvProblem) -> Channels | Depthwise:
    """The kind of products for this problem.

    Elementwise products took 0.5 to 0.85 of the time of matrix products if each channel is convolved by itself, and 0.8
    to 1.4 with two outputs per channel (3x3, 14² to 256², all directions, one core of an AMD EPYC, PyTorch 2.13).
    """
    return Depthwise(problem) if problem.c == problem.k == problem.groups else Channels(problem)


def _buffers(products: Channels | Depthwise) -> Buffers:
    return Buffers(products.specs, dict.fromkeys(products.specs, (0, 0)))
