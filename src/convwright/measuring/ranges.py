"""Plans whose calls carry their candidate's id into a profiler's timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function

from convwright.core.plan import Plan

_cuda: Any = torch.cuda  # whose functions for ranges have no types
_built_with_cuda: Callable[[], bool] = torch.backends.cuda.is_built


class Ranged:
    """A plan each of whose calls is a range with its candidate's id: NVTX's, and one of PyTorch's own profiler."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.candidate = plan.candidate
        self.workspace_bytes = plan.workspace_bytes
        self.writes_out = plan.writes_out
        self._name = plan.candidate.id
        # PyTorch has no NVTX where it was built without CUDA, and raises there.
        self._with_nvtx = _built_with_cuda()

    def prepare(self, weight: Tensor) -> Tensor:
        return self.plan.prepare(weight)

    def __call__(self, *operands: Tensor | None, **named: Tensor | None) -> Tensor:
        with record_function(self._name):
            if not self._with_nvtx:
                return self._run(*operands, **named)
            _cuda.nvtx.range_push(self._name)
            try:
                return self._run(*operands, **named)
            finally:
                _cuda.nvtx.range_pop()

    def _run(self, *operands: Any, **named: Any) -> Tensor:
        return self.plan(*operands, **named)

    def __getattr__(self, name: str) -> Any:
        """What else a backend's plan has."""
        return getattr(self.plan, name)


def without_range(plan: Plan) -> Plan:
    """The plan itself, whether or not its calls are ranges."""
    return plan.plan if isinstance(plan, Ranged) else plan
