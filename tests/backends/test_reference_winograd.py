"""``reference/winograd`` against PyTorch in float64, within a bound that follows from its sums.

Each intermediate sum of n products is off by at most n roundoffs of the sum of magnitudes, and each following sum
carries that on by the magnitudes of its own coefficients. So with k roundings in all on the way from an input to the
output, the error is at most k·u / (1 - k·u) times what the same algorithm makes of the operands' magnitudes by the
magnitudes of its matrices: at most `growth`^rank times the number of channels times the largest operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from convwright.backends.reference.minimal_filtering.plan import WinogradPlan
from convwright.backends.reference.minimal_filtering.transforms import OUTPUTS, Transforms, interpolating, transforms
from convwright.backends.reference.winograd import offers, plan, products
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Direction, Role
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import torch_dtype
from problem_space import EXACT, operands, oracle, run, specs, tensor

CPU = device_facts("cpu")

SMALLEST = {DType.FP16: 2.0**-25, DType.BF16: 2.0**-134, DType.FP32: 2.0**-150, DType.FP64: 0.0}
Given = dict[Role, Tensor]


def winograd(problem: ConvProblem, m: int) -> Candidate:
    (candidate,) = (each for each in offers(problem, CPU) if isinstance(each, Candidate) and each.config == (("m", m),))
    return candidate


def compute(problem: ConvProblem, m: int, given: Given) -> Tensor:
    made = plan(winograd(problem, m))
    assert made.workspace_bytes == made.candidate.workspace_bytes
    return run(made, given)


@st.composite
def problems(draw: st.DrawFn, dtype: DType, least_images: int = 0) -> ConvProblem:
    """All that Winograd's algorithm serves."""
    rank = draw(st.integers(1, 3))
    groups, most = draw(st.integers(1, 3)), (24, 11, 7)[rank - 1]

    def per_axis(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(values, min_size=rank, max_size=rank)))

    dilation = per_axis(st.integers(1, 3))
    padding = tuple(zip(per_axis(st.integers(0, 4)), per_axis(st.integers(0, 4)), strict=True))
    sizes = per_axis(st.integers(1, most))
    assume(all(size + sum(pad) > 2 * d for size, pad, d in zip(sizes, padding, dilation, strict=True)))
    x = (draw(st.integers(least_images, 3)), groups * draw(st.integers(1, 3)), *sizes)
    w = (groups * draw(st.integers(1, 3)), x[1] // groups, *[3] * rank)
    problem = ConvProblem.of_specs(
        draw(specs(x, dtype)),
        draw(specs(w, dtype)),
        stride=(1,) * rank,
        padding=padding,
        dilation=dilation,
        groups=groups,
        direction=draw(st.sampled_from(Direction)),
        flip=draw(st.booleans()),
    )
    if problem.direction is Direction.FORWARD:
        epilogue = Epilogue(draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(EXACT)))
        problem = replace(problem, epilogue=epilogue)
    return replace(problem, y=draw(specs(problem.y.shape, dtype)))


def magnitudes(problem: ConvProblem, m: int, given: Given) -> Tensor:
    """What the algorithm makes of magnitudes alone, in float64."""
    x, w, y = (replace(spec, dtype=DType.FP64) for spec in (problem.x, problem.w, problem.y))
    epilogue = replace(problem.epilogue, activation=Activation.NONE)
    candidate = winograd(replace(problem, x=x, w=w, y=y, epilogue=epilogue), m)
    positive = {role: tensor(x).new_empty(value.shape).copy_(value).abs() for role, value in given.items()}
    return run(WinogradPlan(candidate, transforms(m).absolute()), positive)


def roundings(problem: ConvProblem, m: int) -> int:
    """On the way from an input to the output, one for each product and each sum, and one for a rounded coefficient."""
    points, taps = m + 2, 3
    if problem.direction is Direction.BACKWARD_WEIGHT:
        tiles = products(problem, m) // (points**problem.rank * problem.c * problem.k // problem.groups)
        return problem.rank * (points + m + points + 1) + tiles
    channels = (problem.k if problem.direction is Direction.BACKWARD_DATA else problem.c) // problem.groups
    return problem.rank * (points + taps + 1 + points) + channels + 2  # residual and bias


def bound(problem: ConvProblem, m: int, given: Given) -> Tensor:
    """The largest error that is explained, element by element."""
    scale = magnitudes(problem, m, given)
    unit = 2.0**-53 if problem.dtype is DType.FP64 else 2.0**-24
    error = roundings(problem, m) * unit * scale / (1 - roundings(problem, m) * unit)
    reference = (problem.reduction + 3) * 2.0**-53 * scale  # float64 is rounded, too
    half = problem.dtype in (DType.FP16, DType.BF16)
    stored = problem.dtype.roundoff * (oracle(problem, given).abs() + error) if half else 0.0
    return error + reference + stored + SMALLEST[problem.dtype]


@settings(max_examples=50, deadline=None)
@given(data=st.data(), m=st.sampled_from(OUTPUTS), dtype=st.sampled_from(IN_PYTORCH), seed=st.integers(0, 99))
def test_errors_are_explained(data: st.DataObject, m: int, dtype: DType, seed: int) -> None:
    problem = data.draw(problems(dtype))
    given = operands(problem, seed, integers=False)
    error = (compute(problem, m, given).double() - oracle(problem, given)).abs()
    assert (error <= bound(problem, m, given)).all()


@settings(max_examples=50, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([DType.FP32, DType.FP64]), seed=st.integers(0, 99))
def test_small_integers_are_exact_by_f2(data: st.DataObject, dtype: DType, seed: int) -> None:
    # Its coefficients are integers and halves: all that it holds are eighths at most, far below 2^24 of them.
    problem = data.draw(problems(dtype))
    given = operands(problem, seed)
    assert torch.equal(compute(problem, 2, given).double(), oracle(problem, given))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("m", OUTPUTS)
def test_the_bound_would_find_one_wrong_coefficient(direction: Direction, m: int) -> None:
    problem = ConvProblem.of((2, 6, 9, 9), (6, 6, 3, 3), padding=1, direction=direction)
    given, right = operands(problem, 5, integers=False), transforms(m)
    first, *rest = right.filter[1]
    wrong = replace(right, filter=(right.filter[0], (first * Fraction(101, 100), *rest), *right.filter[2:]))
    error = (run(WinogradPlan(winograd(problem, m), wrong), given).double() - oracle(problem, given)).abs()
    assert (error > bound(problem, m, given)).any()


@pytest.mark.parametrize("m", OUTPUTS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_growth_is_reached_by_equal_magnitudes(m: int, rank: int) -> None:
    problem = ConvProblem.of((1, 5, *[m + 2] * rank), (2, 5, *[3] * rank), dtype="fp64")
    given = {Role.X: -torch.ones(problem.x.shape), Role.W: torch.ones(problem.w.shape)}
    largest = magnitudes(problem, m, given).max().item()
    assert largest == pytest.approx(5 * float(transforms(m).growth) ** rank, rel=1e-12)


def relative_error(problem: ConvProblem, m: int, matrices: Transforms) -> float:
    given = operands(problem, 0, integers=False)
    expected = oracle(problem, given)
    got = run(WinogradPlan(winograd(problem, m), matrices), given).double()
    return ((got - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("direction", Direction)
def test_our_points_err_less_than_half_as_much_as_the_usual_ones(direction: Direction) -> None:
    problem = ConvProblem.of((4, 64, 24, 24), (64, 64, 3, 3), padding=1, direction=direction)
    usual = interpolating([Fraction(point) for point in (0, 1, -1, 2, -2)])
    assert relative_error(problem, 4, transforms(4)) < relative_error(problem, 4, usual) / 2


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("m", OUTPUTS)
def test_every_activation_is_served(m: int, activation: Activation) -> None:
    problem = ConvProblem.of((2, 4, 9, 7), (6, 2, 3, 3), padding=1, groups=2, epilogue=f"residual+bias+{activation}")
    given = operands(problem, 3, integers=False)
    error = (compute(problem, m, given).double() - oracle(problem, given)).abs()
    # No activation is steeper than 1.5; its own value is rounded a few times.
    before = bound(replace(problem, epilogue=Epilogue(residual=True, bias=True)), m, given)
    assert (error <= 1.5 * before + 8 * 2.0**-24 * oracle(problem, given).abs()).all()


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16])
@pytest.mark.parametrize("activation", Activation)
def test_half_types_are_rounded_once_at_the_very_end(dtype: DType, activation: Activation) -> None:
    epilogue = Epilogue(residual=True, bias=True, activation=activation)
    problem = replace(ConvProblem.of((2, 4, 9, 7), (6, 4, 3, 3), padding=1, dtype=dtype), epilogue=epilogue)
    x, w, y = (replace(spec, dtype=DType.FP32) for spec in (problem.x, problem.w, problem.y))
    given = operands(problem, 3, integers=False)
    in_fp32 = compute(replace(problem, x=x, w=w, y=y), 4, {role: value.float() for role, value in given.items()})
    assert torch.equal(compute(problem, 4, given), in_fp32.to(torch_dtype(dtype)))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), m=st.sampled_from(OUTPUTS))
def test_output_and_workspace_may_be_left_to_the_plan(data: st.DataObject, m: int) -> None:
    problem = data.draw(problems(DType.FP32))
    given, made = operands(problem, 1, integers=False), plan(winograd(problem, m))
    expected = run(made, given)
    assert torch.equal(run(made, given, own_workspace=True), expected)
    first, second = (given[role] for role in problem.direction.operands)
    second = made.prepare(second) if Role.W in given else second
    result = made(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL))
    assert torch.equal(result, expected)
    assert result.stride() == problem.output.strides


DTYPES = ("fp64", "fp32", "bf16")


# Each rank and direction with one dtype by turns, so that each dtype meets all ranks and all directions.
@pytest.mark.parametrize(
    ("rank", "direction", "dtype"),
    [(rank, each, DTYPES[(rank + turn) % 3]) for rank in (1, 2, 3) for turn, each in enumerate(Direction)],
)
def test_nothing_is_allocated_where_memory_is_given(rank: int, direction: Direction, dtype: str) -> None:
    shapes = (3, 32, *[11, 13, 9][:rank]), (48, 16, *[3] * rank)
    problem = ConvProblem.of(*shapes, padding=1, dilation=2, groups=2, dtype=dtype, direction=direction)
    if direction is Direction.FORWARD:
        problem = replace(problem, epilogue=Epilogue.parse("residual+bias+relu"))
    given = operands(problem, 0)
    first, second = (given[role] for role in direction.operands)
    for made in (plan(winograd(problem, m)) for m in OUTPUTS):
        packed = made.prepare(second) if Role.W in given else second
        out, workspace = tensor(problem.output), torch.empty(made.workspace_bytes, dtype=torch.uint8)
        call = partial(made, first, packed, given.get(Role.BIAS), given.get(Role.RESIDUAL), workspace=workspace)
        call(out=out)  # A plan's first call brings its matrices to the device.
        assert allocated_bytes(partial(call, out=out)) == 0
        assert allocated_bytes(call) == problem.output.nbytes


def allocated_bytes(call: Callable[[], Tensor]) -> int:
    """What PyTorch's allocator gives out during a call, inside its operations as well."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = call()
    del kept
    return sum(max(event.self_cpu_memory_usage, 0) for event in seen.key_averages())


def test_a_batch_of_none_gives_no_gradient_but_zeros() -> None:
    problem = ConvProblem.of((0, 4, 6, 6), (6, 4, 3, 3), direction=Direction.BACKWARD_WEIGHT)
    for m in OUTPUTS:
        assert torch.equal(compute(problem, m, operands(problem, 0)), torch.zeros(6, 4, 3, 3))


def test_an_expanded_gradient_will_do() -> None:
    problem = ConvProblem.of((2, 4, 6, 6), (6, 2, 3, 3), groups=2)
    flat = replace(problem.y, strides=(0, 0, 0, 0))
    for direction in (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT):
        expanded = replace(problem, direction=direction, y=flat)
        given = {Role.X: torch.ones(problem.x.shape), Role.W: torch.ones(problem.w.shape)}
        given = {role: value for role, value in given.items() if role in expanded.operands}
        given[Role.DY] = torch.ones(()).expand(problem.y.shape)
        assert torch.equal(compute(expanded, 2, given).double(), oracle(expanded, given))


def test_what_padding_held_is_not_read() -> None:
    # With padding above the filter's reach the outermost of dy meet padding alone: no infinity comes from there.
    problem = ConvProblem.of((1, 1, 5), (1, 1, 3), padding=4, direction=Direction.BACKWARD_DATA)
    dy = torch.ones(problem.y.shape)
    dy[..., :2] = dy[..., -2:] = torch.inf
    for m in OUTPUTS:
        result = compute(problem, m, {Role.DY: dy, Role.W: torch.ones(1, 1, 3)})
        torch.testing.assert_close(result, torch.full((1, 1, 5), 3.0))


def test_what_is_said_of_a_candidate() -> None:
    for layout in Layout.NCHW, Layout.NHWC:
        f2, f4 = offers(ConvProblem.of((2, 8, 9, 9), (8, 8, 3, 3), padding=1, layout=layout), CPU)
        assert (f2.id, f4.id) == ("reference/winograd[m=2]", "reference/winograd[m=4]")
        for candidate in f2, f4:
            assert isinstance(candidate, Candidate)
            assert candidate.saves_products
            assert candidate.deterministic
            assert candidate.arithmetic is Arithmetic.FP32
    for dtype, arithmetic in (("bf16", Arithmetic.FP32), ("fp16", Arithmetic.FP32), ("fp64", Arithmetic.FP64)):
        problem = ConvProblem.of((2, 8, 9), (8, 8, 3), dtype=dtype)
        assert {each.arithmetic for each in offers(problem, CPU) if isinstance(each, Candidate)} == {arithmetic}


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (
            ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), stride=(1, 2)),
            "stride (1, 2): Winograd's tiles need stride 1 in every dimension",
        ),
        (
            ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 5)),
            "a filter of (3, 5): these transforms need 3 taps in every dimension",
        ),
    ],
)
def test_a_refusal_names_the_value(problem: ConvProblem, reason: str) -> None:
    assert [*offers(problem, CPU)] == [Refusal(f"reference/winograd[m={m}]", reason) for m in OUTPUTS]


@pytest.mark.parametrize("direction", Direction)
def test_products_are_those_of_whole_tiles(direction: Direction) -> None:
    problem = ConvProblem.of((3, 8, 14, 7), (4, 4, 3, 3), padding=1, groups=2, direction=direction)
    # 7 × 4 tiles of 4 × 4 points, 4 × 2 of 6 × 6; two groups of 4 × 2 pairs of channels.
    assert products(problem, 2) == 3 * 16 * (7 * 4) * 2 * 4 * 2
    assert products(problem, 4) == 3 * 36 * (4 * 2) * 2 * 4 * 2


@settings(max_examples=50, deadline=None)
@given(data=st.data(), m=st.sampled_from(OUTPUTS))
def test_products_are_what_the_stack_multiplies(data: st.DataObject, m: int) -> None:
    problem = data.draw(problems(DType.FP32, least_images=1))
    seen = []
    with watched_products(seen):
        compute(problem, m, operands(problem, 0))
    assert products(problem, m) in seen


@contextmanager
def watched_products(seen: list[int]) -> Iterator[None]:
    """The multiplications of each product of stacks of matrices."""
    from convwright.backends.reference.minimal_filtering import plan as winograd_plan

    real = winograd_plan.multiply

    def watching(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        seen.append(a.numel() * b.shape[-1])
        return real(a, b, out=out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_plan, "multiply", watching)
        yield
