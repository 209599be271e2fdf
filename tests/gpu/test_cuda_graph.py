"""CUDA graphs of one place: what they read and write is nobody else's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from convwright.engine.running.cuda_graph import CudaGraph, GraphPlace

pytestmark = [
    pytest.mark.gpu, pytest.mark.alone, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
]  # fmt: skip


def vector(value: float) -> Tensor:
    return torch.full((1000,), value, device="cuda")


def replayed(graph: CudaGraph, y: Tensor) -> Tensor:
    y.fill_(torch.nan)
    graph.replay()
    return y.clone()


def test_the_workspace_of_cublas_outlives_what_pytorch_frees() -> None:
    torch.manual_seed(0)
    x, w = (torch.randn(shape, device="cuda") for shape in ((64, 1 << 20), (1 << 20, 64)))
    y = torch.empty(64, 64, device="cuda")
    graph = CudaGraph(lambda: torch.mm(x, w, out=y), GraphPlace(torch.device("cuda")))
    expected = replayed(graph, y)
    torch._C._cuda_clearCublasWorkspaces()  # as `torch.compile` does
    torch.cuda.empty_cache()
    others = [torch.zeros(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(32)]
    assert torch.equal(replayed(graph, y), expected)
    assert not any(bool(each.any()) for each in others)


def test_what_a_call_keeps_is_not_overwritten_by_another_graph() -> None:
    place, x, kept = GraphPlace(torch.device("cuda")), vector(1.0), list[Tensor]()
    first_y, second_y = vector(0.0), vector(0.0)

    def second() -> None:
        if not kept:
            kept.append(vector(7.0))
        second_y.copy_(kept[0])

    first_graph = CudaGraph(lambda: first_y.copy_((x + 1) * 2), place)
    second_graph = CudaGraph(second, place)
    for _ in range(2):
        assert bool((replayed(second_graph, second_y) == 7).all())
        assert bool((replayed(first_graph, first_y) == 4).all())


def test_a_place_and_its_graphs_may_end_in_any_order() -> None:
    place, y = GraphPlace(torch.device("cuda")), vector(0.0)
    graph = CudaGraph(lambda: y.copy_(vector(1.0) + vector(2.0)), place)
    assert bool((replayed(graph, y) == 3).all())
    del graph
    graph = CudaGraph(lambda: y.copy_(vector(5.0)), place)
    assert bool((replayed(graph, y) == 5).all())
    del place
    assert bool((replayed(graph, y) == 5).all())
