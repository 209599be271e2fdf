"""Layers that compute int8 by PyTorch's own call stay as they are: no problem has its wrapped sums."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw


class Quantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.ones(4, 3, 3, 3, dtype=torch.int8))
        self.then = nn.Conv2d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.then(F.conv2d(x.to(torch.int8), self.w).float())  # type: ignore[arg-type]
        return y


def test_advise_and_tune_pass_it_over_and_see_the_others() -> None:
    model, x = Quantised(), torch.randn(1, 3, 12, 12)
    advice = cw.advise(model, x, mode="heuristic")
    assert [layer.problem.dtype for layer in advice.layers] == ["fp32"]
    assert "torch.int8" in str(advice)
    tuned = cw.tune(model, x, mode="quick", budget_us=2e5)
    assert "1 problem " in repr(tuned)
