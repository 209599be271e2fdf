"""The time as a sum of parts, each of which takes its least time times a factor that a neural network learns.

The parts are columns of features: the logarithms, to base 2, of the least times for the products, the operands and so
on. The network says from all features how far a candidate stays below the device's peak rate in each part. It learns
this for all algorithms together, so algorithms that were measured little profit from others. Fitting needs torch,
prediction only numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from convwright.errors import BadInput
from convwright.prediction.boosted_trees import checked_rows
from convwright.prediction.domain import LEAST_DEVIATION

if TYPE_CHECKING:
    from numpy import float32, float64, int32
    from numpy.typing import NDArray

_SHAPES = {
    "centre": "f", "deviation": "f", "first": "fh", "first_bias": "h", "second": "hh", "second_bias": "h",
    "last": "hp", "direct": "fp", "bias": "p",
}  # fmt: skip
# Features are clipped at this many standard deviations from the mean.
_FURTHEST = 4.0
_HIDDEN = 128
# Of 24,459 candidates of an H200 it sees each 100 times in 40 s. Half as often, the median error is 0.5 % larger.
_EPOCHS, _BATCH, _RATE, _DECAY, _DROPPED = 100, 256, 6e-3, 1e-2, 0.1
# Errors of the logarithm count as squares up to about this, and as absolute values above.
_SMALL_ERROR = 0.05
# The logarithm of each part's factor at the beginning of the fit.
_FIRST_FACTOR = -1.5


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRates:
    """``terms`` are columns of features: the physical estimate, then the parts. A row, minus ``centre`` and in units of
    ``deviation``, passes through two layers, ``first`` and ``second``. ``last`` of the result, plus ``direct`` of the
    row, plus ``bias``, are the logarithms of the parts' factors."""

    terms: NDArray[int32]
    centre: NDArray[float32]
    deviation: NDArray[float32]
    first: NDArray[float32]
    first_bias: NDArray[float32]
    second: NDArray[float32]
    second_bias: NDArray[float32]
    last: NDArray[float32]
    direct: NDArray[float32]
    bias: NDArray[float32]

    @property
    def features(self) -> int:
        """How many features a row has."""
        return len(self.centre)

    def predict(self, rows: NDArray[float64]) -> NDArray[float64]:
        """The logarithm of time by physical estimate for each row."""
        import numpy as np

        rows = checked_rows(rows, self.features)
        standard = np.clip((rows - self.centre) / self.deviation, -_FURTHEST, _FURTHEST).astype(np.float32)
        hidden = _bent(_bent(standard @ self.first + self.first_bias) @ self.second + self.second_bias)
        factors = hidden @ self.last + standard @ self.direct + self.bias
        sums: NDArray[float64] = np.logaddexp.reduce(_parts(rows, self.terms) + factors, axis=1)
        return sums

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that ``from_arrays`` takes."""
        return {name: getattr(self, name) for name in ("terms", *_SHAPES)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> LearnedRates:
        import numpy as np

        try:
            read: dict[str, Any] = {name: np.asarray(arrays[name], np.float32) for name in _SHAPES}
            made = cls(np.asarray(arrays["terms"], np.int32), **read)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadInput(f"learned rates need the arrays terms, {', '.join(_SHAPES)}") from None
        sizes = {"f": made.centre.size, "h": made.first_bias.size, "p": made.bias.size}
        fits = (
            all(read[name].shape == tuple(sizes[size] for size in shape) for name, shape in _SHAPES.items())
            and made.terms.shape == (sizes["p"] + 1,)
            and ((made.terms >= 0) & (made.terms < sizes["f"])).all()
            and all(np.isfinite(each).all() for each in read.values())
            and (made.deviation > 0).all()
        )
        if not fits:
            raise BadInput(f"the arrays of learned rates do not fit each other: {sizes['f']} features")
        return made


def fit_learned_rates(rows: NDArray[float64], targets: NDArray[float64], terms: Sequence[int]) -> LearnedRates:
    """Fit factors so that the logarithms of times by physical estimates are ``targets``. The same rows give the same
    factors."""
    import numpy as np
    import torch

    rows, places = checked_rows(rows, np.asarray(rows).shape[-1]), np.array(terms, dtype=np.int32)
    centre, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), LEAST_DEVIATION)
    standard = np.clip((rows - centre) / deviation, -_FURTHEST, _FURTHEST)
    inputs, parts, right = (
        torch.from_numpy(each.astype(np.float32)) for each in (standard, _parts(rows, places), np.asarray(targets))
    )
    width, batch = rows.shape[1], min(_BATCH, len(rows))
    with torch.enable_grad(), torch.inference_mode(False), torch.device("cpu"), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        first, second = torch.nn.Linear(width, _HIDDEN), torch.nn.Linear(_HIDDEN, _HIDDEN)
        last, direct = torch.nn.Linear(_HIDDEN, len(terms) - 1), torch.nn.Linear(width, len(terms) - 1, bias=False)
        bend = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Dropout(_DROPPED))
        with torch.no_grad():
            last.weight *= 0.1
            direct.weight *= 0.0
            last.bias.fill_(_FIRST_FACTOR)
        parameters = [each for layer in (first, second, last, direct) for each in layer.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=_DECAY)
        batches = len(rows) // batch
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=_EPOCHS * batches)
        for _ in range(_EPOCHS):
            for some in torch.randperm(len(rows))[: batches * batch].view(batches, batch):
                shown = inputs[some]
                factors = last(bend(second(bend(first(shown))))) + direct(shown)
                off = torch.logsumexp(parts[some] + factors, dim=1) - right[some]
                optimizer.zero_grad()
                (off**2 + _SMALL_ERROR**2).sqrt().mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
    fitted = (
        first.weight.T, first.bias, second.weight.T, second.bias, last.weight.T, direct.weight.T, last.bias,
    )  # fmt: skip
    return LearnedRates(
        places, centre.astype(np.float32), deviation.astype(np.float32),
        *(np.ascontiguousarray(each.detach().numpy()) for each in fitted),
    )  # fmt: skip


def _parts(rows: NDArray[float64], terms: NDArray[int32]) -> NDArray[float64]:
    """The logarithms of the parts by the physical estimate."""
    parts: NDArray[float64] = log(2) * (rows[:, terms[1:]] - rows[:, terms[:1]])
    return parts


def _bent(rows: NDArray[float32]) -> NDArray[float32]:
    """Each number times its logistic function, written so that nothing overflows."""
    import numpy as np

    bent: NDArray[float32] = rows * (0.5 + 0.5 * np.tanh(0.5 * rows))
    return bent
