"""Strided convolutions folded into blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convwright.core.direction import Direction, Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.graph.memory_plan import aligned
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.error import measure_errors
from convwright.rewrites import rewrite
from problem_space import problems, run, specs
from rewrites.around import arguments_of, check_copies, check_identity, planned, refused, wrapped

FOLD = rewrite("space-to-depth")
STEM = ConvProblem.of((2, 3, 24, 24), (8, 3, 7, 7), stride=2, padding=3)


@st.composite
def strided(draw: st.DrawFn) -> ConvProblem:
    """Filters of up to 8 taps, padding beyond them, sizes that no stride divides, in any memory."""
    drawn = draw(problems(least_images=1))
    rank = drawn.rank

    def per_axis(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    taps, stride, low, high = per_axis(1, 8 if rank < 3 else 4), per_axis(1, 4), per_axis(0, 5), per_axis(0, 5)
    sizes = [max(1, r - sum(pad)) + draw(st.integers(0, 6)) for r, *pad in zip(taps, low, high, strict=True)]
    problem = ConvProblem.of_specs(
        draw(specs((*drawn.x.shape[:2], *sizes), drawn.dtype)),
        draw(specs((*drawn.w.shape[:2], *taps), drawn.dtype)),
        stride=stride,
        padding=tuple(zip(low, high, strict=True)),
        dilation=(1,) * rank,
        groups=drawn.groups,
        direction=drawn.direction,
        epilogue=drawn.epilogue,
        flip=drawn.flip,
    )
    return replace(problem, y=draw(specs(problem.y.shape, drawn.dtype)))


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(problem=strided(), seed=st.integers(0, 9))
def test_folding_changes_nothing(problem: ConvProblem, seed: int) -> None:
    assume(max(problem.stride) > 1)
    assume("no output reads" not in "".join(each.reason for each in refused("space-to-depth", problem)))
    check_identity(problem, [(("space-to-depth", (("block", 0),)),)], seed)


@settings(max_examples=50, deadline=None)
@given(problem=strided())
def test_copies_fold_as_well(problem: ConvProblem) -> None:
    if problem.dtype.narrow or problem.flip or (problem.groups > 1 and problem.rank == 3):
        return
    steps = [("space-to-depth", arguments) for arguments in arguments_of("space-to-depth", problem)]
    check_copies(problem, steps)


def test_a_stem_has_stride_1_and_twelve_channels() -> None:
    (arguments,) = arguments_of("space-to-depth", STEM)
    inner = FOLD.inner(STEM, arguments)
    assert wrapped(STEM, (("space-to-depth", arguments),)).id == "space-to-depth(2, reference/gemm)"
    assert (inner.x.shape, inner.w.shape) == ((2, 12, 12, 12), (8, 12, 4, 4))
    assert (inner.stride, inner.padding, inner.y) == ((1, 1), ((2, 1), (2, 1)), STEM.y)


def test_each_dimension_has_its_own_block() -> None:
    problem = ConvProblem.of((2, 3, 24, 24), (8, 3, 5, 8), stride=(1, 4))
    (arguments,) = arguments_of("space-to-depth", problem)
    assert arguments == (("block", "1x4"),)
    assert FOLD.inner(problem, arguments).x.shape == (2, 12, 24, 6)


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_the_folded_operands_lie_as_the_others_do(layout: Layout) -> None:
    inner = FOLD.inner(STEM.in_layout(layout), ())
    assert {spec.layout for spec in (inner.x, inner.w, inner.y)} == {layout}


def test_what_is_moved_counts_reading_and_writing() -> None:
    inner = FOLD.inner(STEM, ())
    assert FOLD.moved_bytes(STEM, ()) == STEM.x.nbytes + inner.x.nbytes
    assert FOLD.scratch_bytes(STEM, ()) == aligned(inner.x.nbytes)
    weight = STEM.asking(Direction.BACKWARD_WEIGHT)
    assert FOLD.moved_bytes(weight, ()) == STEM.x.nbytes + inner.x.nbytes + 2 * STEM.w.nbytes


def test_input_that_no_output_reads_is_not_moved_and_has_no_gradient() -> None:
    problem = ConvProblem.of((1, 2, 11), (3, 2, 3), stride=4, direction=Direction.BACKWARD_DATA)
    inner = FOLD.inner(problem, ())
    assert inner.x.shape == (1, 8, 3)
    shorter = ConvProblem.of((1, 2, 10), (3, 2, 4), stride=4, direction=Direction.BACKWARD_DATA)
    assert FOLD.inner(shorter, ()).x.shape == (1, 8, 2)
    assert FOLD.moved_bytes(shorter, ()) == 2 * (8 + 10) * 4
    check_identity(shorter, [(("space-to-depth", ()),)])


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ConvProblem.of((2, 3, 9, 9), (8, 3, 3, 3)), "a stride of 1x1"),
        (ConvProblem.of((2, 3, 9, 9), (8, 3, 3, 3), stride=2, dilation=(1, 2)), "dilation 1x2"),
        (ConvProblem.of((2, 3, 9, 9), (8, 3, 1, 1), stride=2), "1x1 taps, filled up to blocks of 2x2, takes 4 times"),
        (ConvProblem.of((2, 64, 9, 9), (8, 64, 3, 3), stride=2), "here 64"),
        (ConvProblem.parse("ic3iw1oc8ow3kw1sw2pw5 rw:0"), "padding ((5, 0),)"),
    ],
)
def test_a_refusal_names_the_value(problem: ConvProblem, words: str) -> None:
    (refusal,) = refused("space-to-depth", problem)
    assert arguments_of("space-to-depth", problem) == []
    assert refusal.id == "space-to-depth"
    assert words in refusal.reason


def test_a_filter_that_fills_its_blocks_is_folded_however_many_channels_there_are() -> None:
    patches = ConvProblem.of((2, 96, 8, 8), (192, 96, 2, 2), stride=2)
    assert arguments_of("space-to-depth", patches) == [(("block", 2),)]
    assert FOLD.inner(patches, ()).taps == (1, 1)


@pytest.mark.parametrize("kind", [Kind.INFINITY, Kind.NAN])
@pytest.mark.parametrize("direction", Direction)
def test_zero_taps_spread_infinities_and_a_filled_block_does_not(direction: Direction, kind: Kind) -> None:
    filled = ConvProblem.of((2, 3, 16, 16), (8, 3, 4, 4), stride=4)
    for problem, spreads in ((STEM, direction is not Direction.BACKWARD_WEIGHT), (filled, False)):
        asked = problem.asking(direction)
        plan = planned(wrapped(asked, (("space-to-depth", (("block", 0),)),)))
        (error,) = measure_errors(lambda given, plan=plan: run(plan, given), asked, "cpu", [kind])
        assert (error.relative_l2 == float("inf")) is spreads
        if not spreads:
            assert error.relative_l2 < 1e-6


def test_only_the_input_is_copied_at_a_call() -> None:
    problem = replace(STEM, epilogue=ConvProblem.parse("ic1ih1oc1kh1 ep:residual+bias+relu").epilogue)
    embeddings = FOLD.embeddings(problem, ())  # type: ignore[attr-defined]
    assert {*embeddings} == {Role.X, Role.W}
