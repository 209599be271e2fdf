"""The kernel for few channels in Triton's interpreter, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, sqrt

import pytest
import torch

import problem_space

pytest.importorskip("triton")

from backends.triton_interpreted.cases import (
    BEFORE_ACTIVATIONS,
    CASES,
    GROUPED,
    VOLUMES,
    Case,
    Operands,
    exact,
    listed,
    oracle,
)
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.direct.offers import ALGORITHM, STRIPS, Strip, candidate_of, has_loop
from convwright.backends.triton.sweep import sweep_of
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.epilogue_math import derive
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import torch_dtype

BACKEND, CPU = TritonKernels(), device_facts("cpu")


def in_planes(case: Case, dtype: DType) -> ConvProblem:
    return case.problem(dtype, Layout.NCHW, Layout.NCHW)


def run(candidate: Candidate, given: Operands) -> torch.Tensor:
    plan = BACKEND.build(candidate, CPU)
    given.out.fill_(float("nan"))
    return plan(given.x, plan.prepare(given.w), given.bias, given.residual, given.out)


def offered(problem: ConvProblem) -> list[Candidate]:
    return [each for each in listed(ALGORITHM, problem, CPU) if isinstance(each, Candidate)]


LYING = [(DType.FP32, Layout.NCHW), (DType.FP16, Layout.NHWC), (DType.FP16, Layout.NCHW), (DType.FP32, Layout.NHWC)]


@pytest.mark.parametrize(("place", "name"), [*enumerate(GROUPED)])
def test_groups_are_kept_apart(place: int, name: str) -> None:
    """Each case in one dtype and layout, by turns; in planes, strips across groups and within one take turns, too."""
    dtype, layout = LYING[place % 4]
    problem = GROUPED[name].problem(dtype, layout, layout)
    given = Operands.of(problem, "cpu", integers=True)
    expected = oracle(problem, given)
    found = offered(problem)
    assert found
    across = {Strip.of(each).across: each for each in reversed(largest(found))}
    candidate = [*across.values()][place // 2 % len(across)]
    y = run(candidate, given)
    if "silu" in str(problem.epilogue):
        assert torch.allclose(y.double(), expected, rtol=2e-3, atol=1e-6), candidate.id
    else:
        assert torch.equal(y, exact(expected, problem)), candidate.id


def largest(found: list[Candidate]) -> list[Candidate]:
    """Those with the fewest programs first, each of which takes the interpreter its time."""
    return sorted(found, key=lambda each: Strip.of(each).blocks(sweep_of(each.problem)))


# Each case with one of these, by turns; 17 outputs are too many for one program.
FEW = [(1, DType.FP32), (3, DType.FP16), (2, DType.FP32), (17, DType.FP32)]


@pytest.mark.parametrize(("name", "outputs", "dtype"), [(name, *FEW[i % 4]) for i, name in enumerate(CASES | VOLUMES)])
def test_small_integers_come_out_exactly(name: str, outputs: int, dtype: DType) -> None:
    case = (CASES | VOLUMES)[name]
    channels = min(case.x[1], 5 if outputs < 17 else 1)
    few = replace(case, x=(case.x[0], channels, *case.x[2:]), w=(outputs, channels, *case.w[2:]))
    problem = in_planes(few, dtype)
    given = Operands.of(problem, "cpu", integers=True)
    expected = exact(oracle(problem, given), problem)
    found = offered(problem)
    assert found
    (candidate,) = largest(found)[:1]  # every strip has its turn below
    assert torch.equal(run(candidate, given), expected), candidate.id


SPACINGS = [((1, 1), (1, 1)), ((2, 1), (1, 2)), ((1, 1), (3, 2)), ((2, 2), (4, 1))]
# The interpreter knows no warps: strips that differ in nothing else are the same to it. A GPU runs all of them.
UNLIKE = {(each.rows, each.bq, each.split, each.across): each for each in STRIPS}.values()


@pytest.mark.parametrize(("place", "strip"), [*enumerate(UNLIKE)][::2])
def test_strips_handle_their_tails(place: int, strip: Strip) -> None:
    """Rows, columns and channels that no strip fills, padding on all sides, and an inside where none is read. A part of
    the output channels is one of two, or two of three, by turns."""
    outputs = 1 + place // 2 % 2
    strides, dilations = SPACINGS[(place + place // 4) % 4]
    stride, dilation = strides[0], dilations[0]
    channels, groups = (strip.split + 1, 1) if strip.split > 1 else (1, 2 if strip.across else 1)
    # One more than strips have that lie within each other, or one less, by turns.
    more = 1 if strip.rows == 1 or place // 5 % 2 else -1
    rows = strip.rows * dilation // gcd(stride, dilation) + more
    height = max(1, (rows - 1) * stride + 2 * dilation + 1 - 7)
    shapes = (1, groups * channels, height, 18 if strip.across else 37), (groups * (outputs + 1), channels, 3, 2)
    case = Case(*shapes, strides, ((4, 3), (2, 1)), dilations, "residual+bias+relu", slack=1, groups=groups)
    layout = Layout.NHWC if strip.across and (place + place // 8) % 2 else Layout.NCHW
    problem = case.problem(DType.FP32, layout, layout)
    given = Operands.of(problem, "cpu", integers=True)
    packed = 1 if layout is Layout.NHWC and place % 4 else None
    candidate = candidate_of(problem, replace(strip, outputs=outputs, packed=packed))
    assert torch.equal(run(candidate, given), exact(oracle(problem, given), problem))


@pytest.mark.parametrize(
    ("text", "flip"),
    [
        ("g4mb2ic8ih7iw5oc12kh3kw2ph1 tag:nhwc ep:bias+relu", True),
        ("g3ic6id4ih5iw7oc3kd2kh3kw3pd1ph1 tag:nhwc", False),
        ("g4mb2ic4ih9iw8oc8kh3kw5sh2ph1pw2 tag:nhwc dir:backward_data", True),
        ("g5ic5iw40oc5kw7pw3 tag:nhwc dir:backward_data ep:silu", False),
    ],
)
def test_a_weight_may_be_packed(text: str, flip: bool) -> None:
    problem = replace(ConvProblem.parse(text), flip=flip)
    given = problem_space.operands(problem, 1)
    expected = problem_space.oracle(problem, given)
    ways = {Strip.of(each).packed: each for each in reversed(largest(offered(problem)))}
    assert ways.keys() == {None, 1}
    for candidate in ways.values():
        y = problem_space.run(BACKEND.build(candidate, CPU), given)
        torch.testing.assert_close(y.double(), expected, rtol=2e-6, atol=2e-6 if "silu" in text else 0)


# As many taps as are a loop in the compiled kernel.
LARGE = [
    "g2ic2ih9iw34oc2kh7ph3",
    "g3ic3ih8iw33oc3kh9kw5ph4pw2 tag:nhwc",
    "ic2iw140oc3kw50pw20dw1",
    "g2ic2ih11iw33oc2kh11kw7sh2ph5pw3 dir:backward_data",
    "ic2ih7iw33oc2kh7ph3 dir:backward_data ep:relu",
]


@pytest.mark.parametrize(("place", "text"), [*enumerate(LARGE)])
def test_filters_may_be_large(place: int, text: str) -> None:
    problem = replace(ConvProblem.parse(text), flip=place % 2 == 0)
    given = problem_space.operands(problem, place)
    expected = problem_space.oracle(problem, given).float()
    (candidate,) = largest(offered(problem))[:1]
    assert has_loop(Strip.of(candidate), sweep_of(problem))
    assert torch.equal(problem_space.run(BACKEND.build(candidate, CPU), given), expected), candidate.id


# As the text form has them, where a dilation of 0 leaves nothing out.
STRIDED = [
    "g3mb2ic3ih11iw38oc3kh3sh2ph1",
    "g3mb2ic3ih10iw37oc3kh3sh2ph1 tag:nhwc",
    "g2ic4ih9iw40oc6kh5kw4sh2sw1ph2pw3",
    "ic3ih14iw37oc2kh7sh2ph3",
    "ic20iw70oc1kw4sw2pw1",
    "g2ic2ih13iw35oc4kh3kw5sh3sw2ph1pw4dh1dw2",  # taps that no phase of the rows shares
    "g2ic4ih13iw33oc2kh3sh2ph2dh1 tag:nhwc",  # every second row and column is reached by none
    "ic5ih8iw34oc2kh1sh2",
    "ic2ih9iw33oc3kh2sh4ph0",
    "g3ic3ih1iw2oc3kh3sh4ph3",  # fewer pixels than phases
    "g2mb2ic2id5ih4iw34oc2kd3kh3kw3sd2sh2sw2pd1ph1pw1",
    "ic3id6ih3iw33oc2kd2kh1kw3sd3sh1sw2pd2ph0pw1dd1dh0dw1",
    "ic2ih6iw34oc2kh1ph2",  # padding that reaches further than the filter
    "ic20ih4iw35oc1kh3ph1",
    "g3mb1ic6ih7iw33oc3kh3ph1 tag:nhwc",
]


@pytest.mark.parametrize(("place", "text"), [*enumerate(STRIDED)])
def test_gradients_of_inputs_come_out_exactly(place: int, text: str) -> None:
    dtype = DType.FP16 if place % 3 == 1 else DType.FP32
    problem = replace(ConvProblem.parse(f"{text} dir:backward_data dt:{dtype}"), flip=place % 2 == 1)
    given = problem_space.operands(problem, place)
    expected = problem_space.oracle(problem, given).to(torch_dtype(dtype))
    found = largest(offered(problem))
    assert found
    for candidate in found[:: 3 if place % 2 else 2][:2]:
        assert torch.equal(problem_space.run(BACKEND.build(candidate, CPU), given), expected), candidate.id


GRADIENTS = [
    "mb2ic3ih6iw37oc2kh3ph1 ep:relu",
    "g3mb1ic3ih5iw33oc6kh3kw2ph1pw1dh1 ep:silu tag:nhwc",
    "g2mb2ic4iw50oc6kw4pw3 ep:gelu",
    "ic20ih4iw35oc1kh3pw2 ep:hardswish",
    "g2ic2id3ih4iw33oc2kd2kh3kw3pd1ph1pw2 ep:relu",
    "g3ic3ih9iw37oc6kh3sh2ph1 ep:silu",
    "g2ic4ih6iw35oc2kh3sh2ph1 ep:relu tag:nhwc",
]


@pytest.mark.parametrize(("place", "text"), [*enumerate(GRADIENTS)])
def test_dy_is_multiplied_by_a_derivative(place: int, text: str) -> None:
    problem = replace(ConvProblem.parse(f"{text} dir:backward_data"), flip=place % 2 == 1)
    given = problem_space.operands(problem, 1, integers=False)
    found = offered(problem)
    assert found
    for candidate in largest(found)[:2]:
        got = problem_space.run(BACKEND.build(candidate, CPU), given)
        torch.testing.assert_close(got.double(), problem_space.oracle(problem, given), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "hardswish"])
def test_derivatives_are_pytorchs_own(activation: str) -> None:
    problem = ConvProblem.parse(f"ic1iw{len(BEFORE_ACTIVATIONS)}oc1kw1 dir:backward_data ep:{activation}")
    z = torch.tensor(BEFORE_ACTIVATIONS).view(problem.y.shape)
    given = {Role.DY: torch.full_like(z, 3.0), Role.W: torch.ones(problem.w.shape), Role.Z: z}
    expected = derive(given[Role.DY], problem.epilogue.activation, z, torch.empty_like(z))
    (candidate,) = largest(offered(problem))[:1]
    got = problem_space.run(BACKEND.build(candidate, CPU), given)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_where_relu_is_zero_an_infinity_is_nothing() -> None:
    problem = ConvProblem.parse("ic1iw40oc1kw3pw1 dir:backward_data ep:relu")
    given = problem_space.operands(problem, 1)
    given[Role.Z].fill_(-1.0)
    given[Role.DY].fill_(torch.inf)
    (candidate,) = largest(offered(problem))[:1]
    assert (problem_space.run(BACKEND.build(candidate, CPU), given) == 0).all()


def test_it_is_as_good_as_fp32() -> None:
    problem = in_planes(Case((1, 32, 2, 40), (2, 32, 3, 3), padding=((1, 1), (1, 1))), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in largest(offered(problem))[:2]:
        error = (run(candidate, given).double() - expected).norm() / expected.norm()
        assert error < 2**-24 * sqrt(problem.reduction), candidate.id


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str) -> None:
    problem = in_planes(Case((1, 4, 4, 30), (2, 4, 3, 3), padding=((1, 1), (1, 1)), epilogue="relu"), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place)[0, 3, 1, 1] = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    expected = oracle(problem, given).float()
    (candidate,) = largest(offered(problem))[:1]
    assert torch.allclose(run(candidate, given), expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id


def test_a_weight_may_lie_in_any_order() -> None:
    problem = in_planes(Case((1, 5, 6, 40), (3, 5, 3, 2), flip=True), DType.FP32)
    turned = TensorSpec(problem.w.shape, problem.w.dtype, (5, 1, 15, 45))
    problem = replace(problem, w=turned)
    given = Operands.of(problem, "cpu", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in largest(offered(problem))[:2]:
        assert torch.equal(run(candidate, given), expected), candidate.id
