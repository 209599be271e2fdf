"""The error rule: how much error a candidate may have. Nothing else decides that."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, sqrt

from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import KindError
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy

# Kinds of data with an infinity or a NaN.
NON_FINITE_KINDS = ("infinity", "nan")


def noise(problem: Problem) -> tuple[float, float]:
    """Errors too small to compare: relative L2, and scaled in units of roundoff.

    No result is surely better than one roundoff. In fp64 the reference itself is rounded once for each term of a sum.
    """
    terms = 2 * sqrt(problem.reduction) if problem.dtype is DType.FP64 else 1.0
    return terms * problem.output.dtype.roundoff, terms


def objection_to_errors(
    candidate: Candidate, errors: Iterable[KindError], baseline: Iterable[KindError] | None, policy: Policy
) -> str | None:
    """Why a candidate's errors are too large: compared with PyTorch's on the same data, or absolutely without these."""
    if baseline is None:
        return absolute_objection(candidate.problem, candidate.arithmetic, errors, policy)
    return error_objection(candidate.problem, errors, baseline, policy)


def error_objection(
    problem: Problem, errors: Iterable[KindError], baseline: Iterable[KindError], policy: Policy
) -> str | None:
    """Why errors are too large compared with PyTorch's on the same data; None if they are not."""
    torch = {error.kind: error for error in baseline}
    for error in errors:
        if policy.finite_inputs and error.kind in NON_FINITE_KINDS:
            continue
        if error.kind not in torch:
            return f"was never compared with PyTorch on {error.kind} data"
        reference = torch[error.kind]
        figures = ("relative L2 error", "largest scaled error"), noise(problem)
        pairs = (error.relative_l2, reference.relative_l2), (error.scaled_max, reference.scaled_max)
        for name, least, (ours, theirs) in zip(*figures, pairs, strict=True):
            if not isfinite(theirs):
                continue  # PyTorch's own call fails on this data
            if not isfinite(ours):
                return _infinite(error)
            if ours > max(policy.max_error * theirs, least):
                allowed = f"{policy.max_error:g}x allowed"
                return f"{name} on {error.kind} data is {ours:.2g}, PyTorch's is {theirs:.2g} ({allowed})"
    return None


def absolute_objection(
    problem: Problem, arithmetic: Arithmetic, errors: Iterable[KindError], policy: Policy
) -> str | None:
    """Why errors are too large without PyTorch's to compare with; None if they are not."""
    bound = problem.error_bound(arithmetic)
    for error in errors:
        if policy.finite_inputs and error.kind in NON_FINITE_KINDS:
            continue
        if not isfinite(error.relative_l2) or not isfinite(error.scaled_max):
            return _infinite(error)
        if error.scaled_max > bound:
            return (
                f"largest scaled error on {error.kind} data is {error.scaled_max:.2g}, at most {bound:.2g} is explained"
            )
    return None


def _infinite(error: KindError) -> str:
    """The meaning of an infinite error. If the other error is finite, an empty sum is not 0."""
    if isfinite(error.relative_l2):
        return f"is not 0 on {error.kind} data where nothing is summed"
    return f"gives wrong infinities or NaNs on {error.kind} data"
