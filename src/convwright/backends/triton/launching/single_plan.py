"""The plan of a single kernel."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from convwright.backends.triton.launching.kernel_plan import KernelPlan, wrong_operands
from convwright.backends.triton.launching.launch import Launch
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.errors import BadInput


class SingleKernelPlan(KernelPlan):
    """Runs one configuration of a kernel.

    A kernel of the forward direction has parameters for bias and residual even if the problem has none.
    """

    workspace_bytes = 0

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        super().__init__(candidate, device, launches)
        self._takes_bias = candidate.problem.epilogue.bias
        self._takes_residual = candidate.problem.epilogue.residual
        self._is_forward = candidate.problem.direction is Direction.FORWARD
        self._launch, self._stream = launches[0], launches[0].stream

    @classmethod
    def steps(cls, candidate: Candidate) -> int:
        return 1

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
        if self._stream is None:
            self._launch(*((first, second, bias, residual, out) if self._is_forward else (first, second, out)))
            return out
        self._run_at(
            first.data_ptr(),
            second.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            0 if residual is None else residual.data_ptr(),
            out.data_ptr(),
            self._stream(),
        )
        return out

    def _run_at(self, first: int, second: int, bias: int, residual: int, out: int, stream: int) -> None:
        self._launch.at((first, second, bias, residual, out) if self._is_forward else (first, second, out), stream)

    def launch(self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Run on these addresses. The weight must be a prepared one."""
        if bool(bias) is not self._takes_bias or bool(residual) is not self._takes_residual:
            raise BadInput(wrong_operands(self.candidate, bias or None, residual or None))
        self._run_at(first, second, bias, residual, out, stream)
