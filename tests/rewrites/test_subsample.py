"""Strided convolutions that read an input at even distances, of which only that is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convwright.core.direction import Direction, Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.graph.memory_plan import aligned
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.error import measure_errors
from convwright.rewrites import rewrite
from problem_space import operands, problems, run, specs
from rewrites.around import arguments_of, chains, check_copies, check_identity, planned, refused, wrapped

THIN = rewrite("subsample")
# As a ResNet makes an image smaller beside its other layers.
PROJECTION = ConvProblem.of((2, 12, 9, 8), (8, 12, 1, 1), stride=2)


@st.composite
def stepping(draw: st.DrawFn) -> ConvProblem:
    """Filters of one tap or of several with a dilation, padding beyond them, any sizes, in any memory."""
    drawn = draw(problems(least_images=1))
    rank = drawn.rank

    def per_axis(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    taps, stride, dilation = per_axis(1, 3), per_axis(1, 4), per_axis(1, 4)
    low, high = per_axis(0, 5), per_axis(0, 5)
    reach = [(r - 1) * d + 1 for r, d in zip(taps, dilation, strict=True)]
    sizes = [max(1, r - sum(pad)) + draw(st.integers(0, 6)) for r, *pad in zip(reach, low, high, strict=True)]
    problem = ConvProblem.of_specs(
        draw(specs((*drawn.x.shape[:2], *sizes), drawn.dtype)),
        draw(specs((*drawn.w.shape[:2], *taps), drawn.dtype)),
        stride=stride,
        padding=tuple(zip(low, high, strict=True)),
        dilation=dilation,
        groups=drawn.groups,
        direction=drawn.direction,
        epilogue=drawn.epilogue,
        flip=drawn.flip,
    )
    return replace(problem, y=draw(specs(problem.y.shape, drawn.dtype)))


@settings(max_examples=50, deadline=None)
@given(problem=stepping())
def test_copies_leave_out_as_much(problem: ConvProblem) -> None:
    if not problem.dtype.narrow:
        check_copies(problem, [("subsample", arguments) for arguments in arguments_of("subsample", problem)])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(problem=stepping(), seed=st.integers(0, 9))
def test_what_is_left_out_changes_nothing(problem: ConvProblem, seed: int) -> None:
    offered = arguments_of("subsample", problem)
    assume(offered)
    inner = THIN.inner(problem, offered[0])
    assert inner.y == problem.y
    assert inner.x.nbytes < problem.x.nbytes
    assert arguments_of("subsample", inner) == [], "nothing is left for a second time"
    check_identity(problem, [(("subsample", arguments),) for arguments in offered], seed)


def test_a_projection_has_stride_1_on_a_quarter_of_its_pixels() -> None:
    (arguments,) = arguments_of("subsample", PROJECTION)
    inner = THIN.inner(PROJECTION, arguments)
    assert wrapped(PROJECTION, (("subsample", arguments),)).id == "subsample(2, reference/gemm)"
    assert (inner.x.shape, inner.stride, inner.padding) == ((2, 12, 5, 4), (1, 1), ((0, 0), (0, 0)))
    assert (inner.w, inner.y) == (PROJECTION.w, PROJECTION.y)


@pytest.mark.parametrize(
    ("problem", "arguments", "inner"),
    [
        (
            ConvProblem.of((1, 3, 7, 7), (5, 3, 1, 1), stride=2, padding=3),
            (("step", 2),),
            ConvProblem.of((1, 3, 3, 3), (5, 3, 1, 1), padding=2),
        ),
        (
            ConvProblem.of((1, 3, 9, 16), (5, 3, 3, 1), stride=(2, 4), padding=(1, 0)),
            (("step", "1x4"),),
            ConvProblem.of((1, 3, 9, 4), (5, 3, 3, 1), stride=(2, 1), padding=(1, 0)),
        ),
        (
            ConvProblem.of((1, 3, 33), (5, 3, 3), stride=4, dilation=6),
            (("step", 2),),
            ConvProblem.of((1, 3, 17), (5, 3, 3), stride=2, dilation=3),
        ),
    ],
    ids=["padding beyond the filter", "one dimension", "a common divisor"],
)
def test_what_is_left(problem: ConvProblem, arguments: object, inner: ConvProblem) -> None:
    assert arguments_of("subsample", problem) == [arguments]
    assert THIN.inner(problem, ()) == inner


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_what_is_kept_lies_as_the_input_does(layout: Layout) -> None:
    inner = THIN.inner(PROJECTION.in_layout(layout), ())
    assert {spec.layout for spec in (inner.x, inner.y)} == {layout}


def test_what_is_moved_is_what_is_kept() -> None:
    inner = THIN.inner(PROJECTION, ())
    assert THIN.moved_bytes(PROJECTION, ()) == 2 * inner.x.nbytes
    assert THIN.scratch_bytes(PROJECTION, ()) == aligned(inner.x.nbytes)
    data = PROJECTION.asking(Direction.BACKWARD_DATA)
    assert THIN.moved_bytes(data, ()) == inner.x.nbytes + PROJECTION.x.nbytes


def test_what_is_not_kept_has_no_gradient() -> None:
    problem = PROJECTION.asking(Direction.BACKWARD_DATA)
    dx = run(planned(wrapped(problem, (("subsample", (("step", 2),)),))), operands(problem, 1))
    assert dx[:, :, ::2, ::2].ne(0).any()
    dx[:, :, ::2, ::2] = 0
    assert torch.equal(dx, torch.zeros_like(dx))


@pytest.mark.parametrize("kind", [Kind.INFINITY, Kind.NAN])
@pytest.mark.parametrize("direction", Direction)
def test_infinities_stay_where_they_are(direction: Direction, kind: Kind) -> None:
    asked = PROJECTION.asking(direction)
    plan = planned(wrapped(asked, (("subsample", (("step", 2),)),)))
    (error,) = measure_errors(lambda given: run(plan, given), asked, "cpu", [kind])
    assert error.relative_l2 < 1e-6


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ConvProblem.of((2, 3, 9, 9), (8, 3, 1, 1)), "a stride of 1x1 skips nothing"),
        (ConvProblem.of((2, 3, 9, 9), (8, 3, 3, 3), stride=2), "of 3x3 reads what its stride of 2x2 steps over"),
        (ConvProblem.of((2, 3, 1, 1), (8, 3, 1, 1), stride=2), "a stride of 2x2 skips nothing of an image of 1x1"),
        (
            ConvProblem.of((2, 3, 9, 9), (8, 3, 3, 3), stride=2, dilation=3),
            "a filter of 3x3 with dilation 3x3 reads what its stride of 2x2 steps over",
        ),
        (ConvProblem.of((2, 3, 1, 9), (8, 3, 1, 1), stride=2, padding=1), "with padding ((1, 1), (1, 1)) no output"),
    ],
)
def test_a_refusal_names_the_value(problem: ConvProblem, words: str) -> None:
    (refusal,) = refused("subsample", problem)
    assert arguments_of("subsample", problem) == []
    assert refusal.id == "subsample"
    assert words in refusal.reason


@pytest.mark.parametrize("direction", Direction)
def test_what_can_stand_inside_and_around(direction: Direction) -> None:
    pairs = [pair for pair in chains(PROJECTION.asking(direction), 2) if "subsample" in (pair[0][0], pair[1][0])]
    inside = {pair[1][0] for pair in pairs if pair[0][0] == "subsample"}
    turned = {"as-forward"} if direction is Direction.BACKWARD_DATA else set()
    assert inside == {"relayout", "split-batch", "pad-c"} | turned
    check_identity(PROJECTION.asking(direction), pairs, 5)


@pytest.mark.parametrize("direction", Direction)
def test_only_the_input_is_copied(direction: Direction) -> None:
    embeddings = THIN.embeddings(PROJECTION.asking(direction), ())  # type: ignore[attr-defined]
    assert {*embeddings} == {Role.DX if direction is Direction.BACKWARD_DATA else Role.X}
