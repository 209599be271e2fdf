"""A kernel's configuration, as a candidate's id shows it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

from convwright.core.candidate import Candidate, Config

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Configuration:
    """Base of dataclasses of integers. None means that the compiler decides."""

    __slots__ = ()

    @property
    def config(self: DataclassInstance) -> Config:
        """The form in a candidate's id."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return tuple((name, value) for name, value in named if value is not None)

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        values: dict[str, Any] = {name: int(value) for name, value in candidate.config}
        return cls(**values)
