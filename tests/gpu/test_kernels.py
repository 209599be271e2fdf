"""The kernels that calls and candidates launch on a live GPU."""

from __future__ import annotations

import pytest
import torch

import convwright as cw
from convwright.measuring.kernels import kernels_of
from convwright.store.store import Store

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]


def test_one_launch_with_all_that_is_known_of_it() -> None:
    x = torch.zeros(1 << 20, device="cuda")
    (kernel,) = kernels_of(lambda: x.add_(1), "cuda")
    assert kernel.name
    assert kernel.grid is not None
    assert kernel.block is not None
    assert kernel.grid[0] * kernel.block[0] >= 1 << 10
    assert kernel.registers
    assert kernel.shared_bytes is not None
    assert kernel.duration_us
    assert kernel.duration_us > 0


def test_launches_come_in_their_order() -> None:
    x = torch.randn(256, 256, device="cuda")
    names = [kernel.name for kernel in kernels_of(lambda: torch.relu(x @ x), "cuda")]
    assert len(names) >= 2
    assert "gemm" in names[0].lower() or "cutlass" in names[0].lower()
    assert "elementwise" in names[-1]


def test_every_measured_candidate_launches_kernels() -> None:
    found = cw.find(
        "mb4ic64ih28oc64kh3ph1 dt:fp16 tag:nhwc", device="cuda", mode="quick", kernels=True, store=Store.open(None)
    )
    measured = {v.finding.candidate.id for v in found.verdicts if v.finding.measurement is not None}
    assert measured
    assert found.kernels is not None
    assert set(found.kernels) == measured
    for launched in found.kernels.values():
        assert launched
        assert all(kernel.grid and kernel.block and kernel.registers for kernel in launched)
