"""Pointwise problems: what they check, count and print."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import absolute_objection
from convwright.core.finding import KindError
from convwright.core.kinds.expression_text import parse as expression
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from kind_space import pointwise_problems, row_problems


@settings(max_examples=50)
@given(pointwise_problems())
def test_its_text_is_read_back(problem: PointwiseProblem) -> None:
    again = parse(problem.key)
    assert again == problem
    assert hash(again) == hash(problem)
    assert again.key == problem.key


@settings(max_examples=40)
@given(row_problems())
def test_the_text_of_rows_is_read_back(problem: PointwiseProblem) -> None:
    again = parse(problem.key)
    assert again == problem
    assert again.key == problem.key


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ('pointwise "a / sum(a)" mb4ic8', 'pointwise "a / sum(a)" mb4ic8 dt:fp32 tag:nchw row:c'),
        ('pointwise "max(a)" 4x8 row:nc y:1', 'pointwise "max(a)" mb4ic8 dt:fp32 tag:nchw row:nc y:1'),
        (
            'pointwise "mean(a)" mb2ic3ih5 row:wh y:nc tag:nhwc',
            'pointwise "mean(a)" mb2ic3ih5iw5 dt:fp32 tag:nchw row:hw y:nc a:nhwc',
        ),
        (
            'pointwise "a - mean(a)" 2x3x4x5x6x7 row:5,3',
            'pointwise "a - mean(a)" 2x3x4x5x6x7 dt:fp32 tag:nchw row:3,5',
        ),
        (
            'pointwise "a - mean(a)" ic8ih4 groups:2 row:hc',
            'pointwise "a - mean(a)" mb1ic8ih4iw4 dt:fp32 tag:nchw row:ch groups:2',
        ),
        ('pointwise "relu(a+b)" mb32ic64ih56', 'pointwise "relu(a + b)" mb32ic64ih56iw56 dt:fp32 tag:nchw'),
        (
            'pointwise "a*s + b" ic8ih4iw5 b:hw,nchw s:1x8x1x1,fp32 dt:float16 tag:nhwc',
            'pointwise "a * s + b" mb1ic8ih4iw5 dt:fp16 tag:nhwc s:c,fp32 b:hw',
        ),
        ('pointwise "a * s" 5 a:/2 s:1', 'pointwise "a * s" 5 dt:fp32 tag:nchw a:/2 s:1'),
        (
            'pointwise "a * s" 2x3x4x5x6x7 s:1x1x4x1x1x1,nhwc@4',
            'pointwise "a * s" 2x3x4x5x6x7 dt:fp32 tag:nchw s:1x1x4x1x1x1,nchw@4',
        ),
    ],
)
def test_what_is_left_out_is_inferred(text: str, full: str) -> None:
    assert parse(text).key == full


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pointwise relu(a) mb1ic8", 'is written like pointwise "relu(a + b)" mb32ic64ih56, got '),
        ('pointwise "a" mb1', "'ic' is missing in 'mb1'"),
        ('pointwise "a" mb1ic8kh3', "'kh' in 'mb1ic8kh3' is no size; the sizes are mb, ic, id, ih, iw"),
        ('pointwise "a" ic8 b:c', "options are dt, tag and its operands a, got 'b'"),
        ('pointwise "a" ic8 a:q', "`a` takes some of nc, 1, sizes such as 1x64x1x1"),
        ('pointwise "a * s" 3x4 s:1x4@4', "a dtype, a layout or strides, got '1x4@4'"),
        ('pointwise "a" ic8 a:1x4', "must have the sizes of the output, (1, 8), or 1 in their place, got (1, 4)"),
        ('pointwise "a" ic8 a:int8', "`a` must be stored in fp64, fp32, fp16, bf16, got int8"),
        ('pointwise "a" ic8 dt:int8', "must be stored in fp64, fp32, fp16, bf16, got int8"),
        ('pointwise "a" mb2ic8 tag:0/1', "the output must not overlap itself"),
        ('pointwise "y + 1" ic8', "cannot be called 'y'"),
        ('pointwise "tag + 1" ic8', "cannot be called 'tag'"),
        ('pointwise "1 + 2" ic8', "must be a number that depends on operands, got 1 + 2"),
        ('pointwise "a < 1" ic8', "must be a number that depends on operands, got a < 1"),
        ('pointwise "sum(s)" mb2ic8 s:n', "sum(s) must read an operand that is as long as the row, 8"),
        ('pointwise "sum(h) + a" ic8ih4 row:hw h:h', "sum(h) must read an operand that is as long as the row, 4x4"),
        ('pointwise "sum(max(a))" ic8', "sum(max(a)) must read an operand that is as long as the row, 8"),
        ('pointwise "a" ic8 row:c', "`row` names the dimensions that sum, mean and max reduce, got a row for a"),
        ('pointwise "sum(a)" ic8 row:q', "`row` takes some of n, c, got 'q'"),
        ('pointwise "sum(a)" ic8 row:cc', "`row` must be different dimensions of (1, 8), got (1, 1)"),
        ('pointwise "sum(a) + a" ic8 y:n', "sum(a) + a differs inside a row, so `y` must be as long as the row"),
        ('pointwise "sum(a)" ic8ih3 row:hw y:ch', "the whole row or one element of it, got (1, 8, 3, 1)"),
        ('pointwise "sum(a)" mb2ic0', "a row must have at least one element, got (2, 0) with the row (1,)"),
        ('pointwise "a" ic8 y:n', "options are dt, tag and its operands a, got 'y'"),
        ('pointwise "sum(a) - a" ic8 groups:3', "`groups` must divide the first dimension of a row, 8, got 3"),
        ('pointwise "sum(a) - a" ic8 groups:0', "`groups` must be at least 1, and 1 without a row, got 0"),
        ('pointwise "sum(a) - a" ic8 groups:c', "`groups` takes a whole number, got 'c'"),
        ('pointwise "sum(a)" ic8 groups:2 y:n', "differs inside a row, so `y` must be as long"),
        ('pointwise "a" ic8 groups:2', "options are dt, tag and its operands a, got 'groups'"),
        ('pointwise "sum(a) < a" ic8', "must be a number that depends on operands, got sum(a) < a"),
        ('pointwise "row + sum(row)" ic8', "cannot be called 'row'"),
        ("reduce mb1ic8", "no kind of problem is called 'reduce'; there are conv, "),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse(text)
    assert words in str(raised.value)


def test_bytes_count_what_is_broadcast_once() -> None:
    problem = PointwiseProblem.parse('pointwise "a * s" mb2ic4ih8 dt:fp16 s:c,fp32')
    assert problem.bytes == 2 * (2 * 4 * 64) * 2 + 4 * 4
    assert problem.flops == 2 * 4 * 64
    assert problem.dtype is DType.FP16
    assert PointwiseProblem.parse('pointwise "a * s" mb2ic4ih8 dt:fp16 s:c,fp64').dtype is DType.FP64


def test_an_expression_that_reduces_needs_a_row() -> None:
    spec = TensorSpec((2, 3), DType.FP32)
    with pytest.raises(BadInput, match=r"that sum, mean and max reduce, got sum\(a\) without a row"):
        PointwiseProblem(expression("sum(a)"), (("a", spec),), spec)


def test_what_is_counted_of_rows_is_counted_before_they_are_reduced() -> None:
    problem = PointwiseProblem.parse('pointwise "mean(a * a)" mb2ic4ih8 dt:fp16 row:hw y:nc')
    assert problem.shape == (2, 4, 8, 8)
    assert problem.y.shape == (2, 4, 1, 1)
    assert (problem.row_size, problem.is_reduced, problem.reduction) == (64, True, 64)
    assert problem.flops == 2 * (2 * 4 * 64)
    assert problem.bytes == 2 * (2 * 4 * 64 + 2 * 4)
    assert not PointwiseProblem.parse('pointwise "mean(a)" mb2ic1').is_reduced


def test_operands_are_in_the_order_of_the_expression() -> None:
    spec = TensorSpec((2, 3), DType.FP32)
    a_first = PointwiseProblem(expression("a - b"), (("a", spec), ("b", spec)), spec)
    assert a_first == PointwiseProblem(expression("a - b"), (("b", spec), ("a", spec)), spec)
    assert [*a_first.operands] == ["a", "b", "y"]


def test_an_error_beyond_its_bound_is_refused() -> None:
    problem = PointwiseProblem.parse('pointwise "a + b" mb2ic4ih8')
    small, large = KindError("normal", 1e-8, 1.0), KindError("normal", 1e-8, 1.5)
    assert absolute_objection(problem, Arithmetic.FP32, [small], Policy()) is None
    assert "at most 1" in str(absolute_objection(problem, Arithmetic.FP32, [large], Policy()))
