"""``reference/gemm`` against PyTorch in float64, over the whole space of problems."""

from __future__ import annotations

import timeit
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from backends.reference_algorithm import CPU, candidate
from convwright.backends.reference.backend import Reference
from convwright.backends.reference.matmul import multiply
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout
from matmul_precision import matmul_precision
from problem_space import operands, oracle, problems, run


def gemm(problem: ConvProblem) -> Candidate:
    return candidate(problem, "reference/gemm")


def compute(problem: ConvProblem, given: dict[Role, Tensor]) -> Tensor:
    found = gemm(problem)
    plan = Reference().build(found, CPU)
    assert plan.workspace_bytes == found.workspace_bytes
    return run(plan, given)


@settings(max_examples=50, deadline=None)
@given(problem=problems(), dtype=st.sampled_from([DType.FP32, DType.FP64]), seed=st.integers(0, 99))
def test_small_integers_are_exact_bit_for_bit(problem: ConvProblem, dtype: DType, seed: int) -> None:
    x, w, y = (replace(spec, dtype=dtype) for spec in (problem.x, problem.w, problem.y))
    problem = replace(problem, x=x, w=w, y=y)
    given = operands(problem, seed)
    assert torch.equal(compute(problem, given).double(), oracle(problem, given))


@settings(max_examples=40, deadline=None)
@given(problem=problems(DType.FP32, activations=tuple(Activation)), seed=st.integers(0, 99))
def test_normal_numbers_are_near(problem: ConvProblem, seed: int) -> None:
    given = operands(problem, seed, integers=False)
    torch.testing.assert_close(compute(problem, given).double(), oracle(problem, given), rtol=2e-5, atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(problem=st.sampled_from([DType.FP16, DType.BF16]).flatmap(problems), seed=st.integers(0, 99))
def test_half_types_are_near(problem: ConvProblem, seed: int) -> None:
    given = operands(problem, seed, integers=False)
    tolerance = 16 * problem.dtype.roundoff
    torch.testing.assert_close(
        compute(problem, given).double(), oracle(problem, given), rtol=tolerance, atol=4 * tolerance
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(problem=problems())
def test_output_and_workspace_may_be_left_to_the_plan(problem: ConvProblem) -> None:
    given = operands(problem, 1)
    expected = compute(problem, given)
    assert torch.equal(run(Reference().build(gemm(problem), CPU), given, own_workspace=True), expected)
    plan = Reference().build(gemm(problem), CPU)
    first, second = (given[role] for role in problem.direction.operands)
    second = plan.prepare(second) if Role.W in given else second
    result = plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL))
    assert torch.equal(result, expected)
    assert result.stride() == problem.output.strides


def test_half_types_are_folded_back_without_a_rounding_per_tap() -> None:
    # Ones added to a bf16 sum would be lost from 256 on.
    problem = ConvProblem.of((1, 1, 700), (1, 1, 300), dtype="bf16", direction=Direction.BACKWARD_DATA)
    given = {Role.DY: torch.ones(problem.y.shape).bfloat16(), Role.W: torch.ones(problem.w.shape).bfloat16()}
    assert torch.equal(compute(problem, given), oracle(problem, given).bfloat16())


def test_a_batch_of_none_gives_no_gradient_but_zeros() -> None:
    problem = ConvProblem.of((0, 4, 6, 6), (6, 4, 3, 3), direction=Direction.BACKWARD_WEIGHT)
    result = compute(problem, operands(problem, 0))
    assert torch.equal(result, torch.zeros(6, 4, 3, 3))


def test_an_expanded_gradient_is_copied() -> None:
    problem = ConvProblem.of((2, 4, 6, 6), (6, 2, 3, 3), groups=2)
    flat = replace(problem.y, strides=(0, 0, 0, 0))
    for direction in (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT):
        expanded = replace(problem, direction=direction, y=flat)
        given = {Role.X: torch.ones(problem.x.shape), Role.W: torch.ones(problem.w.shape)}
        given = {role: value for role, value in given.items() if role in expanded.operands}
        given[Role.DY] = torch.ones(()).expand(problem.y.shape)
        assert torch.equal(compute(expanded, given).double(), oracle(expanded, given))


def test_a_dense_output_is_written_where_it_lies() -> None:
    for layout in Layout.NCHW, Layout.NHWC:
        problem = ConvProblem.of((1, 4, 6, 6), (6, 4, 3, 3), layout=layout)
        columns = 4 * 9 * 16 * 4
        assert gemm(problem).workspace_bytes == columns


IN_PLACE = [
    "ic6ih9oc8kh1",
    "mb3ic6ih9oc8kh1",
    "mb3ic6ih9oc8kh1 tag:nhwc",
    "mb3ic6ih9oc8kh1 tag:x=nhwc,w=nchw,y=nhwc",
    "g2ic6ih9oc8kh1",
    "mb3ic6iw20oc8kw1",
    "mb2ic3id4ih5oc4kd1kh1",
    "mb5ic6ih1oc8kh1",
    "mb5ic6ih7oc8kh7",
    "g2mb5ic6ih7oc8kh7",
    "mb0ic6ih9oc8kh1",
]
COPIED = [
    "mb3ic6ih9oc8kh1sh2",
    "ic6ih9oc8kh1ph1",
    "g2mb3ic6ih9oc8kh1",
    "mb2ic6ih9oc8kh3",
    "mb2ic6ih7oc8kh5ph1",
    "mb5ic6ih7iw3oc8kh7kw3 tag:nhwc",
]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("text", IN_PLACE)
def test_what_lies_as_its_own_columns_is_not_unfolded(text: str, direction: Direction) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    # A sum over images is one product.
    several = problem.n > 1 and problem.x.layout is Layout.NCHW and max(problem.taps) < max(problem.x.shape[2:])
    copied = several and direction is Direction.BACKWARD_WEIGHT
    assert (gemm(problem).workspace_bytes > 0) == copied
    given = operands(problem, 4)
    assert torch.equal(compute(problem, given).double(), oracle(problem, given))


@pytest.mark.parametrize("text", COPIED)
def test_what_does_not_is_unfolded(text: str) -> None:
    problem = ConvProblem.parse(text)
    assert gemm(problem).workspace_bytes > 0
    given = operands(problem, 4)
    assert torch.equal(compute(problem, given).double(), oracle(problem, given))


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD_DATA])
def test_images_of_a_larger_buffer_are_multiplied_where_they_lie(direction: Direction) -> None:
    problem = ConvProblem.parse("mb3ic6ih4oc8kh1")
    wide = {"x": (10 * 16, 16, 4, 1), "y": (20 * 16, 16, 4, 1)}
    for name, strides in wide.items():
        problem = replace(problem, **{name: replace(getattr(problem, name), strides=strides)})
    problem = problem.asking(direction)
    assert gemm(problem).workspace_bytes == 0
    given = operands(problem, 5)
    assert torch.equal(compute(problem, given).double(), oracle(problem, given))


def test_what_is_said_of_a_candidate() -> None:
    found = gemm(ConvProblem.parse("mb2ic8ih9oc8kh3ph1"))
    assert found.id == "reference/gemm"
    assert found.arithmetic is Arithmetic.FP32
    assert found.deterministic
    assert gemm(ConvProblem.parse("mb2ic8ih9oc8kh3ph1 dt:bf16")).arithmetic is Arithmetic.BF16_ACC32
    assert torch.__version__ in Reference().fingerprint(CPU)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_fp32_is_fp32_whatever_the_flags_allow(precision: str) -> None:
    problem = ConvProblem.of((4, 64, 16, 16), (128, 64, 3, 3), padding=1)
    given = operands(problem, 3, integers=False)
    expected = compute(problem, given)
    with matmul_precision(precision):
        assert torch.equal(compute(problem, given), expected)
        assert torch.get_float32_matmul_precision() == precision
        assert torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("tag", ["", " tag:nhwc"])
def test_on_a_gpu_what_is_multiplied_where_it_lies_is_so_in_tf32_too(direction: Direction, tag: str) -> None:
    def ways(text: str) -> list[tuple[str, Arithmetic]]:
        problem = ConvProblem.parse(text).asking(direction)
        offered = Reference().candidates(problem, profile("h200"), Policy())
        return [(offer.id, offer.arithmetic) for offer in offered if offer.id.startswith("reference/gemm")]

    plain, in_tf32 = ("reference/gemm", Arithmetic.FP32), ("reference/gemm[tf32=on]", Arithmetic.TF32)
    assert ways(f"mb1ic8ih9oc16kh1{tag}") == [plain, in_tf32]
    assert ways(f"mb1ic8ih9oc16kh3{tag}") == [plain]
    assert ways(f"mb1ic8ih9oc16kh1 dt:fp16{tag}") == [("reference/gemm", Arithmetic.FP16_ACC32)]
    assert [each.id for each in Reference().candidates(ConvProblem.parse("ic8ih9oc16kh1"), CPU, Policy())][:3] == [
        "reference/kn2row", "reference/gemm", "reference/direct",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_that_lie_by_columns_take_no_longer(dtype: torch.dtype) -> None:
    """By itself PyTorch takes 100 times as long on a CPU, so that a search with a budget of 1 s took 144 s."""
    a, b = torch.randn(4, 64, 300).to(dtype), torch.randn(4, 300, 200).to(dtype)
    by_rows, by_columns = torch.empty(4, 64, 200, dtype=dtype), torch.empty(4, 200, 64, dtype=dtype).mT
    took_s = [min(timeit.repeat(lambda out=out: multiply(a, b, out), number=1)) for out in (by_rows, by_columns)]
    assert torch.equal(by_rows, by_columns)
    assert took_s[1] < 10 * took_s[0]
