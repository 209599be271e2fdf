"""An input's gradient as a forward convolution."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.core.candidate import Refusal
from convwright.core.direction import Direction, Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.rewrites import rewrite
from convwright.tuning.chains import chains
from problem_space import operands, problems
from rewrites.around import CPU, Allocations, arguments_of, check_identity, planned, refused, wrapped

AS_FORWARD = rewrite("as-forward")
GRADIENT = ConvProblem.parse("mb2ic6ih11iw9oc8kh3kw5ph1pw2 dir:backward_data")


@settings(max_examples=60, deadline=None)
@given(problem=problems(least_images=1, most_stride=1), seed=st.integers(0, 9))
def test_it_is_an_identity_wherever_it_applies(problem: ConvProblem, seed: int) -> None:
    problem = problem.asking(Direction.BACKWARD_DATA)
    check_identity(problem, [(("as-forward", arguments),) for arguments in arguments_of("as-forward", problem)], seed)


def test_the_inner_problem_reads_dy_and_writes_dx() -> None:
    inner = AS_FORWARD.inner(GRADIENT, ())
    assert inner.direction is Direction.FORWARD
    assert (inner.x, inner.y) == (GRADIENT.y, GRADIENT.x)
    assert inner.w.shape == (6, 8, 3, 5)
    assert inner.padding == ((1, 1), (2, 2))
    assert inner.macs == GRADIENT.macs


def test_padding_becomes_what_the_filter_reaches_beyond_it() -> None:
    problem = ConvProblem.of((1, 4, 9), (4, 4, 3), padding=((0, 3),), dilation=2, direction="backward_data")
    assert AS_FORWARD.inner(problem, ()).padding == ((4, 1),)


def test_only_the_weight_is_copied_and_that_once() -> None:
    assert AS_FORWARD.scratch_bytes(GRADIENT, ()) == AS_FORWARD.moved_bytes(GRADIENT, ()) == 0
    plan = planned(wrapped(GRADIENT, (("as-forward", ()),)))
    weight = operands(GRADIENT, 1)[GRADIENT.direction.operands[1]]
    assert torch.equal(plan.prepare(weight), plan.prepare(weight.clone()))


@pytest.mark.parametrize(("window", "flips"), [("kh1", 0), ("kh3ph1", 1), ("kh1kw3ph0pw1", 1)])
def test_a_weight_of_one_tap_is_not_mirrored(window: str, flips: int) -> None:
    problem = ConvProblem.parse(f"mb2ic6ih11oc8{window} dir:backward_data")
    plan = planned(wrapped(problem, (("as-forward", ()),)))
    weight = operands(problem, 1)[Role.W]
    with Allocations() as made:
        plan.prepare(weight)
    assert made.by.count("aten.flip.default") == flips


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_the_weight_is_laid_as_the_others_are(layout: Layout) -> None:
    problem = GRADIENT.in_layout(layout)
    assert AS_FORWARD.inner(problem, ()).w.layout is layout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ic4ih9oc4kh3", "turns an input's gradient around, not forward"),
        ("ic4ih9oc4kh3 dir:backward_weight", "turns an input's gradient around, not backward_weight"),
        (
            "ic4ih9oc4kh3sh2 dir:backward_data",
            "stride (2, 2): between the elements of dy there would have to be zeros",
        ),
        (
            "ic4ih9oc4kh3ph3 dir:backward_data",
            "padding ((3, 3), (3, 3)) reaches further than the filter, so dy would have to be cut",
        ),
    ],
)
def test_what_it_is_not_for(text: str, reason: str) -> None:
    problem = ConvProblem.parse(text)
    assert refused("as-forward", problem) == [Refusal("as-forward", reason)]


def test_a_folded_stride_leaves_a_gradient_that_can_be_turned() -> None:
    strided = ConvProblem.parse("mb2ic3ih16oc8kh3sh2ph1 dir:backward_data")
    names = {tuple(step.rewrite.name for step in chain.steps) for chain in chains(strided, CPU)[0]}
    assert ("space-to-depth", "as-forward") in names
