"""The kernel whose threads compute patches in Triton's interpreter, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import sqrt

import pytest
import torch

import problem_space

pytest.importorskip("triton")

from backends.triton_interpreted.cases import BEFORE_ACTIVATIONS
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.sweep import sweep_of
from convwright.backends.triton.wide_direct.offers import candidate_of
from convwright.backends.triton.wide_direct.patches import Patch, patches
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.epilogue_math import derive
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import torch_dtype

BACKEND, CPU = TritonKernels(), device_facts("cpu")


def computed(candidate: Candidate, given: dict[Role, torch.Tensor]) -> torch.Tensor:
    return problem_space.run(BACKEND.build(candidate, CPU), given)


@cache
def unlike(problem: ConvProblem) -> list[Patch]:
    """The patches that serve, but those that only differ in what the interpreter does not know, with the fewest
    programs first, each of which takes it its time."""
    sweep = sweep_of(problem)
    kinds = {
        (each.rows, each.cols, each.split, each.by_row, each.vector, each.packed, each.rolled, each.kept): each
        for each in patches(sweep)
    }
    return sorted(kinds.values(), key=lambda patch: patch.blocks(sweep))


def by_turns(problem: ConvProblem, place: int, count: int = 2) -> list[Candidate]:
    """Some of these, others for each place: of any kind, and with and without a loop over rows."""
    found = unlike(problem)
    few = found[: max(count, len(found) // 2)]
    return [candidate_of(problem, few[(place * 7 + turn * (len(few) // count)) % len(few)]) for turn in range(count)]


# In words: planes and channels last, windows of all kinds, tails of rows and columns, channels, parts and volumes.
PROBLEMS = [
    "g3mb2ic3ih5iw38oc3kh3ph1 ep:residual+bias+relu",
    "g3mb2ic3ih7iw10oc3kh3ph1 tag:nhwc ep:residual+bias+relu",
    "g4mb1ic4ih9iw12oc4kh7ph3 dt:fp16",
    "g4mb2ic4ih6iw7oc4kh5kw3ph2pw1 tag:nhwc dt:fp16 ep:bias",
    "g2ic2ih11iw40oc2kh3sh2ph1",
    "g6ic6ih9iw11oc6kh3sh2ph1 tag:nhwc",
    "g3ic3ih13iw36oc3kh3ph2dh1 dt:fp16",
    "g2ic2ih15iw34oc2kh3sh2sw3ph3pw4dh2dw1 ep:relu",
    "g5mb2ic5iw64oc5kw4pw3",
    "g5mb2ic5iw64oc5kw4pw3 tag:nhwc dt:bf16",
    "ic9ih6iw20oc1kh3ph1 ep:bias+relu",
    "g2ic10ih8iw24oc6kh3ph2dh1",
    "ic5ih6iw18oc3kh2kw5ph1pw2 dt:fp16",
    "ic3ih4iw16oc17kh1",
    "g2ic2id4ih5iw12oc2kd3kh3pd1ph1 ep:residual+bias+relu",
    "g3ic3id5ih4iw6oc3kd2kh3kw3sd2pd1ph1 tag:nhwc",
    "ic4id4ih5iw14oc2kd3kh2kw3sd1pd2dd1ph1",
    "g2ic2ih7iw20oc2kh5kw5ph4pw4",  # padding that reaches further than half the filter
    "g3ic3ih3iw2oc3kh3ph1",
    "g2ic2ih2iw8oc2kh15ph7",
    "g4ic4ih5iw4oc4kh9ph4 tag:nhwc",
]


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize(("place", "text"), [*enumerate(PROBLEMS)])
def test_small_integers_come_out_exactly(place: int, text: str, direction: str) -> None:
    asked = text.split(" ep:")[0] if direction != "forward" else text
    problem = replace(ConvProblem.parse(f"{asked} dir:{direction}"), flip=place % 2 == 1)
    found = unlike(problem)
    if direction == "backward_data" and max(problem.stride) > 1:
        pytest.skip("another kernel serves gradients of inputs with strides")
    assert found
    given = problem_space.operands(problem, place)
    expected = problem_space.oracle(problem, given).to(torch_dtype(problem.dtype))
    for candidate in by_turns(problem, place):
        assert torch.equal(computed(candidate, given), expected), candidate.id


TAILS = ["g2ic6ih19iw26oc2kh3ph1", "g4mb2ic4ih19iw13oc4kh3ph1 tag:nhwc"]


@pytest.mark.parametrize("place", range(24))
@pytest.mark.parametrize("text", TAILS)
def test_patches_handle_their_tails(text: str, place: int) -> None:
    """Rows and columns that no patch fills: each kind of patch has its turn."""
    problem = ConvProblem.parse(f"{text} ep:bias+relu")
    given = problem_space.operands(problem, 1)
    expected = problem_space.oracle(problem, given).float()
    found = unlike(problem)
    # A kind of patch takes the interpreter time by its programs, so those with many are not run.
    for patch in found[: len(found) * 3 // 4][place::24][:2]:
        candidate = candidate_of(problem, patch)
        assert torch.equal(computed(candidate, given), expected), candidate.id


# In words: whole images and parts of them, more padding than the filter reaches over and none, strides and dilations
# that share a factor and that do not, several groups at once, and an image lower than the filter.
ROLLED = [
    "g3mb2ic3ih13iw10oc3kh3ph1 tag:nhwc ep:residual+bias+relu",
    "g4mb2ic4ih9iw7oc4kh7ph3 tag:nhwc ep:residual+bias+relu",
    "g4ic4ih12iw7oc4kh5kw3ph2pw1 tag:nhwc dt:fp16",
    "g2ic2ih11iw9oc2kh3ph4pw1 tag:nhwc",
    "g2ic2ih11iw8oc2kh4kw3 tag:nhwc",
    "g2ic2ih14iw12oc2kh5sh2ph2 tag:nhwc",
    "g2ic2ih16iw12oc2kh5kw3sh3ph1 tag:nhwc",
    "g2ic2ih17iw12oc2kh4sh2ph3pw2dh1 tag:nhwc dt:bf16",
    "g2ic2ih17iw12oc2kh3sh2ph2pw2dh1 tag:nhwc",
    "g2ic2ih17iw12oc2kh3ph3pw2dh2 tag:nhwc",
    "g2ic2ih3iw4oc2kh9ph4 tag:nhwc",
]


@pytest.mark.parametrize(("place", "text"), [*enumerate(ROLLED)])
def test_rows_may_be_read_one_after_the_other(place: int, text: str) -> None:
    """Forward and, of every third problem that has a stride of 1, as a gradient."""
    problem = ConvProblem.parse(text)
    if place % 3 == 0 and max(problem.stride) == 1:
        problem = ConvProblem.parse(f"{text.partition(' ep:')[0]} dir:backward_data")
    problem = replace(problem, flip=place % 2 == 1)
    found = list({(each.rows, each.packed): each for each in unlike(problem) if each.rolled}.values())
    assert found
    given = problem_space.operands(problem, place)
    expected = problem_space.oracle(problem, given).to(torch_dtype(problem.dtype))
    for patch in found[place % 2 :: 2][:2]:
        assert torch.equal(computed(candidate_of(problem, patch), given), expected), patch


# In words: a group's channels in one turn and in many, tails of all, strides and dilations, and halves of numbers.
KEPT = [
    "ic3ih9iw16oc32kh3sh2ph1 ep:bias+relu",
    "mb2ic3ih7iw10oc30kh3ph1 ep:residual+bias+silu",
    "g2ic4ih8iw12oc20kh3kw2pw1dh1",
    "ic1ih13iw8oc21kh5sh2ph4 dt:fp16",
    "ic4ih11iw14oc24kh3sh3sw1ph2dh1 dt:bf16",
    "g2mb2ic52ih5iw12oc6kh3ph1 dir:backward_data ep:relu",
]


@pytest.mark.parametrize(("place", "text"), [*enumerate(KEPT)])
def test_what_is_read_may_be_kept(place: int, text: str) -> None:
    problem = replace(ConvProblem.parse(text), flip=place % 2 == 1)
    found = [each for each in unlike(problem) if each.kept]
    assert {each.kept for each in found} >= {2}, "a few turns"
    given = problem_space.operands(problem, place)
    expected = problem_space.oracle(problem, given).to(torch_dtype(problem.dtype))
    for patch in found[place :: max(len(found) // 2, 1)]:
        got = computed(candidate_of(problem, patch), given)
        torch.testing.assert_close(got, expected, rtol=1e-5 if "silu" in text else 0, atol=0)


# In words: planes of which several taps read one, or one does from beside it, as an input's gradient and with channels
# last, too.
ONE_PLANE = [
    "mb2ic1id1ih16oc32kd3kh3pd1ph1",
    "mb2ic2id1ih16oc16kd1kh3sd3pd1ph1",
    "mb2ic2id1ih16oc16kd2kh3pd1ph1dd1",
    "g2mb2ic16id1ih16oc2kd3kh3pd1ph1 dir:backward_data",
    "g2mb2ic2id1ih16oc2kd3kh3pd1ph1 tag:nhwc",
    "mb2ic3id1ih12oc16kd1kh3pd0ph1 ep:bias+relu",
]


@pytest.mark.parametrize(("place", "text"), [*enumerate(ONE_PLANE)])
def test_volumes_of_one_plane_are_no_images(place: int, text: str) -> None:
    """Unless one tap reads it: each way of patches has its turn."""
    problem = ConvProblem.parse(text)
    few_programs_last = reversed(unlike(problem))
    ways = {(each.split, each.vector, each.packed, each.rolled, each.kept): each for each in few_programs_last}
    found = [*ways.values()]
    assert any(each.kept or each.rolled for each in found) == ("pd0" in text)
    given = problem_space.operands(problem, place)
    expected = problem_space.oracle(problem, given).to(torch_dtype(problem.dtype))
    for patch in found:
        assert torch.equal(computed(candidate_of(problem, patch), given), expected), patch


GRADIENTS = [
    "g2mb2ic4ih6iw20oc4kh3ph1 dir:backward_data ep:relu",
    "g3ic3ih5iw7oc3kh3ph1 tag:nhwc dir:backward_data ep:silu",
    "g2ic2iw40oc2kw4pw3dw1 dir:backward_data ep:gelu",
    "ic3ih4iw18oc1kh3ph1 dir:backward_data ep:hardswish",
]


@pytest.mark.parametrize(("place", "text"), [*enumerate(GRADIENTS)])
def test_dy_is_multiplied_by_a_derivative(place: int, text: str) -> None:
    problem = replace(ConvProblem.parse(text), flip=place % 2 == 1)
    given = problem_space.operands(problem, 1, integers=False)
    for candidate in by_turns(problem, place):
        expected = problem_space.oracle(problem, given)
        torch.testing.assert_close(computed(candidate, given).double(), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "hardswish"])
def test_derivatives_are_pytorchs_own(activation: str) -> None:
    problem = ConvProblem.parse(f"ic1iw{len(BEFORE_ACTIVATIONS)}oc1kw1 dir:backward_data ep:{activation}")
    z = torch.tensor(BEFORE_ACTIVATIONS).view(problem.y.shape)
    given = {Role.DY: torch.full_like(z, 3.0), Role.W: torch.ones(problem.w.shape), Role.Z: z}
    expected = derive(given[Role.DY], problem.epilogue.activation, z, torch.empty_like(z))
    got = computed(candidate_of(problem, unlike(problem)[0]), given)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_it_is_as_good_as_fp32() -> None:
    problem = ConvProblem.parse("ic32ih2iw40oc2kh3ph1")
    given = problem_space.operands(problem, 1, integers=False)
    expected = problem_space.oracle(problem, given)
    for candidate in by_turns(problem, 1, 3):
        error = (computed(candidate, given).double() - expected).norm() / expected.norm()
        assert error < 2**-24 * sqrt(problem.reduction), candidate.id


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("role", [Role.X, Role.W])
def test_what_is_not_finite_lands_where_it_belongs(value: float, role: Role) -> None:
    problem = ConvProblem.parse("ic4ih4iw30oc2kh3ph1 ep:relu")
    given = problem_space.operands(problem, 1, integers=False)
    given[role][0, 3, 1, 1] = value
    expected = problem_space.oracle(problem, given).float()
    for candidate in by_turns(problem, 2):
        assert torch.allclose(computed(candidate, given), expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id


def test_a_weight_may_lie_in_any_order() -> None:
    problem = ConvProblem.parse("ic5ih6iw40oc3kh3kw2ph1")
    problem = replace(problem, w=TensorSpec(problem.w.shape, problem.w.dtype, (5, 1, 15, 45)), flip=True)
    given = problem_space.operands(problem, 1)
    expected = problem_space.oracle(problem, given).float()
    for candidate in by_turns(problem, 3):
        assert torch.equal(computed(candidate, given), expected), candidate.id


def test_what_lies_in_a_wider_buffer_is_left_alone() -> None:
    """Input and output are channels of buffers with more of them, in both layouts."""
    for text in "g4mb2ic4ih6iw8oc4kh3ph1", "g4mb2ic4ih6iw8oc4kh3ph1 tag:nhwc":
        problem = ConvProblem.parse(text)
        wide = ConvProblem.parse(text.replace("ic4", "ic8").replace("oc4", "oc8").replace("g4", "g8"))
        x, y = replace(problem.x, strides=wide.x.strides), replace(problem.y, strides=wide.y.strides)
        problem = replace(problem, x=x, y=y)
        given = problem_space.operands(problem, 1)
        expected = problem_space.oracle(problem, given).float()
        for candidate in by_turns(problem, 4):
            whole = torch.full(wide.y.shape, 7.0).to(memory_format=wide_format(text))
            plan = BACKEND.build(candidate, CPU)
            out = whole[:, :4]
            assert out.stride() == problem.y.strides
            plan(given[Role.X], plan.prepare(given[Role.W]), out=out)
            assert torch.equal(out, expected), candidate.id
            assert (whole[:, 4:] == 7).all(), candidate.id


def wide_format(text: str) -> torch.memory_format:
    return torch.channels_last if "nhwc" in text else torch.contiguous_format
