"""Generated kernels in Triton's interpreter, held against float64. Its own process runs this."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

pytest.importorskip("triton")

from backends.bound_right import objection_to
from convwright.backends.torch_native.pointwise import TorchPointwise
from convwright.backends.triton.elementwise.backend import TritonElementwise
from convwright.backends.triton.elementwise.tile import Tile
from convwright.backends.triton.elementwise.walk import Walk
from convwright.core.binding import bind
from convwright.core.candidate import Candidate
from convwright.core.dtype import DType
from convwright.core.error_rule import error_objection
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.operators import OPERATORS
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.measuring.checking.data import ERROR_KINDS, Kind
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning.trials.trial import Bench, Trial
from kind_space import copy_problems, pointwise_problems, row_problems

BACKEND, CPU = TritonElementwise(), device_facts("cpu")
STORED = (DType.FP32, DType.FP16, DType.BF16)
# A small tile has a few elements, and each program takes the interpreter about a millisecond.
MOST_ELEMENTS = 300


def candidates(problem: Problem) -> list[Candidate]:
    return [each for each in BACKEND.candidates(problem, CPU, Policy()) if isinstance(each, Candidate)]


def small(candidate: Candidate) -> list[Candidate]:
    """The same with tiles so small that an output of a test has several, cut off at its ends."""
    walk = Walk.of(candidate.problem)
    if walk.row:
        columns = Tile.of(candidate).columns
        tiles = [Tile(1, columns, 1), Tile(4, columns, 1)]
        tiles += [Tile(2, 4, 1), Tile(2, 4, 1, 2, len(walk.levels) + 1)] if walk.row_size > 4 else []
        return [replace(candidate, config=tile.config, workspace_bytes=tile.workspace_bytes(walk)) for tile in tiles]
    shapes = [Tile(0, 8, 1)] + ([Tile(4, 2, 1)] if len(walk.dims) > 1 else [])
    return [replace(candidate, config=tile.config) for tile in shapes]


def check(problem: PointwiseProblem | CopyProblem, kinds: tuple[Kind, ...]) -> None:
    if not problem.y.numel:
        return
    listed = candidates(problem)
    if not listed:
        assert "bf16" in problem.key
    for candidate in [*listed[:1], *(each for first in listed[:1] for each in small(first))]:
        said = objection_to(BACKEND.build(candidate, CPU), kinds)
        # What overflows inside has no right answer in fp32.
        assert said is None or ("wrong infinities" in said and problem.kind == "pointwise"), (candidate.id, said)


@settings(max_examples=8)
@given(pointwise_problems(STORED).filter(lambda each: "fp64(" not in each.key and each.y.numel <= MOST_ELEMENTS))
def test_expressions(problem: PointwiseProblem) -> None:
    check(problem, (Kind.NORMAL,))


@settings(max_examples=15)
@given(row_problems(STORED).filter(lambda problem: "fp64(" not in problem.key))
def test_expressions_of_rows(problem: PointwiseProblem) -> None:
    check(problem, (Kind.NORMAL,))


SOFTMAX = "exp(a - max(a)) / sum(exp(a - max(a)))"
LAYER_NORM = "(a - mean(a)) * rsqrt(mean((a - mean(a)) * (a - mean(a))) + 1e-5) * g + b"


@pytest.mark.first_cases(5)
@pytest.mark.parametrize(
    "text",
    [
        f'pointwise "{SOFTMAX}" mb5ic7',
        f'pointwise "{SOFTMAX}" mb1ic16ih3 row:c dt:fp16',
        f'pointwise "{SOFTMAX}" mb2ic5ih2 row:c tag:nhwc',
        f'pointwise "{LAYER_NORM}" mb5ic24 g:c b:c dt:fp16',
        f'pointwise "{LAYER_NORM}" 2x3x4x5 row:hw g:nc,fp32 b:c',
        f'pointwise "{LAYER_NORM}" 2x3x4x5 row:ch g:c b:w a:nhwc',
        'pointwise "a * rsqrt(mean(a * a) + 1e-6) * g" mb3ic33 g:c',
        'pointwise "a / maximum(sqrt(sum(a * a)), 1e-12)" mb3ic9ih2 row:c',
        'pointwise "mean(a)" mb2ic3ih5 row:hw y:nc',
        'pointwise "sum(a * b)" 40 y:1 b:/2',
        'pointwise "max(a) + s" mb2ic3ih4 row:cw y:nh s:1 tag:nhwc',
        'pointwise "max(-abs(a))" mb3ic5 y:n',
        'pointwise "sum(a) + a" 3x1',
        f'pointwise "relu({LAYER_NORM})" mb2ic6ih3 row:chw groups:2 g:c b:c',
        f'pointwise "silu({LAYER_NORM})" mb1ic6ih3 row:chw groups:3 g:c b:c tag:nhwc dt:fp16',
        f'pointwise "{LAYER_NORM}" mb2ic8iw3 row:cw groups:4 g:c b:c',
    ],
)
def test_rows_of_every_kind_of_data(text: str) -> None:
    listed = candidates(parse(text))
    assert objection_to(BACKEND.build(listed[0], CPU), (*ERROR_KINDS, Kind.INTEGERS)) is None, listed[0].id
    for candidate in small(listed[0]):
        assert objection_to(BACKEND.build(candidate, CPU), (Kind.POSITIVE, Kind.INFINITY, Kind.NAN)) is None, (
            candidate.id
        )
    for candidate in listed[1:3]:
        assert objection_to(BACKEND.build(candidate, CPU), [Kind.NORMAL]) is None, candidate.id


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    "text",
    [
        f'pointwise "relu({LAYER_NORM})" mb1ic8ih96 row:chw groups:2 g:c b:c',
        f'pointwise "{LAYER_NORM}" mb1ic4ih97 row:chw g:c b:c tag:nhwc dt:fp16',
        'pointwise "mean(a * a) + s" mb2ic3ih182 row:hw y:nc s:n',
    ],
)
def test_long_rows(text: str) -> None:
    listed = candidates(parse(text))
    assert any(Tile.of(each).parts > 1 for each in listed)
    for candidate in listed:
        assert objection_to(BACKEND.build(candidate, CPU), [Kind.POSITIVE]) is None, candidate.id


@settings(max_examples=10)
@given(copy_problems(STORED).filter(lambda each: each.y.numel <= MOST_ELEMENTS))
def test_copies(problem: CopyProblem) -> None:
    check(problem, (Kind.NORMAL, Kind.NAN))


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3", "fp8_e5m2", "fp64"])
def test_copies_of_what_is_not_computed_with(dtype: str) -> None:
    problem = parse(f"copy mb2ic6ih5 nchw->nhwc dt:{dtype} pad:h=1:2 slice:c=2:5")
    assert isinstance(problem, CopyProblem)
    check(problem, (Kind.NORMAL, Kind.POSITIVE))


TREES = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "neg": "-a", "maximum": "maximum(a, b)",
    "minimum": "minimum(a, b)", "where": "where(a < b, a, 0.5)",
    **{each: f"where(a {OPERATORS[each].symbol} b, a, b)" for each in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{each.name: f"{each.name}(a)" for each in OPERATORS.values() if each.arity == 1 and each.name != "neg"},
}  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16])
def test_every_operator_on_every_kind_of_data(operator: str, dtype: DType) -> None:
    problem = parse(f'pointwise "{TREES[operator]}" mb3ic4ih5 dt:{dtype}')
    kinds = [kind for kind in ERROR_KINDS if kind is not Kind.INFINITY or operator not in ("gelu", "silu")]
    for candidate in candidates(problem)[:1]:
        assert objection_to(BACKEND.build(candidate, CPU), [*kinds, Kind.INTEGERS]) is None


@pytest.mark.parametrize("operator", [each for each in OPERATORS if not OPERATORS[each].compares])
def test_in_fp32_every_operator_errs_no_more_than_pytorch(operator: str) -> None:
    problem = parse(f'pointwise "{TREES[operator]}" mb4ic32ih8')
    own, *_ = TorchPointwise().candidates(problem, CPU, Policy())  # type: ignore[arg-type]
    assert isinstance(own, Candidate)
    bench, errors = Bench(problem, CPU, Mode.FULL, seed=0), ErrorCheck(problem, "cpu").errors
    base = errors(Trial(own, bench).run)
    ours = BACKEND.build(candidates(problem)[0], CPU)
    found = errors(lambda given: bind(ours, given)())
    assert error_objection(problem, found, base, Policy()) is None


@pytest.mark.parametrize(
    "text",
    [
        'pointwise "relu(a * s + b)" mb2ic5ih4 s:c,fp32 b:nc dt:fp16 tag:nhwc',
        'pointwise "a + b" mb2ic5ih7 a:nhwc dt:fp16',
        'pointwise "a + b + c" mb2ic5ih7 a:nhwc c:hw dt:fp32',
        'pointwise "a + s" 3 s:1',
        'pointwise "s + 1" mb2ic5ih4 s:c',
        'pointwise "a * sigmoid(a + b)" id3ih4ic2 b:d',
        'pointwise "a" 2x3x2x3x2x3 a:108/36/12/6/2/1',
        "copy mb2ic3ih7 nchw->nhwc dt:fp32->fp16 pad:c=0:1,h=2:1",
        "copy 2x1x3 pad:c=2:1",
        "copy 4x4 nchw->1/4 slice:n=1:2",
        "copy 1x1 dt:fp16->fp32",
    ],
)
def test_every_tile_that_is_offered(text: str) -> None:
    listed = candidates(parse(text))
    for candidate in listed:
        assert objection_to(BACKEND.build(candidate, CPU), [Kind.NORMAL]) is None, candidate.id
