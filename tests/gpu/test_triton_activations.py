"""Activations behind our kernels on a GPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from backends.triton_interpreted.cases import Case, Operands, activated, activating, oracle
from convwright.backends.triton.backend import TritonKernels
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.tensor_spec import Layout
from gpu.own_kernels import candidates
from gpu.right import relative

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]
BACKEND = TritonKernels()
ALGORITHMS = ["direct", "implicit-gemm"]
RELATIVE, ABSOLUTE = {DType.FP32: 2e-6, DType.FP16: 1e-3, DType.BF16: 8e-3}, 5e-7
LARGEST_ERROR = {
    Arithmetic.FP32: 1e-6, Arithmetic.TF32X3: 1e-6, Arithmetic.TF32: 1e-3, Arithmetic.FP16_ACC32: 6e-4,
    Arithmetic.BF16_ACC32: 5e-3,
}  # fmt: skip
DTYPES = [DType.FP16, DType.BF16, DType.FP32]


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_activation_is_what_its_formula_says(
    algorithm: str, dtype: DType, activation: Activation, live: DeviceFacts
) -> None:
    problem, given = activating(activation, dtype, "cuda")
    expected = activated(given, activation)
    for candidate in candidates(algorithm, problem, live)[::4]:
        y = given.computed(BACKEND.build(candidate, live))
        close = torch.isclose(y, expected, rtol=RELATIVE[dtype], atol=ABSOLUTE, equal_nan=True)
        assert close.all(), (candidate.id, given.x[~close], y[~close], expected[~close])


@pytest.mark.parametrize("activation", [Activation.SILU, Activation.GELU, Activation.HARDSWISH])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_stands_behind_residual_and_bias(
    algorithm: str, dtype: DType, activation: Activation, live: DeviceFacts
) -> None:
    case = Case((2, 64, 28, 30), (8, 64, 3, 3), padding=((1, 1), (1, 1)), epilogue=f"residual+bias+{activation}")
    problem = case.problem(dtype, Layout.NCHW, Layout.NCHW)
    given = Operands.of(problem, "cuda", integers=False)
    expected = oracle(problem, given)
    for candidate in candidates(algorithm, problem, live)[::4]:
        error = relative(given.computed(BACKEND.build(candidate, live)), expected)
        assert error < LARGEST_ERROR[candidate.arithmetic], (candidate.id, float(error))
