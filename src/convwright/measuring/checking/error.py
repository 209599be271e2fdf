"""The two errors of a result against float64: relative L2, and the largest |y − y64| / (|x| ∗ |w|)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from convwright.core.direction import Role
from convwright.core.finding import KindError
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError
from convwright.measuring.checking.data import ERROR_KINDS, Kind, kinds_of, operands
from convwright.measuring.checking.exact import DB_BEFORE
from convwright.measuring.checking.of_kind import whole_reference
from convwright.measuring.checking.reference import Reference
from convwright.tensors import empty, torch_dtype

Run = Callable[[dict[Any, Tensor]], Tensor]  # by role

_KEPT_BYTES = 2**30


def errors_of(output: Tensor, reference: Reference) -> tuple[float, float]:
    """Relative L2 error, and the largest scaled error in units of the output's roundoff.

    Scales below the dtype's smallest normal number are raised to it. Both errors are inf if infinities and NaNs differ
    from float64's in place or sign.
    """
    problem = reference.problem
    wanted = problem.operands[reference.role].shape
    if tuple(output.shape) != wanted:
        raise BackendError(f"the output must have shape {wanted}, got {tuple(output.shape)}")
    got = reference.sample.take(reference.role, output.detach()).double()
    rounded = reference.y64.to(torch_dtype(problem.output.dtype)).double()
    finite = rounded.isfinite()
    alike = (got == rounded) | (got.isnan() & rounded.isnan())
    if not torch.where(finite, got.isfinite(), alike).all():
        return float("inf"), float("inf")
    difference = (got - reference.y64).where(finite, 0.0).abs()
    l2 = _ratio(difference.norm(), reference.y64.where(finite, 0.0).norm()).item()
    scale = _with_full_precision(reference.scale, output.dtype)
    scaled = _ratio(difference, scale).max().item() if difference.numel() else 0.0
    return l2, scaled / problem.output.dtype.roundoff


def _with_full_precision(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Scales other than 0, raised to the least number with full relative precision: below it, numbers are evenly
    spaced."""
    if not dtype.is_floating_point:
        return scale
    return torch.where(scale > 0, scale.clamp(min=torch.finfo(dtype).smallest_normal), scale)


def _ratio(difference: Tensor, scale: Tensor) -> Tensor:
    """The quotient; 0 where the difference is 0, even if the scale is 0."""
    return torch.where(difference == 0, 0.0, difference / scale)


def _never(found: tuple[KindError, ...]) -> bool:
    return False


class ErrorCheck:
    """Checks many candidates on the same data: operands and references are made once for each kind."""

    def __init__(
        self,
        problem: Problem,
        device: torch.device | str,
        *,
        kinds: Iterable[Kind | str] = ERROR_KINDS,  # only those that the operands can represent are used
        seed: int = 0,
        reference: Callable[[Any, Mapping[Any, Tensor]], Reference] = whole_reference,
    ) -> None:
        self.problem, self.device, self.seed, self._reference = problem, device, seed, reference
        self.kinds = kinds_of(problem, kinds)
        self._kept: dict[Kind, tuple[dict[Any, Tensor], Reference]] = {}

    def errors(self, run: Run, is_enough: Callable[[tuple[KindError, ...]], bool] = _never) -> tuple[KindError, ...]:
        """Both errors of ``run`` on every kind of data, or on the first few until ``is_enough``."""
        found: tuple[KindError, ...] = ()
        for kind in self.kinds:
            tensors, reference = self._case(kind)
            found += (KindError(kind.value, *self._errors(run, dict(tensors), reference)),)
            if is_enough(found):
                break
        return found

    def _errors(self, run: Run, tensors: dict[Any, Tensor], reference: Reference) -> tuple[float, float]:
        if reference.bias is None:
            return errors_of(run(tensors), reference)
        assert isinstance(self.problem, ConvProblem)
        held = DB_BEFORE if self.problem.epilogue.accumulate else torch.nan
        db = tensors[Role.DB] = empty(self.problem.operands[Role.DB], self.device).fill_(held)
        (l2, scaled), (bias_l2, bias_scaled) = errors_of(run(tensors), reference), errors_of(db, reference.bias)
        return max(l2, bias_l2), max(scaled, bias_scaled)

    def _case(self, kind: Kind) -> tuple[dict[Any, Tensor], Reference]:
        if kind in self._kept:
            return self._kept[kind]
        tensors = operands(self.problem, kind, self.device, seed=self.seed)
        reference = self._reference(self.problem, tensors)
        size = sum(tensor.nbytes for tensor in (*tensors.values(), reference.y64, reference.scale))
        # Data that is too large to keep is made again for each candidate.
        if size * len(self.kinds) <= _KEPT_BYTES:
            self._kept[kind] = (tensors, reference)
        return tensors, reference


def measure_errors(
    run: Run,
    problem: Problem,
    device: torch.device | str,
    kinds: Iterable[Kind | str] = ERROR_KINDS,
    seed: int = 0,
) -> tuple[KindError, ...]:
    """Both errors of one way to compute ``problem``. ``run`` takes the operands by role and returns the output. The
    operands include an output's contents ``before``, and ``db``, where a bias's gradient is written.

    >>> problem = ConvProblem.parse("ic8ih9oc16kh3")
    >>> found = measure_errors(lambda t: torch.conv2d(t[Role.X], t[Role.W]), problem, "cpu", ["normal"])
    >>> found[0].kind, found[0].relative_l2 < 1e-6, found[0].scaled_max < 73
    ('normal', True, True)
    """
    return ErrorCheck(problem, device, kinds=kinds, seed=seed).errors(run)
