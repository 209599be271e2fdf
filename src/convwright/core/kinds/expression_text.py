"""Text → expression. A small recursive parser over the closed table of operators; nothing is evaluated."""

from __future__ import annotations

import re
from reprlib import repr as brief

from convwright.core.dtype import DType
from convwright.core.kinds.expression import Apply, Cast, Constant, Expression, Operand
from convwright.core.kinds.operators import BETWEEN, OPERATORS, Binds
from convwright.errors import BadInput

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|(?P<name>[a-z_][a-z0-9_]*)|(?P<sign><=|>=|==|!=|[-+*/<>(),]))"
)
# Far more than any layer of a network needs, and safe for Python's stack.
_MOST_CHARACTERS, _MOST_NESTED, _MOST_OPERATORS = 4096, 64, 200


def parse(text: str) -> Expression:
    """Read an expression.

    >>> parse("relu(a * scale + 0.5)")  # doctest: +ELLIPSIS
    Apply(operator='relu', arguments=(Apply(operator='add', arguments=...
    >>> str(parse("relu((a*scale)+.5)"))
    'relu(a * scale + 0.5)'
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        if len(text) > _MOST_CHARACTERS:
            raise BadInput(f"an expression has at most {_MOST_CHARACTERS:,} characters, got {len(text):,}")
        self._text, self._at, self._depth, self._operators = text, 0, 0, 0
        self._kind, self._token = "", ""
        self._next()

    def read(self) -> Expression:
        expression = self._comparison()
        if self._token:
            raise self._wrong("an operator or the end")
        return expression

    def _next(self) -> None:
        rest = self._text[self._at :]
        if not rest.strip():
            self._kind, self._token = "end", ""
            return
        found = _TOKEN.match(rest)
        if found is None:
            raise BadInput(f"{brief(rest.strip()[:1])} in {brief(self._text)} is no part of an expression")
        self._at += found.end()
        self._kind, self._token = str(found.lastgroup), found[str(found.lastgroup)]

    def _wrong(self, wanted: str) -> BadInput:
        got = repr(self._token) if self._token else "nothing"
        return BadInput(f"{wanted} was expected in the expression {brief(self._text)}, got {got}")

    def _expect(self, sign: str) -> None:
        if self._token != sign:
            raise self._wrong(repr(sign))
        self._next()

    def _comparison(self) -> Expression:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise BadInput(f"an expression nests at most {_MOST_NESTED} deep")
        first = self._chain(Binds.SUM)
        if (operator := self._between(Binds.COMPARISON)) is not None:
            first = self._apply(operator, first, self._chain(Binds.SUM))
        self._depth -= 1
        return first

    def _chain(self, binds: Binds) -> Expression:
        """Sums of products of signed values, left-associative."""
        value = self._chain(Binds.PRODUCT) if binds is Binds.SUM else self._signed()
        while (operator := self._between(binds)) is not None:
            value = self._apply(operator, value, self._chain(Binds.PRODUCT) if binds is Binds.SUM else self._signed())
        return value

    def _between(self, binds: Binds) -> str | None:
        operator = BETWEEN.get(self._token) if self._kind == "sign" else None
        if operator is None or operator.binds is not binds:
            return None
        self._next()
        return operator.name

    def _signed(self) -> Expression:
        signs = 0
        while self._token == "-":
            signs += 1
            self._next()
        value = self._value()
        if signs and isinstance(value, Constant):
            value, signs = Constant(-value.value), signs - 1
        for _ in range(signs):
            value = self._apply("neg", value)
        return value

    def _value(self) -> Expression:
        kind, token = self._kind, self._token
        if kind == "number":
            self._next()
            return Constant(float(token))
        if kind == "name":
            self._next()
            return self._call(token) if self._token == "(" else _operand(token)
        if token != "(":
            raise self._wrong("an operand, a number or a parenthesis")
        self._next()
        value = self._comparison()
        self._expect(")")
        return value

    def _call(self, name: str) -> Expression:
        self._next()
        arguments = [self._comparison()]
        while self._token == ",":
            self._next()
            arguments.append(self._comparison())
        self._expect(")")
        if name in list(DType):
            if len(arguments) != 1:
                raise BadInput(f"{name} takes 1 argument, got {len(arguments)}")
            return Cast(DType(name), arguments[0])
        return self._apply(name, *arguments)

    def _apply(self, operator: str, *arguments: Expression) -> Expression:
        self._operators += 1
        if self._operators > _MOST_OPERATORS:
            raise BadInput(f"an expression has at most {_MOST_OPERATORS} operators")
        return Apply(operator, arguments)


def _operand(name: str) -> Operand:
    if name in OPERATORS or name in list(DType):
        raise BadInput(f"{name} is a function: an operand needs another name")
    return Operand(name)
