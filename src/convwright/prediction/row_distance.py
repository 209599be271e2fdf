"""Learn how much each feature counts in the distance of two rows, so that rows of one kind predict each other."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray
    from torch import Tensor

_STEPS, _RATE = 50, 0.1
# The sample of one step: kinds, and rows of each.
_KINDS, _ROWS, _FEWEST_ROWS = 24, 200, 40
# Errors, in standard deviations, count as squares up to the root of this, and as logarithms above.
_SMALL_ERROR = 0.05
_LEAST_DEVIATION = 0.05
# The increase of the mean error accepted to reduce the sum of scales by one.
_PRICE_OF_SCALE = 3e-4
_LEAST_SCATTER = 1e-3
_CLOSEST = 1e-12  # squared; at distance 0 the root has no slope


class Distance(NamedTuple):
    """``scale`` multiplies standardised features. ``scatter`` is the variance that no feature explains, as a multiple
    of the kernel's. ``linear`` is the weight of the scalar product, relative to the kernel's."""

    scale: NDArray[float64]
    scatter: float
    linear: float


def learned_distance(rows: NDArray[float64], targets: NDArray[float64], kinds: NDArray[Any]) -> Distance:
    """The distance of standardised rows with the least error when each is predicted by others of its kind."""
    import numpy as np
    import torch

    random = np.random.default_rng(0)
    groups = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
    groups = [group for group in groups if len(group) >= _FEWEST_ROWS] or [np.arange(len(rows))]
    features, values = torch.from_numpy(rows), torch.from_numpy(np.ascontiguousarray(targets))
    with torch.enable_grad(), torch.inference_mode(False), torch.device("cpu"):
        log_scale = torch.full((rows.shape[1],), -log(2 * rows.shape[1]) / 2, dtype=torch.float64, requires_grad=True)
        log_scatter = torch.tensor(-3.0, dtype=torch.float64, requires_grad=True)
        log_linear = torch.tensor(-3.0, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([log_scale, log_scatter, log_linear], lr=_RATE)
        for _ in range(_STEPS):
            optimizer.zero_grad()
            error = _PRICE_OF_SCALE * log_scale.exp().sum()
            picked = [random.permutation(groups[each])[:_ROWS] for each in random.permutation(len(groups))[:_KINDS]]
            total = sum(map(len, picked))
            for some in picked:
                scaled = features[some] * log_scale.exp()
                missed = _missed(scaled, values[some], log_scatter.exp() + _LEAST_SCATTER, log_linear.exp())
                error = error + torch.log1p(missed**2 / _SMALL_ERROR).sum() / (2 * total)
            error.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    scale = log_scale.detach().exp().numpy()
    return Distance(scale, exp(float(log_scatter.detach())) + _LEAST_SCATTER, exp(float(log_linear.detach())))


def _missed(rows: Tensor, targets: Tensor, scatter: Tensor, linear: Tensor) -> Tensor:
    """The leave-one-out error of each target, in standard deviations."""
    import torch

    products = rows @ rows.T
    squares = products.diagonal()
    apart = (3 * (squares[:, None] + squares - 2 * products).clamp_min(_CLOSEST)).sqrt()
    alike = (1 + apart) * torch.exp(-apart) + linear * products + scatter * torch.eye(len(rows), dtype=rows.dtype)
    off = targets - targets.median()
    off = (off / (1.48 * off.abs().median() + _LEAST_DEVIATION)).clamp(-4, 4)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(alike))
    return (inverse @ off) / inverse.diagonal()
