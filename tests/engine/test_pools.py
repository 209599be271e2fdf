"""Pooling in networks: adaptive windows, and maxima of which nobody reads the places."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from convwright.engine.reference import reference
from convwright.errors import Refused
from engine.test_optimize import Called, agree, engine, kinds, network

IMAGE = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
@settings(max_examples=10)
@given(st.data())
def test_adaptive_pooling_computes_what_the_model_computes(data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=3), "size, windows")
    name, rank = data.draw(st.sampled_from(("avg", "max"))), len(axes)
    sizes, counts = zip(*axes, strict=True)
    x = torch.randn(2, 3, *sizes)
    if rank > 1 and data.draw(st.booleans(), "channels last"):
        x = x.to(memory_format=torch.channels_last if rank == 2 else torch.channels_last_3d)
    pool = getattr(F, f"adaptive_{name}_pool{rank}d")
    model = Called(lambda x: pool(x * 2, counts).relu())
    whole = all(size % count == 0 for size, count in axes)
    is_pool = whole and not all(count in (1, size) for size, count in axes)
    captured = network(model, x)
    found = {node.operation.kind for node in captured.graph.nodes}
    assert ("pool" in found, "foreign" in found) == (is_pool, not whole)
    agree(reference(captured, [x]), model, x)
    got = engine(model, x)(x)
    agree(got, model, x)
    assert got.stride() == model(x).stride()


@pytest.mark.first_cases(3)
@pytest.mark.parametrize(
    ("function", "computed"),
    [
        (lambda x: F.adaptive_avg_pool2d(x, 6), []),
        (lambda x: F.adaptive_max_pool2d(x, (6, 1)), ["pointwise"]),
        (lambda x: F.adaptive_max_pool2d(x.transpose(1, 3), (None, 1)).transpose(1, 3), ["pointwise"]),
        (lambda x: torch.ops.aten.max_pool2d_with_indices(x, [2, 2])[0] + 1, ["pool", "pointwise"]),
        (lambda x: F.adaptive_max_pool2d(x, (4, 5)), ["foreign"]),
        (lambda x: F.adaptive_max_pool2d(x[0], 3), ["copy", "view", "foreign"]),
        (lambda x: x.max(1, keepdim=True)[0] * x, ["pointwise", "pointwise"]),
        (lambda x: x.topk(2, 1)[0], ["foreign"]),
    ],
)
def test_what_pooling_becomes(function: Callable[[Tensor], Tensor], computed: list[str]) -> None:
    model = Called(function)
    assert kinds(model, IMAGE) == computed
    agree(engine(model, IMAGE)(IMAGE), model, IMAGE)


def test_the_pool_at_the_end_of_a_vgg_and_a_classifier() -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 5)
    for size, pooled in ((6, ["pool"]), (7, ["foreign"])):
        model, x = nn.Sequential(*layers).eval(), torch.randn(2, 4, size, size)
        assert kinds(model, x) == ["conv", "pointwise", *pooled, "view", "linear"]
        agree(engine(model, x)(x), model, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True)[1].float(),
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    ],
)
def test_places_of_maxima_that_are_read_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(Refused, match=r"pool2d\S* cannot be planned: it gives a tensor of int64, and a network holds"):
        engine(Called(function), IMAGE)
