"""Comparisons in a model: masks are tensors of ones and zeros, and what reads them gets the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.errors import Refused


class Masked(nn.Module):
    """A convolution, and what ``then`` makes of its result."""

    def __init__(self, then: Callable[[Masked, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 4, 3)
        self.limit = nn.Parameter(torch.randn(4, 1, 1))
        self.counted = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self, self.conv(x))


READ = {
    "a choice between tensors": lambda _, y: torch.where(y > 0, y * 2, y.clamp(-1, 1)),
    "a choice between a tensor and a number": lambda _, y: torch.where(y > 0.1, y, 0.0) + torch.where(y <= 0.1, 1.5, y),
    "a choice between numbers": lambda _, y: torch.where(y <= 0.1, 1.5, 2.0),
    "a factor": lambda _, y: y * (y >= 0),
    "a number": lambda _, y: y + (y > 0).float().type_as(y),
    "the type of another": lambda _, y: y - (y > 0).type_as(y),
    "and": lambda _, y: y.masked_fill((y > 0) & (y < 1), 0.25),
    "or, not": lambda _, y: y.masked_fill(~((y > 0) | (y < -0.5)), 3.0),
    "logical": lambda _, y: torch.where(torch.logical_and(y > 0, torch.logical_not(y > 0.5)), y, -y),
    "exclusive or": lambda _, y: y * torch.logical_xor(y > 0, y > 0.5),
    "a mean for each channel": lambda _, y: torch.where(y.mean((2, 3), keepdim=True) > 0, y, -y),
    "two tensors": lambda _, y: torch.where(y > y.roll(1, 3), y, y.roll(1, 3)),
    "a weight": lambda model, y: torch.where(y > model.limit, y, y * 0.1),
    "a weight alone": lambda model, y: torch.where(model.limit > 0, y, y * 0.1),
    "known before": lambda _, y: y.masked_fill(torch.ones(7, 7, device=y.device).triu() > 0, -2.0),
    "equal": lambda _, y: torch.where(y == y.amax(1, keepdim=True), y, 0.0),
    "channels last": lambda _, y: torch.where((z := y.permute(0, 2, 3, 1)) != 0.5, z, z * 0.2),
    "read twice": lambda _, y: torch.where((mask := y > 0.2), y, 0.0) + y * mask,
    "what is not chosen is no number": lambda _, y: torch.where(y > 0, y.abs().sqrt(), torch.zeros_like(y)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("read", READ)
def test_masks_give_the_models_numbers(read: str, dtype: torch.dtype) -> None:
    model, x = Masked(READ[read]).eval().to(dtype), torch.randn(2, 4, 9, 9).to(dtype)
    engine = cw.optimize(model, x, mode="heuristic", store="none")
    with torch.no_grad():
        right = model(x)
    got = engine(x)
    assert (got.dtype, got.shape) == (right.dtype, right.shape)
    exact = {} if dtype is torch.float16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(got, right, **exact)


def test_a_limit_is_rounded_as_the_tensor_is() -> None:
    """0.1 is 0.09998 in fp16, and nothing of that is below itself."""
    model = nn.Module().eval()
    model.forward = lambda x: torch.where(x < 0.1, 1.0, 2.0) * x  # type: ignore[method-assign]
    x = torch.full((1, 4, 3, 3), 0.1).half()
    engine = cw.optimize(model, x, mode="heuristic", store="none")
    assert torch.equal(engine(x), model.forward(x))


@pytest.mark.parametrize(
    "then",
    [
        lambda _, y: y + (y > 0).sum(),
        lambda _, y: y * (y > 0).any(1, keepdim=True),
        lambda _, y: y > 0,
        lambda _, y: y * ((y > 0) + (y < -1)),
    ],
    ids=["counted", "any", "an output", "added"],
)
def test_a_mask_that_is_read_as_a_boolean_is_refused(then: Callable[[Masked, Tensor], Tensor]) -> None:
    with pytest.raises(Refused, match="it gives a tensor of bool"):
        cw.optimize(Masked(then).eval(), torch.randn(2, 4, 9, 9), mode="heuristic", store="none")


def test_infinity_is_not_filled_in() -> None:
    model = Masked(lambda _, y: y.masked_fill(y < -0.3, float("-inf")).softmax(-1)).eval()
    with pytest.raises(Refused, match="it chooses by a mask, between finite numbers and tensors only"):
        cw.optimize(model, torch.randn(2, 4, 9, 9), mode="heuristic", store="none")


def test_a_model_that_writes_to_its_parameter_is_refused() -> None:
    model = Masked(lambda model, y: y + model.counted.add_(1).detach().sum() * 0).eval()
    with pytest.raises(Refused, match="the model writes to counted while it runs"):
        cw.optimize(model, torch.randn(2, 4, 9, 9), mode="heuristic", store="none")
