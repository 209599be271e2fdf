"""PyTorch's own sample and error inputs of its convolutions, given to ours."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import convwright as cw
from eager.prefer import GEMM, prefer

op_db: Any = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db
NAMES = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
INFOS = {name: next(info for info in op_db if info.name == f"nn.functional.{name}") for name in NAMES}


DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.complex64)
EVERY = [*product(NAMES, (None,), DTYPES), *product(NAMES, (GEMM,), (torch.float64,))]
# Among the quick tests each function has one dtype by turns, and those of one rank and both directions have the others.
QUICK = [(name, None, DTYPES[number % len(DTYPES)]) for number, name in enumerate(NAMES)]
QUICK += [*product(("conv1d", "conv_transpose1d"), (None,), DTYPES), *product(NAMES, (GEMM,), (torch.float64,))]


@pytest.mark.parametrize(
    ("name", "algorithm", "dtype"),
    [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in EVERY],
)
def test_the_same_results_and_gradients(
    name: str, dtype: torch.dtype, algorithm: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if algorithm is not None:
        prefer(monkeypatch, algorithm)
    ours, info = getattr(cw, name), INFOS[name]
    samples = list(info.sample_inputs_func(info, "cpu", dtype, True))
    assert len(samples) > 3
    for sample in samples:
        found, expected = (_with_gradients(function, sample) for function in (ours, info.op))
        assert_close(found, expected, msg=lambda text, sample=sample: f"{sample}\n{text}")


def _with_gradients(function: Any, sample: Any) -> list[Any]:
    operands = [sample.input, *sample.args]
    leaves = [
        each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each
        for each in operands
    ]
    y = function(*leaves, **sample.kwargs)
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    dy = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).to(y.dtype).reshape(y.shape)
    return [y, *torch.autograd.grad(y, inputs, dy, allow_unused=True)]


@pytest.mark.parametrize("name", NAMES)
def test_what_pytorch_refuses_is_refused(name: str) -> None:
    ours, info = getattr(cw, name), INFOS[name]
    if info.error_inputs_func is None:
        pytest.skip(f"PyTorch lists no error inputs of {name}")
    for error in info.error_inputs_func(info, "cpu"):
        sample = error.sample_input
        with pytest.raises((cw.BadInput, RuntimeError, ValueError, TypeError)) as said:
            ours(sample.input, *sample.args, **sample.kwargs)
        if isinstance(said.value, cw.ConvwrightError):
            assert "\n" not in str(said.value)
