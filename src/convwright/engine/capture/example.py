"""A model with the arguments of one call: a tensor, a tuple or a dict of keyword arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from convwright.engine.capture.trails import tensors_in
from convwright.errors import BadInput

Model = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A model and the arguments of one call of it.

    >>> import torch
    >>> Subject.of(nn.ReLU(), torch.tensor([-1.0, 2.0]))()
    tensor([0., 2.])
    """

    model: Model
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, model: Model, example: object) -> Subject:
        """``example`` is a tensor, a tuple of arguments, or a dict of keyword arguments."""
        if not callable(model):
            raise BadInput(f"`model` must be an nn.Module or another callable, got {type(model).__name__}")
        if isinstance(model, nn.Module):
            check_complete(model)
        if isinstance(example, Tensor):
            return cls(model, (example,), {})
        if type(example) is tuple:
            return cls(model, example, {})
        if isinstance(example, dict) and all(isinstance(name, str) for name in example):
            return cls(model, (), dict(example))
        raise BadInput(
            "`example` must be a tensor, a tuple of arguments or a dict of keyword arguments, "
            f"got {type(example).__name__}"
        )

    @classmethod
    def made(cls, made: object, *, by: str) -> Subject:
        """The subject from ``(model, example)``, which the function ``by`` must have returned."""
        if not isinstance(made, tuple) or len(made) != 2:
            given = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
            raise BadInput(f"{by!r} must return (model, example), got {given}")
        return cls.of(*made)

    def __call__(self) -> Any:
        return self.model(*self.args, **self.kwargs)

    @property
    def module(self) -> nn.Module | None:
        """The model if it is an ``nn.Module``, else None."""
        return self.model if isinstance(self.model, nn.Module) else None

    @property
    def example(self) -> tuple[Any, ...] | dict[str, Any]:
        """The arguments, in a form that ``Subject.of`` accepts."""
        return self.kwargs or self.args

    def given(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return list(tensors_in((self.args, self.kwargs)))

    def parameters(self) -> list[nn.Parameter]:
        return [] if self.module is None else list(self.module.parameters())


def check_complete(model: nn.Module) -> None:
    """Refuse a model with lazy parameters."""
    lazy = next((name for name, parameter in model.named_parameters() if is_lazy(parameter)), None)
    if lazy is not None:
        raise BadInput(f"`{lazy}` of the model gets its shape at the first call: call the model once before")
