"""Rewrites as copies around a convolution: computed one after the other they give what the convolution gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.kinds.text import parse
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.data import operands as data
from convwright.measuring.checking.of_kind import whole_reference
from convwright.measuring.checking.reference import Reference
from convwright.rewrites.as_copies import as_copies
from problem_space import problems
from rewrites.around import by_copies, check_copies, offered, wrapped

WINDOWS = {"space-to-depth": "kh3ph1sh2", "subsample": "kh1sh2"}
COPYING = ("relayout", "pad-c", "space-to-depth", "subsample")


def candidates(problem: ConvProblem) -> list[Candidate]:
    return [wrapped(problem, (step,)) for step in offered(problem) if step[0] in COPYING]


@settings(max_examples=40)
@given(problems(least_images=1))
def test_the_parts_give_the_whole(problem: ConvProblem) -> None:
    if problem.dtype.narrow or len(problem.outputs) > 1:
        return
    check_copies(problem, [step for step in offered(problem) if step[0] in ("relayout", "pad-c")])


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("name", COPYING)
def test_each_direction_has_its_copies(name: str, direction: Direction) -> None:
    problem = ConvProblem.parse(f"mb2ic3ih7oc6{WINDOWS.get(name, 'kh3ph1')} dt:fp64 dir:{direction}")
    (candidate, *_) = [each for each in candidates(problem) if each.algorithm == name]
    copies = as_copies(candidate)
    assert copies is not None
    assert copies.inner is candidate.inner
    direct = {"space-to-depth": {Role.Y, Role.DY}, "subsample": {Role.Y, Role.DY, Role.W, Role.DW}}.get(name, set())
    assert {*copies.before} == {*direction.operands} - direct
    assert bool(copies.after) is (direction.output not in direct)
    given = data(problem, Kind.NORMAL, "cpu")
    assert by_copies(copies, given).allclose(Reference.of(problem, given).y64)


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
    for unfit in ("mb2ic3ih9oc8kh3sh2 flip:1", "g2mb2ic4id9oc4kd3sd2"):
        problem = ConvProblem.parse(unfit)
        (folded,) = [each for each in candidates(problem) if each.algorithm == "space-to-depth"]
        assert as_copies(folded) is None
    assert as_copies(wrapped(problem, ())) is None


@pytest.mark.parametrize(
    ("text", "name", "keys"),
    [
        # Half of the pixels lie at even distances, and a gradient has zeros between them.
        ("mb2ic8ih8oc4kh1sh2", "subsample", ["copy mb2ic8ih4iw4 512/64/16/2->nchw dt:fp32"]),
        (
            "mb2ic8ih8oc4kh1sh2 dir:backward_data",
            "subsample",
            ["copy 2x8x4x1x4x1 nchw->nchw dt:fp32 pad:3=0:1,5=0:1"],
        ),
        # Whole blocks are turned in one copy; what has none is filled up, or cut, by another.
        ("mb2ic3ih8oc4kh2sh2", "space-to-depth", ["copy 2x2x2x3x4x4 192/8/1/64/16/2->nchw dt:fp32"]),
        (
            "ic3ih7iw8oc4kh3ph1sh2",
            "space-to-depth",
            ["copy mb1ic3ih7iw8 nchw->nchw dt:fp32 pad:h=0:1", "copy mb2ic2id3ih4iw4 8/1/64/16/2->nchw dt:fp32"],
        ),
        (
            "g2mb2ic6ih5oc6kh3",
            "pad-c",
            [
                "copy mb2ic2id3ih5iw5 nchw->nchw dt:fp32 pad:d=0:1",
                "copy mb2ic2id4ih3iw3 nchw->nchw dt:fp32 slice:d=0:3",
            ],
        ),
    ],
)
def test_what_is_copied(text: str, name: str, keys: list[str]) -> None:
    problem = ConvProblem.parse(text)
    candidate = next(each for each in candidates(problem) if each.algorithm == name)
    copies = as_copies(candidate)
    assert copies is not None
    found = [copy.key for copy in copies.problems]
    assert found == keys
    assert all(parse(key).key == key for key in found)


def test_a_cast_is_no_rewrite_but_a_copy() -> None:
    from convwright.core.kinds.copy import CopyProblem

    problem = CopyProblem.parse("copy mb2ic8ih7 nchw->nhwc dt:fp32->fp16 pad:c=0:8")
    x = data(problem, Kind.NORMAL, "cpu")["x"]
    assert whole_reference(problem, {"x": x}).y64.shape == (2, 16, 7, 7)
    assert problem.dtype is DType.FP16
