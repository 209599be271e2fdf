"""What the algorithms here have in common: sums in fp32 at least, channels by group, the epilogue last."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from convwright.core.candidate import Candidate, Config, Source
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.tensors import activate_

# The arithmetic of an algorithm that computes in the dtype in which it sums.
WIDE_ARITHMETIC: Mapping[DType, Arithmetic] = {DType.FP64: Arithmetic.FP64, DType.FP32: Arithmetic.FP32}


def wide(dtype: DType) -> DType:
    """The dtype in which sums of ``dtype`` are kept; those of int8 are exact in fp64."""
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
    """An algorithm of this backend; it computes in the dtype in which it sums unless ``arithmetic`` says otherwise."""
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
    """What sums begin with."""
    return sums.zero_() if residual is None else sums.copy_(residual)


def stored_(out: Tensor, sums: Tensor) -> Tensor:
    """Sums as an output; int8 holds the nearest integer, and of what it cannot hold the nearest that it can."""
    return out.copy_(sums if out.is_floating_point() else sums.round_().clamp_(-128, 127))


def epilogue_(y: Tensor, bias: Tensor | None, residual: Tensor | None, activation: Activation) -> Tensor:
    """Finish a forward result where it lies: images, then the dimensions that a bias has, then positions."""
    if residual is not None:
        y.add_(residual)
    if bias is not None:
        y.add_(bias.view(*bias.shape, *[1] * (y.dim() - 1 - bias.dim())))
    return activate_(y, activation)
