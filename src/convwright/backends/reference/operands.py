"""Shared by the algorithms of this backend: sums in fp32 at least, channels by group, the epilogue last."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from convwright.core.candidate import Candidate, Config, Source
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.tensors import activate_

# The arithmetic of an algorithm that computes in the dtype of its sums.
WIDE_ARITHMETIC: Mapping[DType, Arithmetic] = {DType.FP64: Arithmetic.FP64, DType.FP32: Arithmetic.FP32}


def wide(dtype: DType) -> DType:
    """The dtype of sums of ``dtype``. Sums of int8 are exact in fp64."""
    return DType.FP64 if dtype in (DType.FP64, DType.INT8) else DType.FP32


def offer(
    problem: ConvProblem,
    algorithm: str,
    workspace_bytes: int,
    *,
    config: Config = (),
    arithmetic: Arithmetic | None = None,
    products: int | None = None,
    saves_products: bool = False,
    links_us: float = 0.0,
) -> Candidate:
    """A candidate of this backend. It computes in the dtype of its sums unless ``arithmetic`` is given."""
    return Candidate(
        problem=problem,
        backend="reference",
        algorithm=algorithm,
        config=config,
        arithmetic=arithmetic or WIDE_ARITHMETIC[wide(problem.dtype)],
        workspace_bytes=workspace_bytes,
        deterministic=True,
        source=Source.RULE,
        saves_products=saves_products,
        products=products,
        links_us=links_us,
    )


def by_group(tensor: Tensor, groups: int) -> Tensor:
    """(N, channels, spatial…) as a view (N, G, channels / G, spatial…)."""
    images, channels, *spatial = tensor.shape
    return tensor.view(images, groups, channels // groups, *spatial)


def by_tap(weight: Tensor, groups: int) -> Tensor:
    """(K, C / G, taps…) as a view (taps…, G, K / G, C / G)."""
    rows, channels, *taps = weight.shape
    return weight.view(groups, rows // groups, channels, *taps).movedim((0, 1, 2), (-3, -2, -1))


def start_(sums: Tensor, residual: Tensor | None) -> Tensor:
    """The initial value of the sums."""
    return sums.zero_() if residual is None else sums.copy_(residual)


def stored_(out: Tensor, sums: Tensor) -> Tensor:
    """Sums as an output. For int8 they are rounded to the nearest integer and saturated."""
    return out.copy_(sums if out.is_floating_point() else sums.round_().clamp_(-128, 127))


def epilogue_(y: Tensor, bias: Tensor | None, residual: Tensor | None, activation: Activation) -> Tensor:
    """Apply a forward epilogue in place. Dimensions: images, then the bias's dimensions, then positions."""
    if residual is not None:
        y.add_(residual)
    if bias is not None:
        y.add_(bias.view(*bias.shape, *[1] * (y.dim() - 1 - bias.dim())))
    return activate_(y, activation)
