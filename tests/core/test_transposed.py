"""Transposed convolutions are backward_data problems: shapes and values are PyTorch's, or a sentence says why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.core.transposed import transposed_of_specs
from convwright.errors import BadInput, Refused
from problem_space import oracle

TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Arguments for PyTorch's function, some of which it refuses."""
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def per_axis(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    x = (draw(st.integers(1, 2)), groups * draw(st.integers(1, 2)), *per_axis(1, 4))
    w = (x[1], draw(st.integers(1, 3)), *per_axis(1, 4))
    stride, dilation = per_axis(1, 4), per_axis(1, 4)
    most = [max(pair) - 1 for pair in zip(stride, dilation, strict=True)]
    allowed = st.tuples(*(st.integers(0, least) for least in most))
    window = {"stride": stride, "padding": per_axis(0, 3), "dilation": dilation, "groups": groups}
    return x, w, {**window, "output_padding": draw(allowed | st.just(tuple(size + 1 for size in most)))}


@given(calls(), st.integers(0, 99))
def test_values_and_shapes_are_pytorchs(
    call: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], seed: int
) -> None:
    x_shape, w_shape, arguments = call
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randint(-4, 5, shape, generator=generator).double() for shape in (x_shape, w_shape))
    try:
        expected = TRANSPOSED[len(x_shape) - 2](x, w, None, **arguments)
    except RuntimeError:
        with pytest.raises(BadInput):
            ConvProblem.of_transposed(x_shape, w_shape, **arguments)
        return
    try:
        problem = ConvProblem.of_transposed(x_shape, w_shape, dtype="fp64", **arguments)
    except Refused:
        window = zip(*(arguments[name] for name in ("output_padding", "stride", "padding")), strict=True)
        assert any(extra >= stride + padding for extra, stride, padding in window)
        return
    assert problem.output.shape == tuple(expected.shape)
    assert torch.equal(oracle(problem, {Role.DY: x, Role.W: w}), expected)


def test_the_operands_have_their_places() -> None:
    problem = ConvProblem.of_transposed(
        (2, 16, 7, 7), (16, 4, 3, 3), stride=2, padding=1, output_padding=1, groups=2, dtype="fp16",
        layout={"x": "nhwc", "y": "nchw"}, alignment=8,
    )  # fmt: skip
    assert problem.direction is Direction.BACKWARD_DATA
    assert (problem.n, problem.c, problem.k, problem.groups) == (2, 8, 16, 2)
    operands = problem.operands
    assert [*operands] == [Role.DY, Role.W, Role.DX]
    assert operands[Role.DY].shape == (2, 16, 7, 7)
    assert operands[Role.DX].shape == (2, 8, 14, 14)
    assert (operands[Role.DY].layout, operands[Role.DX].layout) == (Layout.NHWC, Layout.NCHW)
    assert {spec.alignment for spec in operands.values()} == {8}
    assert problem.dtype is DType.FP16
    assert ConvProblem.parse(problem.key) == problem


def test_an_output_is_well_aligned_whatever_the_input_is() -> None:
    x, w = TensorSpec((1, 4, 5), DType.FP32, alignment=4), TensorSpec((4, 2, 3), DType.FP32)
    problem = transposed_of_specs(ConvProblem, x, w, stride=2, layout=Layout.NHWC)
    assert (problem.y, problem.w) == (x, w)
    assert problem.output == TensorSpec((1, 2, 11), DType.FP32, (22, 1, 2))


def test_output_padding_beyond_the_stride_takes_from_the_padding_behind() -> None:
    problem = ConvProblem.of_transposed((1, 1, 5), (1, 1, 3), stride=1, padding=3, output_padding=2, dilation=3)
    assert problem.padding == ((3, 1),)
    assert problem.output.shape == (1, 1, 4 - 6 + 7 + 2)


X, W = (2, 6, 5, 5), (6, 4, 3, 3)


@pytest.mark.parametrize(
    ("x", "w", "arguments", "words"),
    [
        (X, W, {"output_padding": 1}, ["`output_padding` (=1)", "`stride` (=1)", "`dilation` (=1)"]),
        (X, W, {"output_padding": (0, 2), "stride": (3, 2)}, ["`output_padding` (=2)", "`stride` (=2)"]),
        (X, W, {"output_padding": -1}, ["`output_padding`", "at least 0", "-1"]),
        (X, W, {"output_padding": True}, ["`output_padding`", "2 ints", "True"]),
        (X, W, {"output_padding": 1.0}, ["`output_padding`", "2 ints", "1.0"]),
        (X, W, {"stride": 0}, ["`stride`", "at least 1", "0"]),
        (X, W, {"dilation": 0}, ["`dilation`", "at least 1", "0"]),
        (X, W, {"padding": -1}, ["`padding`", "at least 0", "-1"]),
        (X, W, {"padding": "same"}, ["`padding`", "2 ints", "'same'"]),
        (X, W, {"padding": 4}, ["`padding` (=4)", "all of the 7 elements"]),
        (X, (4, 6, 3, 3), {}, ["`weight`", "in_channels (=6)", "got 4"]),
        (X, W, {"groups": 4}, ["`in_channels` (=6)", "`groups` (=4)"]),
        (X, W, {"groups": 0}, ["`groups`", "at least 1", "got 0"]),
        (X, W, {"groups": 1.5}, ["`groups`", "whole number", "1.5"]),
        (X, (6, 4, 3), {}, ["`weight`", "4 dimensions", "(6, 4, 3)"]),
        ((6, 5), W, {}, ["`input`", "3, 4 or 5 dimensions", "(6, 5)"]),
        ((2, 6, 0, 5), W, {}, ["`input`", "at least 1", "(6, 0, 5)"]),
        (X, (6, 0, 3, 3), {}, ["`weight`", "at least 1", "(6, 0, 3, 3)"]),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_sentence(
    x: tuple[int, ...], w: tuple[int, ...], arguments: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(BadInput) as refused:
        ConvProblem.of_transposed(x, w, **arguments)
    said = str(refused.value)
    assert "\n" not in said
    assert [word for word in words if word not in said] == []


def test_elements_that_nothing_reaches_are_refused_in_words() -> None:
    with pytest.raises(Refused, match=r"`output_padding` \(=2\) .* smaller than stride \+ padding \(=2\)"):
        ConvProblem.of_transposed((1, 1, 5), (1, 1, 3), padding=1, output_padding=2, dilation=3)
