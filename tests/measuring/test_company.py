"""Company is other layers, and leaves nothing behind."""

from __future__ import annotations

import torch

from convwright.measuring.company import Company


def test_it_runs_layers_that_are_no_convolutions() -> None:
    company, training = Company("cpu"), torch.is_grad_enabled()
    with torch.autograd.profiler.profile() as profile:
        company()
    seen = [event.name for event in profile.function_events]
    assert {"aten::batch_norm", "aten::layer_norm", "aten::relu"} <= set(seen)
    assert not any("conv" in name or "mm" in name for name in seen)
    assert torch.is_grad_enabled() is training
