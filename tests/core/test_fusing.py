"""Which epilogues are work of their own, and what their operands are called."""

from __future__ import annotations

import pytest

from convwright.core.direction import Role
from convwright.core.fusing import has_extended_epilogue, rare_operands, why_not_fused
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

FORWARD, DATA, WEIGHT = (f"mb2ic6ih11oc8kh3 dir:{name}" for name in ("forward", "backward_data", "backward_weight"))


@pytest.mark.parametrize("text", [FORWARD, DATA, WEIGHT, f"{FORWARD} ep:residual+bias+gelu"])
def test_what_kernels_fuse(text: str) -> None:
    problem = ConvProblem.parse(text)
    assert not has_extended_epilogue(problem)
    assert why_not_fused(problem) is None
    assert rare_operands(problem) == ()


@pytest.mark.parametrize(
    ("text", "by_name", "operands"),
    [
        (f"{FORWARD} ep:scale+relu", "scale", "x w scale y"),
        (f"{FORWARD} ep:residual+accumulate", "", "x w residual before y"),
        (f"{DATA} ep:scale+silu", "scale z", "dy w scale z dx"),
        (f"{DATA} ep:accumulate", "", "dy w before dx"),
        (f"{WEIGHT} ep:bias", "db", "x dy db dw"),
        (f"{WEIGHT} ep:scale+bias+relu+accumulate", "scale z db", "x dy scale z before db dw"),
    ],
)
def test_what_is_work_of_its_own(text: str, by_name: str, operands: str) -> None:
    problem = ConvProblem.parse(text)
    assert has_extended_epilogue(problem)
    assert f"does not fuse {problem.epilogue}" in str(why_not_fused(problem))
    assert [*rare_operands(problem)] == by_name.split()
    assert [*problem.operands] == operands.split()
    assert problem.outputs[-1] is problem.direction.output
    assert ConvProblem.parse(problem.key) == problem


def test_what_an_operand_of_an_epilogue_is_like() -> None:
    specs = ConvProblem.parse(f"{WEIGHT} ep:scale+bias+relu+accumulate tag:nhwc").operands
    assert specs[Role.SCALE].shape == specs[Role.DB].shape == (8,)
    assert specs[Role.Z] == specs[Role.DY]
    assert specs[Role.BEFORE] == specs[Role.DW]


def test_what_is_read_and_written_counts() -> None:
    plain, accumulated = (ConvProblem.parse(f"{DATA} ep:{ep}") for ep in ("none", "accumulate"))
    assert accumulated.bytes == plain.bytes + plain.x.nbytes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{DATA} ep:bias+relu", "a bias has no part in the input's gradient, got bias+relu on backward_data"),
        (f"{WEIGHT} ep:residual", "a residual belongs to the forward direction, got residual on backward_weight"),
    ],
)
def test_what_cannot_be(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said.replace("+", r"\+")):
        ConvProblem.parse(text)
