"""Activations behind our kernels in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from backends.triton_interpreted.cases import Case, Operands, activated, activating, listed, oracle
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.hardware.machine import device_facts

BACKEND = TritonKernels()
ALGORITHMS = ["direct", "implicit-gemm"]
RELATIVE, ABSOLUTE = {DType.FP32: 2e-6, DType.FP16: 1e-3}, 5e-7
LARGEST_ERROR = {
    Arithmetic.FP32: 1e-6, Arithmetic.TF32X3: 1e-6, Arithmetic.TF32: 1e-3, Arithmetic.FP16_ACC32: 6e-4,
}  # fmt: skip
DTYPES = [DType.FP16, DType.FP32]
CPU = device_facts("cpu")


def run(candidate: Candidate, given: Operands) -> torch.Tensor:
    plan = BACKEND.build(candidate, CPU)
    given.out.fill_(float("nan"))
    return plan(given.x, plan.prepare(given.w), given.bias, given.residual, given.out)


def offered(algorithm: str, problem: ConvProblem) -> list[Candidate]:
    found = [each for each in listed(algorithm, problem, CPU) if isinstance(each, Candidate)]
    assert found
    return found


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_activation_is_what_its_formula_says(algorithm: str, dtype: DType, activation: Activation) -> None:
    problem, given = activating(activation, dtype, "cpu")
    expected = activated(given, activation)
    for candidate in offered(algorithm, problem)[::4]:
        y = run(candidate, given)
        close = torch.isclose(y, expected, rtol=RELATIVE[dtype], atol=ABSOLUTE, equal_nan=True)
        assert close.all(), (candidate.id, given.x[~close], y[~close], expected[~close])


@pytest.mark.parametrize("activation", [Activation.SILU, Activation.GELU, Activation.HARDSWISH])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_stands_behind_residual_and_bias(algorithm: str, dtype: DType, activation: Activation) -> None:
    case = Case((1, 8, 3, 34), (3, 8, 3, 3), padding=((1, 1), (1, 1)), epilogue=f"residual+bias+{activation}")
    problem = case.problem(dtype, Layout.NCHW, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in offered(algorithm, problem)[::4]:
        error = (run(candidate, given).double() - expected).norm() / expected.norm()
        assert error < LARGEST_ERROR[candidate.arithmetic], (candidate.id, float(error))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_gelu_of_half_precision_is_right_to_the_last_place_far_below_zero(algorithm: str) -> None:
    """Where 1 + erf in fp32, as PyTorch's own has it, loses digits."""
    c = 8 if algorithm == "implicit-gemm" else 1
    x = torch.zeros(1, c, 4096, dtype=torch.float16)
    x[0, 0] = torch.linspace(-5, 5, 4096)
    w = torch.zeros(c, c, 1, dtype=torch.float16)
    w[0, 0] = 1
    problem = ConvProblem.of(x.shape, w.shape, dtype=DType.FP16, epilogue="gelu")
    plan = BACKEND.build(offered(algorithm, problem)[0], CPU)
    expected = torch.nn.functional.gelu(x[0, 0].double())
    error = (plan(x, plan.prepare(w))[0, 0].double() - expected).abs()
    assert (error <= 1.2 * 2**-11 * expected.abs() + 2**-25).all()
