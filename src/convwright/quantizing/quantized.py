"""The result of quantizing: the model, and the loss of accuracy of each layer and of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log10
from typing import Any

from torch import nn

from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem
from convwright.core.record import as_record
from convwright.measuring.paired import Paired
from convwright.notebook import html
from convwright.quantizing.calibration import Ranges
from convwright.wording.conditions_text import conditions_now


@dataclass(frozen=True, slots=True)
class QuantizedLayer:
    """One convolution of a model, in int8, or in its own precision for the reason in ``kept``.

    ``problem`` is its problem in its own precision, on the first sample that reaches it. ``merged`` are the following
    modules that it includes. ``largest`` is the largest magnitude of its inputs on the samples; inputs above ``limit``
    are clipped. ``error`` is the relative L2 error of its result in int8, over all samples and for the inputs of the
    original model. ``candidate`` is the id of the candidate that computes it. None means unknown.
    """

    name: str
    kept: str | None = None
    problem: ConvProblem | None = None
    merged: tuple[str, ...] = ()
    largest: float | None = None
    limit: float | None = None
    error: float | None = None
    candidate: str | None = None

    @property
    def snr_db(self) -> float | None:
        """The signal of the result relative to the noise that int8 adds, in decibels; infinite without noise."""
        return _decibels(self.error)

    def to_json(self) -> dict[str, Any]:
        """The layer's entry in the result."""
        data = {
            "name": self.name,
            "int8": self.kept is None,
            "kept": self.kept,
            "problem": None if self.problem is None else self.problem.key,
            "merged": list(self.merged),
            "largest": self.largest,
            "limit": self.limit,
            "error": self.error,
            "snr_db": self.snr_db,
            "candidate": self.candidate,
        }
        return {name: as_record(value, infinite=str) for name, value in data.items()}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Quantized:
    """What ``quantize`` gives back: the ``model`` in int8, a copy in evaluation mode, and what became of each layer.

    ``error`` compares the outputs on the samples with the original model's, as a relative L2 error over all samples.
    With several outputs it is the largest error; without an output in floating point it is None. ``times`` holds the
    times of a run on the first sample, of the original model and of the model in int8. It is None if no layer is in
    int8, or if the runs could not be timed; ``untimed`` then says why.
    """

    model: nn.Module
    device: DeviceFacts
    ranges: Ranges
    max_layer_error: float
    samples: int
    layers: tuple[QuantizedLayer, ...]
    error: float | None
    seconds: float
    times: Paired | None = None
    untimed: str | None = None

    @property
    def in_int8(self) -> tuple[QuantizedLayer, ...]:
        """The layers that compute in int8."""
        return tuple(layer for layer in self.layers if layer.kept is None)

    @property
    def snr_db(self) -> float | None:
        """The signal of the model's outputs relative to the noise that int8 adds, in decibels."""
        return _decibels(self.error)

    def __repr__(self) -> str:
        of = f"{len(self.in_int8)} of {len(self.layers)}"
        return f"<Quantized: {of} convolutions in int8 on {self.device.label}>"

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> dict[str, Any]:
        """Everything but the model, as data."""
        data = {
            "device": self.device.label,
            "conditions": dict(conditions_now(self.device)),
            "ranges": self.ranges,
            "max_layer_error": self.max_layer_error,
            "samples": self.samples,
            "error": self.error,
            "snr_db": self.snr_db,
            "seconds": self.seconds,
            "untimed": self.untimed,
        }
        record = {name: as_record(value, infinite=str) for name, value in data.items()}
        times = None if self.times is None else self.times.to_json()
        return record | {"times": times, "layers": [layer.to_json() for layer in self.layers]}


def _decibels(error: float | None) -> float | None:
    if error is None:
        return None
    return -20 * log10(error) if error else inf
