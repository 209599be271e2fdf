"""Zero channels up to a multiple, cut off again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.core.candidate import Config, Refusal
from convwright.core.direction import Direction, Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.graph.memory_plan import aligned
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.error import measure_errors
from convwright.measuring.hardware.machine import device_facts
from convwright.rewrites import rewrite
from problem_space import operands, problems, run
from rewrites.around import arguments_of, check_copies, check_identity, planned, refused, wrapped

PAD = rewrite("pad-c")


def to(multiple: int) -> Config:
    return (("multiple", multiple),)


@settings(max_examples=40, deadline=None)
@given(problem=problems(least_images=1), multiple=st.integers(2, 5))
def test_copies_pad_as_well(problem: ConvProblem, multiple: int) -> None:
    if not problem.dtype.narrow and PAD.inner(problem, to(multiple)) != problem:
        check_copies(problem, [("pad-c", to(multiple))])


@settings(max_examples=60, deadline=None)
@given(problem=problems(), multiple=st.integers(2, 5))
def test_any_multiple_changes_nothing(problem: ConvProblem, multiple: int) -> None:
    if PAD.inner(problem, to(multiple)) != problem:
        check_identity(problem, [(("pad-c", to(multiple)),)])


@pytest.mark.parametrize(
    ("channels", "rows", "multiples"),
    [(3, 64, [4, 8]), (64, 10, [4, 8]), (6, 16, [8]), (4, 64, [8]), (1, 64, [4]), (60, 21, [4, 8]), (5, 5, [8])],
)
def test_only_multiples_that_change_something_are_worth_trying(channels: int, rows: int, multiples: list[int]) -> None:
    problem = ConvProblem.of((2, channels, 9, 9), (rows, channels, 3, 3))
    assert arguments_of("pad-c", problem) == [to(multiple) for multiple in multiples]
    assert refused("pad-c", problem) == []


def test_a_depthwise_convolution_would_be_too_much_work() -> None:
    problem = ConvProblem.of((2, 32, 9, 9), (32, 1, 3, 3), groups=32)
    reason = (
        "1 input and 1 output channels per group, padded to multiples of 4, take 16 times the work; at most 4 is tried"
    )
    assert [*PAD.arguments(problem, device_facts("cpu"))] == [Refusal("pad-c", reason)]


def test_groups_of_an_image_of_one_pixel_are_left_as_they_are() -> None:
    why = "leaves groups of an image of one pixel as they are"
    for text in ("g3mb1ic6oc6iw1kw2pw1 dt:fp16", "g5ic15oc10ih1kh1 dt:fp16"):
        assert refused("pad-c", ConvProblem.parse(text)) == [Refusal("pad-c", why)]
    assert arguments_of("pad-c", ConvProblem.parse("g3mb1ic6oc6iw2kw2pw1 dt:fp16"))


def test_the_inner_problem_is_padded_in_each_group() -> None:
    problem = ConvProblem.of((2, 6, 9, 9), (20, 3, 3, 3), groups=2, layout=Layout.NHWC, epilogue="bias")
    inner = PAD.inner(problem, to(8))
    assert (inner.c, inner.k, inner.w.shape) == (16, 32, (32, 8, 3, 3))
    assert {spec.layout for spec in (inner.x, inner.w, inner.y)} == {Layout.NHWC}
    assert inner.operands[Role.BIAS].shape == (32,)


def test_a_single_channel_is_padded_in_the_layout_of_the_output() -> None:
    for layout in (Layout.NCHW, Layout.NHWC):
        problem = ConvProblem.of((2, 1, 9, 9), (8, 1, 3, 3), layout=layout)
        assert PAD.inner(problem, to(4)).x.layout is layout


def test_what_is_a_multiple_already_is_not_copied() -> None:
    problem = ConvProblem.of((2, 3, 9, 9), (64, 3, 3, 3), dtype="fp16", epilogue="residual+bias")
    assert PAD.inner(problem, to(4)).y == problem.y
    padded = PAD.inner(problem, to(4)).x
    assert PAD.scratch_bytes(problem, to(4)) == aligned(padded.nbytes)
    assert PAD.moved_bytes(problem, to(4)) == problem.x.nbytes + padded.nbytes


def test_what_is_moved_counts_reading_and_writing() -> None:
    problem = ConvProblem.of((2, 8, 9, 9), (6, 8, 3, 3))
    y, padded = problem.y.nbytes, PAD.inner(problem, to(8)).y.nbytes
    assert PAD.moved_bytes(problem, to(8)) == 2 * y
    assert PAD.moved_bytes(problem.asking(Direction.BACKWARD_DATA), to(8)) == y + padded
    weight = problem.asking(Direction.BACKWARD_WEIGHT)
    assert PAD.moved_bytes(weight, to(8)) == y + padded + 2 * problem.w.nbytes
    assert PAD.scratch_bytes(weight, to(8)) == aligned(padded) + aligned(PAD.inner(weight, to(8)).w.nbytes)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("kind", [Kind.INFINITY, Kind.NAN])
def test_infinities_and_nans_stay_where_they_are(direction: Direction, kind: Kind) -> None:
    problem = ConvProblem.of((2, 3, 7, 7), (5, 3, 3, 3), padding=1, direction=direction)
    plan = planned(wrapped(problem, (("pad-c", to(4)),)))
    (error,) = measure_errors(lambda given: run(plan, given), problem, "cpu", [kind])
    assert error.relative_l2 < 1e-6


def test_a_constant_weight_is_packed_once() -> None:
    problem = ConvProblem.of((2, 3, 7, 7), (5, 3, 3, 3))
    given = operands(problem, 3)
    plan = planned(wrapped(problem, (("pad-c", to(4)),)))
    packed = plan.prepare(given[Role.W])
    weight = given[Role.W].clone()
    given[Role.W].fill_(torch.nan)
    assert torch.equal(plan(given[Role.X], packed).double(), torch.conv2d(given[Role.X].double(), weight.double()))
