"""Whether a candidate computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from convwright.core.candidate import Candidate
from convwright.core.error_rule import absolute_objection, error_objection
from convwright.core.policy import Policy
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning.trials.trial import Bench, Trial

_LEAST_NORM = 1e-30
KINDS = [Kind.NORMAL, Kind.CHANNEL_SCALED, Kind.NAN]


def check(candidate: Candidate, policy: Policy = Policy()) -> None:
    """Its errors are explained by its arithmetic, as far as policy asks, and it runs again as it is timed."""
    problem = candidate.problem
    trial = Trial(candidate, Bench(problem, device_facts("cuda"), Mode.FULL, seed=0))
    errors = ErrorCheck(problem, "cuda", kinds=KINDS).errors(trial.run)
    objection = absolute_objection(problem, candidate.arithmetic, errors, policy)
    assert objection is None, f"{candidate.id}: {objection}"
    trial.call()()
    torch.cuda.synchronize()


def check_beside(own: Candidate, candidates: Iterable[Candidate]) -> None:
    """Their errors keep the rule beside PyTorch's own call, on every kind of data."""
    bench, errors = Bench(own.problem, device_facts("cuda"), Mode.FULL, seed=0), ErrorCheck(own.problem, "cuda").errors
    baseline = errors(Trial(own, bench).run)
    for candidate in candidates:
        objection = error_objection(own.problem, errors(Trial(candidate, bench).run), baseline, Policy())
        assert objection is None, f"{candidate.id}: {objection}"


def relative(y: torch.Tensor, expected: torch.Tensor) -> float:
    """The error in the norm, as a share of it; where all is 0, what is not 0 errs without bounds."""
    return float((y.double() - expected).norm() / expected.norm().clamp(min=_LEAST_NORM))
