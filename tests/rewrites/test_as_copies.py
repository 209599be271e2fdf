"""Rewrites as copies around a convolution: computed one after the other they give what the convolution gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.data import operands as data
from convwright.measuring.checking.of_kind import whole_reference
from convwright.measuring.checking.reference import Reference
from convwright.rewrites.as_copies import Copies, as_copies
from convwright.tensors import empty
from problem_space import problems
from rewrites.around import offered, wrapped

COPYING = ("relayout", "pad-c")


def in_fp64(copies: Copies, given: dict[Role, torch.Tensor]) -> torch.Tensor:
    """The copies and the inner problem, each by its own float64 reference."""
    inner: ConvProblem = copies.inner.problem
    inside = {}
    for role, tensor in given.items():
        copied = copies.before.get(role)
        made = tensor if copied is None else whole_reference(copied, {"x": tensor}).y64
        inside[role] = empty(inner.operands[role], "cpu").copy_(made)
    result = Reference.of(inner, inside).y64
    return result if copies.after is None else whole_reference(copies.after, {"x": result}).y64


def candidates(problem: ConvProblem) -> list[Candidate]:
    return [wrapped(problem, (step,)) for step in offered(problem) if step[0] in COPYING]


@settings(max_examples=40)
@given(problems())
def test_the_parts_give_the_whole(problem: ConvProblem) -> None:
    if problem.dtype.narrow or len(problem.outputs) > 1:
        return
    # In fp64 nothing that is copied is rounded.
    problem = ConvProblem.parse(problem.key.replace(f"dt:{problem.dtype}", "dt:fp64"))
    given = data(problem, Kind.NORMAL, "cpu")
    right = Reference.of(problem, given).y64
    for candidate in candidates(problem):
        copies = as_copies(candidate)
        if copies is not None:
            assert in_fp64(copies, given).allclose(right), candidate.id


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("name", COPYING)
def test_each_direction_has_its_copies(name: str, direction: Direction) -> None:
    problem = ConvProblem.parse(f"mb2ic3ih7oc6kh3ph1 dt:fp64 dir:{direction}")
    (candidate, *_) = [each for each in candidates(problem) if each.algorithm == name]
    copies = as_copies(candidate)
    assert copies is not None
    assert copies.before
    assert copies.inner is candidate.inner
    assert copies.after is not None
    assert copies.after.y == problem.output
    assert {*copies.before} == {*direction.operands}
    given = data(problem, Kind.NORMAL, "cpu")
    assert in_fp64(copies, given).allclose(Reference.of(problem, given).y64)


def test_their_bytes_are_what_the_rewrite_says_that_it_moves() -> None:
    from convwright.rewrites import rewrite

    problem = ConvProblem.parse("mb2ic8ih7oc8kh3ph1 ep:residual+bias")
    (candidate,) = [each for each in candidates(problem) if each.algorithm == "relayout"]
    copies = as_copies(candidate)
    assert copies is not None
    assert {copy.key.split()[2] for copy in copies.problems} == {"nchw->nhwc", "nhwc->nchw"}
    moved = rewrite("relayout").moved_bytes(problem, candidate.config)
    assert sum(copy.bytes for copy in copies.problems) == moved


def test_what_does_more_than_copy_is_none() -> None:
    problem = ConvProblem.parse("mb4ic4ih9oc8kh3sh2")
    for step in offered(problem):
        if step[0] not in COPYING:
            assert as_copies(wrapped(problem, (step,))) is None
    grouped = ConvProblem.parse("g2mb4ic6ih9oc12kh3")
    assert all(as_copies(each) is None for each in candidates(grouped) if each.algorithm == "pad-c")
    assert as_copies(wrapped(problem, ())) is None


def test_a_cast_is_no_rewrite_but_a_copy() -> None:
    from convwright.core.kinds.copy import CopyProblem

    problem = CopyProblem.parse("copy mb2ic8ih7 nchw->nhwc dt:fp32->fp16 pad:c=0:8")
    x = data(problem, Kind.NORMAL, "cpu")["x"]
    assert whole_reference(problem, {"x": x}).y64.shape == (2, 16, 7, 7)
    assert problem.dtype is DType.FP16
