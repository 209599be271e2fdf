"""An epilogue as work of its own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from convwright.core.candidate import Refusal
from convwright.core.direction import Direction, Role
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.problem import ConvProblem
from convwright.rewrites import rewrite
from problem_space import ahead, operands, oracle, problems, run
from rewrites.around import arguments_of, check_workspace, planned, refused, wrapped

UNFUSE = rewrite("unfuse")


@settings(max_examples=60, deadline=None)
@given(problem=problems(activations=[*Activation]))
def test_every_epilogue_is_computed(problem: ConvProblem) -> None:
    for arguments in arguments_of("unfuse", problem):
        given = operands(problem, 1)
        plan = planned(wrapped(problem, (("unfuse", arguments),)))
        got, expected = run(plan, given), oracle(problem, given)
        torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=1e-6)
        check_workspace(plan, given, got.double())


@settings(max_examples=75, deadline=None)
@given(problem=problems(activations=[*Activation], rare=True))
def test_every_rare_epilogue_is_computed(problem: ConvProblem) -> None:
    for arguments in arguments_of("unfuse", problem):
        given = operands(problem, 1, integers=False)  # HardSwish has edges at 3 and -3
        if Role.DB in problem.outputs:
            given[Role.DB] = torch.full((problem.k,), 3.0 if problem.epilogue.accumulate else torch.nan)
        plan = planned(wrapped(problem, (("unfuse", arguments),)))
        got, expected = run(plan, given), oracle(problem, given)
        torch.testing.assert_close(got.double(), expected, rtol=2e-6, atol=2e-6)
        if Role.DB in problem.outputs:
            db = ahead(problem, given).sum([0, *range(2, problem.rank + 2)]) + 3.0 * problem.epilogue.accumulate
            torch.testing.assert_close(given[Role.DB].double(), db, rtol=2e-6, atol=2e-6)

        check_workspace(plan, given, got.double())


@pytest.mark.parametrize(("ep", "direction"), [("accumulate", "forward"), ("relu", "backward_data")])
def test_nothing_else_stands_around_a_rare_epilogue(ep: str, direction: str) -> None:
    problem = ConvProblem.of((2, 3, 9, 9), (4, 3, 3, 3), epilogue=ep, direction=direction)
    for name in ("relayout", "split-batch", "pad-c", "space-to-depth", "as-2d"):
        assert arguments_of(name, problem) == []
        assert "`unfuse` makes that work of its own" in refused(name, problem)[0].reason


def test_what_is_moved_ahead_of_a_gradient() -> None:
    problem = ConvProblem.of(
        (2, 3, 9, 9), (4, 3, 3, 3), epilogue="scale+bias+relu+accumulate", direction="backward_weight"
    )
    derived, scaled, summed = 3 * problem.y.nbytes, 2 * problem.y.nbytes + 16, problem.y.nbytes
    assert UNFUSE.moved_bytes(problem, ()) == derived + scaled + summed + 3 * problem.w.nbytes
    assert UNFUSE.scratch_bytes(problem, ()) >= problem.y.nbytes + problem.w.nbytes


def test_the_inner_problem_has_no_epilogue() -> None:
    problem = ConvProblem.of((2, 3, 9, 9), (4, 3, 3, 3), epilogue="residual+bias+gelu")
    inner = UNFUSE.inner(problem, ())
    assert inner.epilogue == Epilogue()
    assert wrapped(problem, (("unfuse", ()),)).id == "unfuse(reference/gemm)"


@pytest.mark.parametrize(
    ("epilogue", "passes", "biases"),
    [("bias", 2, 1), ("relu", 2, 0), ("bias+relu", 4, 1), ("residual", 3, 0), ("residual+bias+silu", 7, 1)],
)
def test_what_is_moved_counts_reading_and_writing(epilogue: str, passes: int, biases: int) -> None:
    problem = ConvProblem.of((2, 3, 9, 9), (4, 3, 3, 3), epilogue=epilogue)
    assert UNFUSE.moved_bytes(problem, ()) == passes * problem.y.nbytes + biases * 4 * 4
    assert UNFUSE.scratch_bytes(problem, ()) == 0


@pytest.mark.parametrize("direction", Direction)
def test_without_an_epilogue_there_is_nothing_to_do(direction: Direction) -> None:
    problem = ConvProblem.of((2, 3, 9, 9), (4, 3, 3, 3), direction=direction)
    assert arguments_of("unfuse", problem) == []
    assert refused("unfuse", problem) == [Refusal("unfuse", "its epilogue is none")]
