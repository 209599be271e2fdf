"""The kernels that sum up taps first in Triton's interpreter, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan, sqrt

import pytest
import torch
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

import problem_space

pytest.importorskip("triton")

from backends.triton_interpreted.cases import listed
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.sweep import sweep_of
from convwright.backends.triton.taps_first.offers import ALGORITHM, Tile, candidate_of, refusal_reason, tiles
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import torch_dtype

BACKEND, CPU = TritonKernels(), device_facts("cpu")


def computed(candidate: Candidate, given: dict[Role, torch.Tensor]) -> torch.Tensor:
    return problem_space.run(BACKEND.build(candidate, CPU), given)


def some(problem: ConvProblem, place: int, count: int = 2) -> list[Candidate]:
    """Some of all that serve, others for each place."""
    sweep = sweep_of(problem)
    few_programs = sorted(tiles(sweep), key=lambda tile: tile.blocks(sweep))  # each of which takes the interpreter time
    found = sorted(few_programs[: len(few_programs) * 2 // 3], key=lambda tile: (tile.ahead, tile.pixels, tile.parts))
    return [
        candidate_of(problem, found[(place * 13 + turn * len(found) // count) % len(found)]) for turn in range(count)
    ]


# In words: channels that fill no step and no part, groups, windows of all kinds, volumes, one dimension, and gradients.
PROBLEMS = [
    "mb2ic9ih11iw13oc2kh3ph2dh1 ep:residual+bias+relu",
    "g2mb2ic40ih6iw8oc2kh3ph1sh2 dt:fp16 ep:bias",
    "ic10id3ih4iw6oc1kd3kh3pd1ph1 ep:bias",
    "mb2ic20iw40oc2kw5pw2",
    "ic17ih9iw12oc3kh3ph1 ep:relu",
    "g3mb2ic30ih7iw10oc9kh1",
    "ic11ih12iw15oc1kh5kw4sh2sw3ph3pw4dh1dw2 ep:residual",
    "ic8ih4iw6oc1kh9kw3ph4pw1",  # taps that reach none of the rows
    "ic19id5ih4iw7oc1kd2kh3kw2sd2pd1ph1dd1 dt:fp16",
    "ic8iw9oc4kw8pw30dw2",  # outputs that read nothing but padding
    "mb2ic2ih11iw13oc9kh3ph2dh1 dir:backward_data ep:relu",
    "g3mb2ic6ih7iw10oc30kh1 dir:backward_data dt:fp16",
    "ic1id3ih4iw6oc10kd3kh3pd1ph1 dir:backward_data",
    "ic1ih9iw20oc17kh5kw4ph3pw4dh1dw2 dir:backward_data ep:relu",
]


@pytest.mark.first_cases(5)
@pytest.mark.parametrize(("place", "text"), [*enumerate(PROBLEMS)])
def test_small_integers_come_out_exactly(place: int, text: str) -> None:
    problem = replace(ConvProblem.parse(text), flip=place % 2 == 1)
    given = problem_space.operands(problem, place)
    expected = problem_space.oracle(problem, given).to(torch_dtype(problem.dtype))
    for candidate in some(problem, place):
        assert torch.equal(computed(candidate, given), expected), candidate.id


# Rows that are wider than a block, with taps that reach across blocks.
@pytest.mark.first_cases(1)
@pytest.mark.parametrize("text", ["ic8iw300oc1kw3pw1", "mb2ic9iw500oc2kw5pw9dw2 dt:fp16", "ic8ih2iw401oc1kh2kw7sw2pw3"])
def test_rows_may_be_wider_than_a_block(text: str) -> None:
    problem = ConvProblem.parse(f"{text} ep:bias+relu")
    given = problem_space.operands(problem, 1)
    expected = problem_space.oracle(problem, given).to(torch_dtype(problem.dtype))
    for tile in (Tile(2, 1, 2, 1), Tile(4, 1, 3, 2)):
        assert tile.block < problem.x.shape[-1]
        assert torch.equal(computed(candidate_of(problem, tile), given), expected), tile


def test_operands_may_be_slices_of_wider_buffers() -> None:
    problem = ConvProblem.parse("mb2ic12ih6iw10oc2kh3ph1 ep:residual+bias+relu")
    x, y = (replace(spec, strides=(400 * spec.shape[1], 400, 20, 1), alignment=4) for spec in (problem.x, problem.y))
    sliced = replace(problem, x=x, y=y)
    given = problem_space.operands(sliced, 3)
    expected = problem_space.oracle(sliced, given).float()
    for candidate in some(sliced, 1, 2):
        assert torch.equal(computed(candidate, given), expected), candidate.id


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.filter_too_much])
@drawn(
    problem_space.problems(least_images=1, channels=(2, 8, 11)), st.sampled_from([DType.FP16, DType.FP32]), st.data()
)
def test_any_problem_that_is_served(drawn_problem: ConvProblem, dtype: DType, data: st.DataObject) -> None:
    specs = {role: replace(getattr(drawn_problem, role), dtype=dtype) for role in "xwy"}
    problem = replace(drawn_problem, **specs)
    assume(refusal_reason(problem) is None)
    given = problem_space.operands(problem, 2)
    candidate = candidate_of(problem, data.draw(st.sampled_from(list(tiles(sweep_of(problem))))))
    torch.testing.assert_close(
        computed(candidate, given).double(), problem_space.oracle(problem, given), rtol=0, atol=0, msg=candidate.id
    )


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("text", ["ic9ih5iw7oc1kh3ph1", "ic8ih5iw6oc2kh2pw1 dt:fp16"])
def test_errors_on_every_kind_of_data_are_explained(text: str) -> None:
    """Infinities and NaNs among them."""
    problem = ConvProblem.parse(text)
    check = ErrorCheck(problem, "cpu")
    for candidate in some(problem, 2, 1):
        plan = BACKEND.build(candidate, CPU)
        errors = check.errors(lambda by_role, plan=plan: plan(by_role["x"], plan.prepare(by_role["w"])))
        assert absolute_objection(problem, candidate.arithmetic, errors, Policy()) is None, candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("role", "value"), [(Role.X, inf), (Role.X, nan), (Role.W, -inf)])
def test_what_is_not_finite_lands_where_it_belongs(role: Role, value: float) -> None:
    """At the last pixel and channel, which steps and blocks that reach beyond them do not read."""
    problem = ConvProblem.parse("ic9ih7iw11oc1kh3ph1")
    given = problem_space.operands(problem, 1)
    given[Role.X][given[Role.X] == 0] = 1
    given[role][(-1, -1, -1, -1) if role is Role.X else (0, -1, 1, 1)] = value
    expected = problem_space.oracle(problem, given).float()
    assert not expected.isfinite().all()
    for candidate in some(problem, 1):
        assert torch.equal(computed(candidate, given).nan_to_num(7.5), expected.nan_to_num(7.5)), candidate.id


@pytest.mark.slow
def test_it_is_as_good_as_fp32() -> None:
    problem = ConvProblem.parse("ic64ih8iw20oc1kh3ph1")
    given = problem_space.operands(problem, 1, integers=False)
    expected = problem_space.oracle(problem, given)
    for candidate in (each for each in listed(ALGORITHM, problem, CPU)[:2] if isinstance(each, Candidate)):
        error = (computed(candidate, given).double() - expected).norm() / expected.norm()
        assert error < 2**-24 * sqrt(problem.reduction) / 4, candidate.id
