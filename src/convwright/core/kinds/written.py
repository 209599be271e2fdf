"""The base class of problems with one output and a text form in a module of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

from convwright.core.once import once
from convwright.core.record import Record
from convwright.core.tensor_spec import TensorSpec


class TextForm(Protocol):
    """A module that writes and reads the text form of a kind of problem."""

    def full(self, problem: Any, /) -> str: ...

    def parse(self, text: str, make: Any, /) -> Any: ...


class WrittenProblem(Record):
    """A problem that prints as its ``key``, written and read by ``text_form``. Its output is ``y``."""

    _PROPERTIES: ClassVar = ("kind", "key")
    text_form: ClassVar[TextForm]
    y: TensorSpec

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form, which its module's docstring describes."""
        problem: Self = cls.text_form.parse(text, cls)
        return problem

    def __str__(self) -> str:
        return self.key

    @once
    def key(self) -> str:
        return self.text_form.full(self)

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        """All operands by role, the output last."""
        raise NotImplementedError

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("y",)

    @property
    def output(self) -> TensorSpec:
        return self.y

    @property
    def bytes(self) -> int:
        return sum(spec.nbytes for spec in self.operands.values())
