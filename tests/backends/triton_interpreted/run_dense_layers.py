"""A mixed-scale dense network by the kernels of its own, in Triton's interpreter. Its own process runs this."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton")

import convwright as cw
from convwright.backends.triton.dense_layers.plan import DenseLayers
from convwright.training.dense_stack import concatenated

# Input channels, output channels, width, dilations, and the images' sizes: smaller than what taps reach, and larger
# than what a program computes.
CASES = [
    (1, 2, 1, (1, 2, 9, 1), (2, 9, 11)),
    (2, 3, 2, (1, 3, 1), (2, 8, 7)),
    (1, 1, 1, (1,), (1, 5, 6)),
    (3, 1, 1, (4, 1, 2), (1, 17, 33)),
    (1, 2, 4, (2, 1), (1, 16, 16)),
]


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which directions the kernels have served."""
    found: list[str] = []
    for name in ("outputs", "gradients"):
        run = getattr(DenseLayers, name)

        def told(self: DenseLayers, *given: object, name: str = name, run: object = run, **named: object) -> object:
            found.append(name)
            return run(self, *given, **named)  # type: ignore[operator]

        monkeypatch.setattr(DenseLayers, name, told)
    return found


def network(inputs: int, outputs: int, width: int, dilations: tuple[int, ...]) -> cw.nn.MSDNet:
    torch.manual_seed(0)
    model = cw.nn.MSDNet(inputs, outputs, len(dilations), width, dilations)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def plain(model: cw.nn.MSDNet, x: Tensor) -> Tensor:
    return concatenated(x, model.layers, model.last, 1)


def learned(y: Tensor, model: nn.Module, x: Tensor, dy: Tensor) -> list[Tensor]:
    wanted = [x, *model.parameters()] if x.requires_grad else list(model.parameters())
    return [y.detach(), *torch.autograd.grad(y, wanted, dy)]


@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize(("inputs", "outputs", "width", "dilations", "sizes"), CASES)
def test_it_errs_as_little_as_pytorch(
    served: list[str],
    inputs: int, outputs: int, width: int, dilations: tuple[int, ...], sizes: tuple[int, int, int], of_input: bool,
) -> None:  # fmt: skip
    model = network(inputs, outputs, width, dilations)
    count, height, columns = sizes
    x = torch.randn(count, inputs, height, columns, requires_grad=of_input)
    dy = torch.randn(count, outputs, height, columns)
    exact, exact_x = copy.deepcopy(model).double(), x.detach().double().requires_grad_(of_input)
    right = learned(plain(exact, exact_x), exact, exact_x, dy.double())
    theirs = learned(plain(model, x), model, x, dy)
    ours = learned(model(x), model, x, dy)
    assert served == ["outputs", "gradients"]
    for mine, own, each in zip(ours, theirs, right, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (own.dtype, own.shape, own.stride())
        error, usual = ((made.double() - each).norm() / each.norm() for made in (mine, own))
        assert error <= max(2 * usual, 4 * torch.finfo(x.dtype).eps)  # some cancel, all but a few roundings
    with torch.no_grad():
        assert torch.equal(model(x), ours[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_16_bits(served: list[str], dtype: torch.dtype) -> None:
    model = network(2, 2, 1, (1, 2, 3))
    x, dy = torch.randn(1, 2, 12, 10), torch.randn(1, 2, 12, 10)
    right = learned(plain(model, x), model, x, dy)
    low = copy.deepcopy(model).to(dtype)
    found = learned(low(x.to(dtype)), low, x.to(dtype), dy.to(dtype))
    assert served == ["outputs", "gradients"]
    for mine, each in zip(found, right, strict=True):
        assert float((mine.float() - each).norm() / each.norm()) < 8 * torch.finfo(dtype).eps


def test_what_is_not_finite_is_kept(served: list[str]) -> None:
    model = network(1, 1, 1, (1, 2))
    x = torch.randn(1, 1, 9, 9)
    x[0, 0, 4, 4] = torch.nan
    y = model(x)
    right = plain(model, x)
    assert served
    assert torch.equal(y.isnan(), right.isnan())


def test_layers_that_do_not_learn_and_derivatives_of_gradients_are_left_to_others(served: list[str]) -> None:
    model = network(1, 1, 1, (1, 2))
    x = torch.randn(1, 1, 9, 9, requires_grad=True)
    (dx,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    (again,) = torch.autograd.grad(dx.square().sum(), x)
    (right_dx,) = torch.autograd.grad(plain(model, x).square().sum(), x, create_graph=True)
    (right,) = torch.autograd.grad(right_dx.square().sum(), x)
    torch.testing.assert_close(again, right)
    assert served == ["outputs", "gradients"]  # of what the first gradient was computed from
    model.layers[0].weight.requires_grad_(False)
    model(x).sum().backward()
    assert served == ["outputs", "gradients"]


def test_an_algorithm_that_is_asked_for_computes_it(served: list[str]) -> None:
    model = network(1, 1, 1, (1, 2))
    with cw.algorithms(forward="reference/gemm"), torch.no_grad():
        model(torch.randn(1, 1, 9, 9))
    assert served == []
