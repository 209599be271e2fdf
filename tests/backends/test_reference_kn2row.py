"""``reference/kn2row`` against PyTorch in float64, over the space of problems whose groups have few outputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference_algorithm import CPU, candidate, compute, in_dtype, offered
from convwright.backends.reference import maps
from convwright.backends.reference.backend import Reference
from convwright.core.candidate import Refusal
from convwright.core.direction import Direction, Role
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.error_bound import scaled_bound
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.data import ERROR_KINDS
from convwright.measuring.checking.error import measure_errors
from problem_space import operands, oracle, problems, run

NAME = "reference/kn2row"
WIDE = st.sampled_from([DType.FP32, DType.FP64])


def with_few_outputs(problem: ConvProblem) -> ConvProblem:
    """The same window where each group has twice as many inputs as outputs, and at least two taps."""
    rows, taps = problem.k // problem.groups, problem.taps
    if set(taps) == {1}:
        taps = (2, *taps[1:])
        padding = ((problem.padding[0][0], problem.padding[0][1] + problem.dilation[0]), *problem.padding[1:])
    else:
        padding = problem.padding
    layout = Layout.NHWC if problem.y.layout is Layout.NHWC else Layout.NCHW
    channels = 2 * rows * problem.groups
    x = replace(problem.x, shape=(problem.n, channels, *problem.x.shape[2:]), strides=()).dense(layout)
    w = replace(problem.w, shape=(problem.k, 2 * rows, *taps), strides=())
    return ConvProblem.of_specs(
        x, w, stride=problem.stride, padding=padding, dilation=problem.dilation, layout=layout, groups=problem.groups,
        direction=problem.direction, epilogue=problem.epilogue, flip=problem.flip,
    )  # fmt: skip


def some(**more: object) -> st.SearchStrategy[ConvProblem]:
    return problems(**more).map(with_few_outputs)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(problem=some(), dtype=WIDE, seed=st.integers(0, 99), most_bytes=st.sampled_from([1, 1000, 1 << 24]))
def test_small_integers_are_exact_bit_for_bit(problem: ConvProblem, dtype: DType, seed: int, most_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:  # one image at a time, some, and all
        patch.setattr(maps, "_MAPS_BYTES", most_bytes)
        problem = in_dtype(problem, dtype)
        given = operands(problem, seed)
        assert torch.equal(compute(candidate(problem, NAME), given).double(), oracle(problem, given))


@settings(max_examples=50, deadline=None)
@given(problem=some(activations=tuple(Activation)), dtype=st.sampled_from(IN_PYTORCH), seed=st.integers(0, 99))
def test_rounding_explains_every_difference(problem: ConvProblem, dtype: DType, seed: int) -> None:
    """Sums are fp32 at least, so that of half types only the result is rounded; activations have slopes up to 1.5."""
    problem = in_dtype(problem, dtype)
    given = operands(problem, seed, integers=False)
    linear = replace(problem, epilogue=replace(problem.epilogue, activation=Activation.NONE))
    scale = oracle(linear, {role: tensor.abs() for role, tensor in given.items()})
    bound = scaled_bound(Arithmetic.FP32, dtype, problem.reduction + 2) * dtype.roundoff * 1.5
    difference = compute(candidate(problem, NAME), given).double() - oracle(problem, given)
    assert (difference.abs() <= bound * scale).all()


@settings(max_examples=40, deadline=None)
@given(problem=some())
def test_output_and_workspace_may_be_left_to_the_plan(problem: ConvProblem) -> None:
    given = operands(problem, 1)
    expected = compute(candidate(problem, NAME), given)
    plan = Reference().build(candidate(problem, NAME), CPU)
    assert torch.equal(run(plan, given, own_workspace=True), expected)
    first, second = (given[role] for role in problem.direction.operands)
    second = plan.prepare(second) if Role.W in given else second
    result = plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL))
    assert torch.equal(result, expected)
    assert result.stride() == problem.output.strides


CASES = ["mb2ic8ih9oc2kh3ph1", "g2mb2ic16ih9oc4kh3ph1sh2 tag:nhwc", "mb2ic8iw30oc1kw5pw3 dt:bf16"]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("direction", Direction)
def test_its_errors_are_those_of_any_order_of_sums(text: str, direction: Direction) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    chosen = candidate(problem, NAME)
    bound = scaled_bound(chosen.arithmetic, problem.dtype, problem.reduction)
    found = measure_errors(lambda given: run(Reference().build(chosen, CPU), given), problem, "cpu")
    assert len(found) == len(ERROR_KINDS)
    assert all(error.scaled_max <= bound for error in found)


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_stays_where_it_is(text: str, direction: Direction, value: float) -> None:
    """In a corner, which not every tap reaches; ``reference/direct`` multiplies it with zeros of the padding alone."""
    problem = ConvProblem.parse(text).asking(direction)
    for role in problem.direction.operands[:2]:
        given = operands(problem, 5)
        given[role][(0,) * given[role].dim()] = value
        found, expected = (compute(candidate(problem, name), given) for name in (NAME, "reference/direct"))
        finite = expected.isfinite()
        assert not found.isfinite().all()
        torch.testing.assert_close(found[finite], expected[finite], rtol=0.02, atol=0.0)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_the_input_is_multiplied_where_it_lies(direction: Direction, layout: Layout) -> None:
    problem = ConvProblem.of((1, 8, 6, 6), (2, 8, 3, 3), padding=1, layout=layout).asking(direction)
    held = 2 * 9 * 36 * 4
    gradient = 2 * 9 * 8 * 4 if direction is Direction.BACKWARD_WEIGHT else 0
    assert held + gradient <= candidate(problem, NAME).workspace_bytes < held + gradient + 512
    apart = replace(problem, x=replace(problem.x, strides=(10_000, 1000, 100, 10)))
    assert candidate(apart, NAME).workspace_bytes >= held + gradient + 8 * 36 * 4
    given = operands(apart, 3)
    assert torch.equal(compute(candidate(apart, NAME), given).double(), oracle(apart, given))


def test_images_are_taken_together_while_their_maps_are_small() -> None:
    each = 9 * 64 * 64 * 4
    many = candidate(ConvProblem.parse("mb1000ic4ih64oc1kh3ph1"), NAME).workspace_bytes
    assert many == maps._MAPS_BYTES // each * each
    assert candidate(ConvProblem.parse("mb3ic4ih64oc1kh3ph1"), NAME).workspace_bytes == 3 * each
    assert candidate(ConvProblem.parse("mb1ic4ih4096oc1kh3ph1"), NAME).workspace_bytes == 9 * 4096 * 4096 * 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ic8ih9oc5kh3", "needs at least 2 input channels for each output channel of a group, got 8 and 5"),
        ("g8ic8ih9oc8kh3", "got 1 and 1"),
        ("ic8ih9oc1kh1", "needs at least 2 taps, got 1: reference/gemm is the same"),
    ],
)
def test_what_it_is_not_for_is_refused(text: str, said: str) -> None:
    found = offered(ConvProblem.parse(text), NAME)
    assert isinstance(found, Refusal)
    assert said in found.reason


def test_a_batch_of_none_gives_no_gradient_but_zeros() -> None:
    problem = ConvProblem.of((0, 4, 6, 6), (2, 4, 3, 3), direction=Direction.BACKWARD_WEIGHT)
    assert torch.equal(compute(candidate(problem, NAME), operands(problem, 0)), torch.zeros(2, 4, 3, 3))


def test_an_expanded_gradient_is_read_as_it_is() -> None:
    problem = ConvProblem.of((2, 8, 6, 6), (4, 4, 3, 3), groups=2)
    flat = replace(problem.y, strides=(0, 0, 0, 0))
    for direction in (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT):
        expanded = replace(problem, direction=direction, y=flat)
        given = {Role.X: torch.ones(problem.x.shape), Role.W: torch.ones(problem.w.shape)}
        given = {role: value for role, value in given.items() if role in expanded.operands}
        given[Role.DY] = torch.ones(()).expand(problem.y.shape)
        assert torch.equal(compute(candidate(expanded, NAME), given).double(), oracle(expanded, given))


def test_gradients_are_for_a_cpu() -> None:
    problem = ConvProblem.parse("ic8ih9oc1kh3ph1")
    for direction in Direction:
        offers = {
            each.id: each for each in Reference().candidates(problem.asking(direction), profile("h200"), Policy())
        }
        assert isinstance(offers[NAME], Refusal) == (direction is not Direction.FORWARD)
