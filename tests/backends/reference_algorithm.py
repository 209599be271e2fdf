"""One algorithm of the backend ``reference`` by its id, and its result on given operands."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from convwright.backends.reference.backend import Reference
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from problem_space import run

CPU = DeviceFacts("this CPU", "cpu", "any", "cpu")


def offered(problem: ConvProblem, algorithm: str) -> Offer:
    """What the backend says of an algorithm, whatever its configuration."""
    (found,) = (o for o in Reference().candidates(problem, CPU, Policy()) if o.id.partition("[")[0] == algorithm)
    return found


def candidate(problem: ConvProblem, algorithm: str) -> Candidate:
    found = offered(problem, algorithm)
    assert isinstance(found, Candidate), found
    return found


def compute(candidate: Candidate, given: dict[Role, Tensor]) -> Tensor:
    """The result of a plan that takes exactly the workspace that was said of its candidate."""
    plan = Reference().build(candidate, CPU)
    assert plan.workspace_bytes == candidate.workspace_bytes
    return run(plan, given)


def in_dtype(problem: ConvProblem, dtype: DType) -> ConvProblem:
    x, w, y = (replace(spec, dtype=dtype) for spec in (problem.x, problem.w, problem.y))
    return replace(problem, x=x, w=w, y=y)
