"""What torch.export and torch.jit make of our functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.errors import Refused
from eager.layer import Layer
from eager.prefer import GEMM, randn


@pytest.mark.parametrize("strict", [False, True])
def test_exported_for_every_size(strict: bool, tmp_path: Any) -> None:
    layer = Layer(padding="same", activation="gelu")
    layer.weight = nn.Parameter(randn(6, 4, 4, 4))
    sizes = {"x": {0: torch.export.Dim("n", max=64), 2: torch.export.Dim("h", min=5, max=64)}}
    program = torch.export.export(layer, (randn(2, 4, 9, 8),), strict=strict, dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "layer.pt2")
    for made in (program, torch.export.load(tmp_path / "layer.pt2"), program.run_decompositions()):
        x = randn(3, 4, 12, 8)
        assert_close(made.module()(x), F.gelu(F.conv2d(x, layer.weight, layer.bias, padding="same")))


def test_exported_with_an_algorithm() -> None:
    layer, x = Layer(algorithm=GEMM), randn(2, 4, 9, 8)
    program = torch.export.export(layer, (x,), strict=True)
    assert_close(program.module()(x), layer.plain(x) if layer.rest.pop("algorithm") else None)
    with pytest.raises(Refused, match=r"reference/gemm cannot serve this call, .*, as in torch\.export$"):
        torch.export.export(Layer(algorithm=GEMM), (x,), strict=False)


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict: bool) -> None:
    layer, x = Layer(padding=1, activation="relu"), randn(2, 4, 9, 8)
    program = torch.export.export(layer, (x,), strict=strict)
    assert any("conv" in str(node.target) for node in program.graph.nodes)
    assert_close(program.module()(x), layer.plain(x))


def test_the_custom_op_is_sound() -> None:
    import convwright.eager.tracing  # noqa: F401  it registers the op

    given = randn(2, 4, 5, 5, grad=True), randn(6, 4, 3, 3, grad=True), randn(6, grad=True), None
    arguments = ([1, 2], [1, 0], [1, 1], False, [0, 0], 1, "relu", None)
    torch.library.opcheck(torch.ops.convwright.convolution.default, (*given, *arguments))
    given = randn(2, 6, 5, 5, grad=True), randn(6, 4, 3, 3, grad=True), randn(4, grad=True), None
    arguments = ([1, 2], [1, 0], [1, 1], True, [0, 1], 1, "none", None)
    torch.library.opcheck(torch.ops.convwright.convolution.default, (*given, *arguments))


def test_a_jit_trace_holds_the_convolution() -> None:
    w = randn(6, 4, 3, 3)
    cw.conv2d(randn(2, 4, 9, 8), w)
    traced = torch.jit.trace(lambda x: cw.conv2d(x, w, activation="relu"), (randn(2, 4, 9, 8),))
    assert "conv" in str(traced.graph)
    x = randn(3, 4, 7, 7, seed=3)
    assert_close(traced(x), F.conv2d(x, w).relu())
