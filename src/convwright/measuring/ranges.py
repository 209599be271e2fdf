"""Plans whose calls appear in a profiler's timeline with their candidate's id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function

from convwright.core.plan import Plan

_cuda: Any = torch.cuda  # its functions for ranges have no types
_built_with_cuda: Callable[[], bool] = torch.backends.cuda.is_built


class Ranged:
    """A plan whose calls are ranges named by its candidate's id, in NVTX and in PyTorch's profiler."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.candidate = plan.candidate
        self.workspace_bytes = plan.workspace_bytes
        self.writes_out = plan.writes_out
        self._name = plan.candidate.id
        # PyTorch built without CUDA has no NVTX and raises an error.
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
        """Other attributes of the backend's plan."""
        return getattr(self.plan, name)


def without_range(plan: Plan) -> Plan:
    """The plan itself, without ranges."""
    return plan.plan if isinstance(plan, Ranged) else plan
