"""The standard for an engine's outputs in float64: the model's own error in the requested precision, or a given
error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from convwright import flags, torch_api
from convwright.core.dtype import DType
from convwright.engine.network import Network
from convwright.engine.precision.checking import objection, relative_l2
from convwright.engine.precision.lowering import Lowering, Precision, lowered
from convwright.engine.precision.roundings import rounded_outputs
from convwright.engine.reference import reference
from convwright.errors import Refused
from convwright.tensors import torch_dtype

_Run = Callable[..., Any]


class Standard(Protocol):
    """``objection`` says why an engine must not replace the model; ``remedy`` says what would allow a larger error."""

    remedy: str

    def objection(self, engine: _Run) -> str | None: ...


class OwnError:
    """At most a factor times the model's own error. In a 16-bit type that is PyTorch's error in this type; if PyTorch
    cannot compute it, or gives NaN or infinity, the error of float64 with each result rounded."""

    remedy = "a policy with a larger `max_error` allows more"

    def __init__(
        self, model: nn.Module, inputs: tuple[Any, ...], network: Network, precision: Precision | None, max_error: float
    ) -> None:
        self._inputs, self._max_error = inputs, max_error
        self._dtype = None if precision is None else precision.dtype
        tensors = torch_api.flatten(inputs)[0]
        self._exact = reference(network, tensors)
        if self._dtype is not None:
            self._own = _own_in(self._dtype, model, inputs, network, tensors)
        elif precision is Precision.TF32:
            with flags.tf32(True), flags.matmul_tf32(True):
                self._own = _outputs(model, inputs)
        else:
            self._own = _outputs(model, inputs)

    def objection(self, engine: _Run) -> str | None:
        made = _outputs(engine, self._inputs)
        if self._dtype is not None:
            for place, (each, right) in enumerate(zip(made, self._exact, strict=True)):
                if bool((right.isfinite() & ~each.isfinite()).any()):
                    raise Refused(
                        f"output {place} is infinite or NaN in {self._dtype}, and not in the model; "
                        'precision="mixed" uses 16 bits only for the layers that allow it'
                    )
        return objection(made, self._own, self._exact, self._max_error)


class GivenError:
    """At most a given relative L2 error, for each output and each sample."""

    remedy = "a larger `max_output_error` allows more"

    def __init__(self, network: Network, samples: Sequence[tuple[Any, ...]], max_error: float) -> None:
        self._max_error = max_error
        self._cases = [(inputs, reference(network, torch_api.flatten(inputs)[0])) for inputs in samples]

    def objection(self, engine: _Run) -> str | None:
        for inputs, exact in self._cases:
            for place, error in enumerate(relative_l2(_outputs(engine, inputs), exact)):
                if not error <= self._max_error:
                    return f"output {place} has a relative L2 error of {error:.2g}; allowed is {self._max_error:.2g}"
        return None


def _outputs(run: _Run, inputs: tuple[Any, ...]) -> list[Tensor]:
    with torch.no_grad():
        return torch_api.flatten(run(*inputs))[0]


def _own_in(
    dtype: DType, model: nn.Module, inputs: tuple[Any, ...], network: Network, tensors: Sequence[Tensor]
) -> list[Tensor]:
    """The model's outputs in a type."""
    stored = torch_dtype(dtype)
    given, nesting = torch_api.flatten(inputs)
    cast = torch_api.unflatten([each.to(stored) if each.is_floating_point() else each for each in given], nesting)
    try:
        own = _outputs(deepcopy(model).to(stored), cast)
        if all(bool(each.isfinite().all()) for each in own):
            return own
    except Exception:  # a model can raise anything in another type
        pass
    dtypes = Lowering.uniform(network.graph, Precision(dtype)).dtypes
    return [each.to(stored) for each in rounded_outputs(lowered(network, dtypes).network, tensors)]
