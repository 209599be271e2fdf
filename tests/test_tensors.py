"""Activations of tensors: the right function, in place without memory of its own, differentiable out of place."""

from __future__ import annotations

from math import inf

import pytest
import torch

from convwright.core.epilogue import Activation
from convwright.tensors import activate, activate_
from problem_space import ACTIVATE

VALUES = torch.linspace(-9, 9, 401, dtype=torch.float64)
FUNCTIONS = [activation for activation in Activation if activation is not Activation.NONE]


@pytest.mark.parametrize("activation", Activation)
def test_both_forms_are_the_function_as_it_is_written(activation: Activation) -> None:
    expected = ACTIVATE[activation](VALUES)
    torch.testing.assert_close(activate(VALUES, activation), expected, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(activate_(VALUES.clone(), activation), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("activation", Activation)
def test_in_place_is_in_place(activation: Activation, dtype: torch.dtype) -> None:
    given = VALUES.to(dtype)[::2]
    address, strides = given.data_ptr(), given.stride()
    result = activate_(given, activation)
    assert result is given
    assert (result.data_ptr(), result.stride()) == (address, strides)
    exact = ACTIVATE[activation](VALUES.to(dtype).double()[::2])
    torch.testing.assert_close(result.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_out_of_place_leaves_its_input_and_has_a_gradient(activation: Activation) -> None:
    given = VALUES.clone().requires_grad_()
    result = activate(given, activation)
    assert torch.equal(given, VALUES)
    assert torch.autograd.gradcheck(lambda y: activate(y, activation), VALUES[::7].clone().add_(0.01).requires_grad_())
    assert result.requires_grad


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_a_nan_stays_one_and_infinity_is_not_bounded(activation: Activation) -> None:
    # In fp64: on a CPU PyTorch's GELU makes a NaN of an infinite fp32 or bf16.
    result = activate_(torch.tensor([float("nan"), inf], dtype=torch.float64), activation)
    assert result[0].isnan()
    assert result[1] == inf
