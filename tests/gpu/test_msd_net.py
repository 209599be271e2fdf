"""Mixed-scale dense networks by the kernels of their own, on a GPU, held against float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.backends.triton.dense_layers.plan import DenseLayers
from convwright.training.dense_stack import concatenated

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


def learned(model: cw.nn.MSDNet, x: Tensor, dy: Tensor, *, plain: bool) -> list[Tensor]:
    y = concatenated(x, model.layers, model.last, 1) if plain else model(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *model.parameters()], dy)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("width", "depth", "sizes"),
    [(1, 30, (1, 150, 201)), (2, 12, (2, 64, 64)), (4, 5, (3, 33, 47)), (5, 3, (1, 32, 32))],
)
def test_outputs_and_gradients(
    width: int, depth: int, sizes: tuple[int, int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    run, served = DenseLayers.gradients, list[list[Tensor]]()

    def kept(*given: object, **named: object) -> tuple[Tensor | None, list[Tensor]]:
        dx, found = run(*given, **named)
        served.append([dx, *found])
        return dx, found

    monkeypatch.setattr(DenseLayers, "gradients", kept)
    exact = cw.nn.MSDNet(2, 3, depth, width).cuda().double()
    for parameter in exact.parameters():
        nn.init.normal_(parameter, std=0.1)
    model = copy.deepcopy(exact).to(dtype)
    count, height, columns = sizes
    x = torch.randn(count, 2, height, columns, device="cuda", dtype=dtype, requires_grad=True)
    dy = torch.randn(count, 3, height, columns, device="cuda", dtype=dtype)
    exact = copy.deepcopy(model).double()
    right = learned(exact, x.detach().double().requires_grad_(), dy.double(), plain=True)
    with torch.backends.cudnn.flags(allow_tf32=False):
        theirs = learned(model, x, dy, plain=True)
        ours = learned(model, x, dy, plain=False)
    assert bool(served) == (width <= 4)
    for mine, own in zip(ours, theirs, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (own.dtype, own.shape, own.stride())
    kinds = {"y": slice(1), "dx": slice(1, 2), "dw": slice(2, None, 2), "db": slice(3, None, 2)}
    for kind, part in kinds.items():  # a bias alone has a gradient that may cancel
        mine, own, each = (
            torch.cat([made.double().flatten() for made in many[part]]) for many in (ours, theirs, right)
        )
        error, usual = (float((made - each).norm() / each.norm()) for made in (mine, own))
        assert error <= max(2 * usual, 4 * torch.finfo(dtype).eps), kind
    learned(model, x, dy, plain=False)
    assert not served or all(map(torch.equal, *served))


def test_inside_of_a_graph() -> None:
    torch.manual_seed(0)
    model, x = cw.nn.MSDNet(1, 2, 6).cuda(), torch.randn(1, 1, 40, 40, device="cuda")
    with torch.no_grad():
        wanted = model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        graph.replay()
    assert torch.equal(y, wanted)
