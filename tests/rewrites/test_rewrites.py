"""Every rewrite is an identity: around ``reference/gemm`` it gives what ``reference/gemm`` gives, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.data import operands as operands_of_kind
from convwright.rewrites import REWRITES, rewrite
from problem_space import operands, oracle, problems, run
from rewrites.around import around_torch, chains, check_identity, offered, planned, refused, wrapped

# One dimension, few channels, a stride, an epilogue, a batch: every rewrite has something to do.
STEM = ConvProblem.of((4, 3, 13), (6, 3, 5), stride=2, padding=2, epilogue="residual+bias+relu")
NAMES = [each.name for each in REWRITES if each.kind == "conv"]


@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 99))
def test_a_rewrite_is_an_identity(problem: ConvProblem, seed: int) -> None:
    check_identity(problem, chains(problem, 1), seed)


@settings(max_examples=40, deadline=None)
@given(problem=problems(least_images=4), pick=st.randoms(use_true_random=False))
def test_a_rewrite_of_a_rewrite_is_an_identity(problem: ConvProblem, pick: Random) -> None:
    check_identity(problem, [pick.choice(chains(problem, 2))], 1)


def test_ids_nest_as_they_are_written() -> None:
    problem = ConvProblem.parse("mb8ic8ih9oc8kh3")
    candidate = wrapped(problem, (("relayout", (("layout", "nhwc"),)), ("split-batch", (("parts", 4),))))
    assert candidate.id == "relayout(nhwc, split-batch(4, reference/gemm))"
    assert (candidate.depth, candidate.backend, candidate.leaf.backend) == (2, "rewrite", "reference")


def test_a_workspace_that_only_building_tells_stays_unknown() -> None:
    problem = ConvProblem.parse("mb8ic8ih9oc8kh3")
    for name, arguments in offered(problem):
        inner = replace(wrapped(rewrite(name).inner(problem, arguments), ()), workspace_bytes=None)
        assert rewrite(name).wrap(problem, arguments, inner).workspace_bytes is None


def test_a_bound_on_workspace_stays_one() -> None:
    problem = ConvProblem.parse("mb8ic8ih9oc8kh3")
    for name, arguments in offered(problem):
        inner = wrapped(rewrite(name).inner(problem, arguments), ())
        for bound in (False, True):
            around = rewrite(name).wrap(problem, arguments, replace(inner, workspace_is_bound=bound))
            assert around.workspace_is_bound is bound


def test_a_repeated_call_carves_no_views(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = STEM.asking(Direction.BACKWARD_WEIGHT)
    given = operands(problem, 1)
    first, second = (given[role] for role in problem.direction.operands)
    for name, arguments in offered(problem):
        plan = planned(wrapped(problem, ((name, arguments),)))
        workspaces = [torch.empty(plan.workspace_bytes, dtype=torch.uint8) for _ in range(2)]
        for used, other in ((0, 1), (0, 1), (1, 0), (0, 1)):
            workspaces[other].fill_(0xFF)
            result = plan(first, second, None, None, None, workspaces[used])
            assert torch.equal(result.double(), oracle(problem, given))
            assert (workspaces[other] == 0xFF).all()
        with monkeypatch.context() as patch:
            patch.setattr("convwright.rewrites.scratch.carve", None)
            plan(first, second, None, None, None, workspaces[0])


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16, DType.FP64])
@pytest.mark.parametrize("direction", Direction)
def test_sparse_integers_are_exact_in_every_dtype(direction: Direction, dtype: DType) -> None:
    specs = (replace(spec, dtype=dtype) for spec in (STEM.x, STEM.w, STEM.y))
    problem = replace(STEM, **dict(zip("xwy", specs, strict=True))).asking(direction)
    given = operands_of_kind(problem, Kind.INTEGERS, "cpu")
    for step in offered(problem):
        plan = planned(wrapped(problem, (step,)))
        assert torch.equal(run(plan, given).double(), oracle(problem, given)), plan.candidate.id


@pytest.mark.parametrize("direction", Direction)
def test_every_pair_of_rewrites(direction: Direction) -> None:
    problem = STEM.asking(direction)
    pairs = chains(problem, 2)
    none = {"as-forward", "subsample", *(("unfuse",) if direction is not Direction.FORWARD else ())}
    names = [name for name in NAMES if name not in none]
    once = {"space-to-depth", "as-2d", "unfuse"}  # nothing is left for a second time
    expected = {(outer, inner) for outer in names for inner in names if not (outer == inner and inner in once)}
    if direction is Direction.BACKWARD_DATA:  # the stride is gone
        expected.add(("space-to-depth", "as-forward"))
    assert {(outer, inner) for (outer, _), (inner, _) in pairs} == expected
    check_identity(problem, pairs, 5)


@pytest.mark.parametrize("direction", Direction)
def test_every_pair_of_rewrites_around_groups(direction: Direction) -> None:
    problem = ConvProblem.of((8, 4, 5, 5), (6, 2, 3, 3), groups=2, padding=1, dtype=DType.FP64, direction=direction)
    check_identity(problem, chains(problem, 2), 5)


def test_a_usual_layer_is_refused_once_by_each_rewrite_that_has_nothing_to_do() -> None:
    problem = ConvProblem.of((1, 64, 14, 14), (64, 64, 3, 3), padding=1)
    assert [(each.id, each.reason) for name in NAMES for each in refused(name, problem)] == [
        ("relayout(nchw)", "all operands are dense in nchw already"),
        ("split-batch", "a batch of 1 cannot be split into 2, 4 or 8 equal parts"),
        ("pad-c", "64 input and 64 output channels per group are multiples of 8 already"),
        ("space-to-depth", "a stride of 1x1 leaves nothing to fold"),
        ("subsample", "a stride of 1x1 skips nothing"),
        ("as-2d", "it has 2 spatial dimensions already"),
        ("as-forward", "turns an input's gradient around, not forward"),
        ("unfuse", "its epilogue is none"),
    ]


@settings(max_examples=60, deadline=None)
@given(problem=problems(least_images=1), seed=st.integers(0, 9))
def test_around_a_plan_that_makes_its_own_output(problem: ConvProblem, seed: int) -> None:
    """Said to write no output, a rewrite need not be given one."""
    given = operands(problem, seed)
    expected = oracle(problem, given)
    for step in offered(problem):
        plan = around_torch(problem, step)
        first, second = (given[role] for role in problem.direction.operands)
        if Role.W in given:
            second = plan.prepare(second)
        extras = given.get(Role.BIAS), given.get(Role.RESIDUAL)
        assert not plan.writes_out
        assert torch.equal(plan(first, second, *extras).double(), expected), plan.candidate.id
        assert torch.equal(run(plan, given).double(), expected), plan.candidate.id


def test_scratch_lies_in_front_of_the_inner_workspace() -> None:
    for direction in Direction:
        problem = STEM.asking(direction)
        for name, arguments in offered(problem):
            plan = planned(wrapped(problem, ((name, arguments),)))
            own = rewrite(name).scratch_bytes(problem, arguments)
            inner = wrapped(rewrite(name).inner(problem, arguments), ()).workspace_bytes
            assert own % 256 == 0
            assert plan.workspace_bytes == own + (inner or 0)
