"""Expressions: what they are made of, and their text."""

from __future__ import annotations

import pytest
from hypothesis import given

from convwright.core.dtype import DType
from convwright.core.kinds.expression import Apply, Cast, Constant, Expression, Operand, evaluate, flops, names, steps
from convwright.core.kinds.expression_text import parse
from convwright.core.kinds.operators import OPERATORS
from convwright.errors import BadInput
from kind_space import expressions

A, B = Operand("a"), Operand("b")


@given(expressions())
def test_text_is_read_back(expression: Expression) -> None:
    assert parse(str(expression)) == expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a - b - 1", Apply("sub", (Apply("sub", (A, B)), Constant(1)))),
        ("a - (b - 1)", Apply("sub", (A, Apply("sub", (B, Constant(1)))))),
        ("a + b * 2", Apply("add", (A, Apply("mul", (B, Constant(2)))))),
        ("-a * b", Apply("mul", (Apply("neg", (A,)), B))),
        ("-(a * b)", Apply("neg", (Apply("mul", (A, B)),))),
        ("a - -1.5e-3", Apply("sub", (A, Constant(-0.0015)))),
        ("where(a + 1 <= b, a, 0)", Apply("where", (Apply("le", (Apply("add", (A, Constant(1))), B)), A, Constant(0)))),
        ("fp16(a)+b", Apply("add", (Cast(DType.FP16, A), B))),
    ],
)
def test_operators_bind_as_everywhere(text: str, expected: Expression) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an operand, a number or a parenthesis was expected in the expression '', got nothing"),
        ("a +", "got nothing"),
        ("a b", "an operator or the end was expected in the expression 'a b', got 'b'"),
        ("(a", "')' was expected"),
        ("a ? b", "'?' in 'a ? b' is no part of an expression"),
        ("A + b", "'A' in 'A + b' is no part"),
        ("swish(a)", "no operator is called 'swish'; there are add, sub, "),
        ("__import__(a)", "no operator is called '__import__'"),
        ("relu(a, b)", "relu takes 1 argument, got 2"),
        ("fp16(a, b)", "fp16 takes 1 argument, got 2"),
        ("fp8_e4m3(a)", "an expression casts to fp64, fp32, fp16, bf16, got fp8_e4m3"),
        ("a < b + (a < b)", "add cannot take a comparison, got a < b"),
        ("where(a, b, 1)", "where needs a comparison as its first argument, got a"),
        ("sum(a, b)", "sum takes 1 argument, got 2"),
        ("mean + a", "mean is a function: an operand needs another name"),
        ("fp16(a < b)", "fp16 cannot take a comparison"),
        ("relu + a", "relu is a function: an operand needs another name"),
        ("1e999 * a", "a constant of an expression must be finite, got inf"),
        ("(" * 65 + "a" + ")" * 65, "nests at most 64 deep"),
        ("+".join("a" * 202), "at most 200 operators"),
        ("-" * 201 + "a", "at most 200 operators"),
        ("a" * 4097, "at most 4,096 characters, got 4,097"),
    ],
)
def test_what_is_no_expression_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse(text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_largest_that_is_read_prints() -> None:
    longest = parse("+".join("a" * 201))
    assert parse(str(longest)) == longest
    assert len({longest}) == 1


def test_equal_parts_are_one_step() -> None:
    expression = parse("(a + b) * sigmoid(a + b)")
    assert [str(step) for step in steps(expression)] == [
        "a", "b", "a + b", "sigmoid(a + b)", "(a + b) * sigmoid(a + b)",
    ]  # fmt: skip
    assert names(expression) == ("a", "b")
    assert flops(expression) == 1 + OPERATORS["sigmoid"].flops + 1
    seen: list[str] = []
    evaluate(expression, lambda step, values: seen.append(str(step)))
    assert seen.count("a + b") == 1
