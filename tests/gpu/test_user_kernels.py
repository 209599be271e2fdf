"""Triton kernels of a user's own in an engine, which captures them in its CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from convwright.api.user_kernels import unregister_kernel
from convwright.engine.loaded import load
from engine.sixteenfold import X, planned, register, runs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


triton = pytest.importorskip("triton")
tl = triton.language


@triton.jit
def kernel(a, y, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, tl.load(a + at, mask=at < n) * 16, mask=at < n)


def sixteenfold(problem: Any) -> Any:
    n = problem.y.numel

    def compute(a: Tensor, y: Tensor) -> None:
        kernel[(triton.cdiv(n, 1024),)](a, y, n, block=1024)

    return compute


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    yield
    unregister_kernel("sixteen")


@pytest.mark.parametrize("writes_out", [True, False])
def test_a_users_kernel_runs_in_the_graph_of_an_engine(writes_out: bool, tmp_path: Path) -> None:
    if writes_out:
        register(run=sixteenfold, writes_out=True)
    else:
        register()
    engine, x = planned("cuda"), X.cuda()
    assert runs(engine) == ["user/sixteen"]
    for number in (1.0, 2.0):
        assert_close(engine(number * x), 16 * number * x)
    engine.save(tmp_path)
    assert torch.equal(load(tmp_path, "cuda")(x), engine(x))
