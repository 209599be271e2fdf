"""Convolutions in 1 and 3 dimensions seen in 2, without a copy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import convwright as cw
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.rewrites import rewrite
from convwright.rewrites.view_2d import view_of
from convwright.tensors import lies_as, spec_of
from problem_space import problems, specs, tensor
from rewrites.around import arguments_of, check_identity, refused, wrapped

AS_2D = rewrite("as-2d")


@st.composite
def factored(draw: st.DrawFn) -> ConvProblem:
    """In 3 dimensions, with one tap in some of them, in memory dense or not."""
    taps = draw(st.tuples(*[st.sampled_from([1, 1, 3])] * 3))
    x = (draw(st.integers(1, 3)), 2, *(3 * draw(st.integers(1, 2)) for _ in taps))
    layout = draw(st.sampled_from([Layout.NCHW, Layout.NHWC]))
    problem = ConvProblem.of(
        x, (4, 2, *taps),
        padding=tuple((each - 1) // 2 for each in taps), layout=layout, direction=draw(st.sampled_from(Direction)),
    )  # fmt: skip
    if draw(st.booleans()):
        problem = replace(problem, x=draw(specs(x, problem.dtype)), y=draw(specs(problem.y.shape, problem.dtype)))
    return problem


@settings(max_examples=40, deadline=None)
@given(problem=factored())
def test_factored_filters_are_seen_in_2_dimensions(problem: ConvProblem) -> None:
    chosen = arguments_of("as-2d", problem)
    assert chosen or refused("as-2d", problem)
    check_identity(problem, [(("as-2d", arguments),) for arguments in chosen])


@settings(max_examples=60, deadline=None)
@given(problem=problems() | factored())
def test_the_inner_problem_describes_the_views(problem: ConvProblem) -> None:
    view = view_of(problem)
    if view is not None and problem.n:
        inner = AS_2D.inner(problem, ())
        for seen, spec, described in (
            (view.images, problem.x, inner.x),
            (view.images, problem.y, inner.y),
            (view.weight, problem.w, inner.w),
        ):
            operand = tensor(spec)
            assert seen(operand).data_ptr() == operand.data_ptr()
            found = seen(operand)
            assert found.shape == described.shape
            # The stride of a dimension of size 1 says nothing, and views give it any.
            for size, got, said in zip(found.shape, found.stride(), described.strides, strict=True):
                assert size == 1 or got == said


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_one_dimension_gets_a_height_of_1(layout: Layout) -> None:
    problem = ConvProblem.of((2, 6, 31), (4, 3, 5), stride=2, padding=2, dilation=3, groups=2, layout=layout)
    inner = AS_2D.inner(problem, ())
    assert wrapped(problem, (("as-2d", ()),)).id == "as-2d(reference/gemm)"
    assert inner == ConvProblem.of(
        (2, 6, 1, 31), (4, 3, 1, 5),
        stride=(1, 2), padding=(0, 2), dilation=(1, 3), groups=2, layout=layout,
    )  # fmt: skip
    assert AS_2D.scratch_bytes(problem, ()) == AS_2D.moved_bytes(problem, ()) == 0


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
@pytest.mark.parametrize(
    ("taps", "x", "seen"), [((3, 1, 1), (2, 4, 8, 30), (3, 1)), ((1, 1, 3), (2, 4, 40, 6), (1, 3))]
)
def test_spatial_dimensions_become_one_in_every_dense_layout(
    taps: tuple[int, ...], x: tuple[int, ...], seen: tuple[int, ...], layout: Layout
) -> None:
    padding = tuple(each // 2 for each in taps)
    problem = ConvProblem.of((2, 4, 8, 5, 6), (4, 4, *taps), padding=padding, layout=layout)
    inner = AS_2D.inner(problem, ())
    assert (inner.x.shape, inner.taps) == (x, seen)
    assert {inner.x.layout, inner.y.layout} == {layout}


def test_depth_joins_the_images_where_channels_lie_last() -> None:
    problem = ConvProblem.of((2, 4, 8, 5, 6), (4, 4, 1, 3, 3), layout=Layout.NHWC)
    inner = AS_2D.inner(problem, ())
    assert (inner.n, inner.x.shape, inner.x.layout) == (16, (16, 4, 5, 6), Layout.NHWC)


def test_depth_joins_a_single_image_in_any_layout() -> None:
    problem = ConvProblem.of((1, 4, 8, 5, 6), (4, 4, 1, 3, 3))
    inner = AS_2D.inner(problem, ())
    assert (inner.n, inner.x.strides) == (8, (30, 240, 6, 1))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ConvProblem.of((2, 4, 8, 8), (4, 4, 3, 3)), "2 spatial dimensions already"),
        (ConvProblem.of((2, 4, 8, 5, 6), (4, 4, 3, 3, 3)), "3x3x3 taps"),
        (ConvProblem.of((2, 4, 8, 5, 6), (4, 4, 1, 3, 3), stride=(2, 1, 1)), "stride (2, 1, 1)"),
        (ConvProblem.of((2, 4, 8, 5, 6), (4, 4, 1, 3, 3)), "the input's are (960, 240, 30, 6, 1)"),
    ],
)
def test_a_refusal_names_the_value(problem: ConvProblem, words: str) -> None:
    (refusal,) = refused("as-2d", problem)
    assert refusal.id == "as-2d"
    assert words in refusal.reason


def test_a_weight_is_a_view_too() -> None:
    weight = torch.randn(4, 3, 5)
    view = view_of(ConvProblem.of((2, 3, 9), (4, 3, 5)))
    assert view is not None
    assert view.weight(weight).data_ptr() == weight.data_ptr()


@pytest.mark.parametrize(
    ("x", "strides", "w", "groups"),
    [((4, 4, 6), (24, 1, 4), (8, 1, 2), 4), ((2, 5, 1, 8, 8), (320, 1, 320, 40, 5), (15, 5, 1, 3, 3), 1)],
)
def test_a_result_lies_as_pytorchs_own_whatever_the_view_is_computed_as(
    x: tuple[int, ...], strides: tuple[int, ...], w: tuple[int, ...], groups: int
) -> None:
    """A view whose channels lie last has such a result, where PyTorch's own in 1 or 3 dimensions lies in planes."""
    given, weight = torch.randn(x).as_strided(x, strides), torch.randn(w)
    name = f"conv{len(x) - 2}d"
    ours = getattr(cw, name)(given, weight, groups=groups, algorithm="as-2d(torch/default)")
    theirs = getattr(F, name)(given, weight, groups=groups)
    torch.testing.assert_close(ours, theirs)
    assert lies_as(ours, spec_of(theirs))
