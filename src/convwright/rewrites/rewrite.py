"""What a rewrite is: a problem becomes an inner problem, with work before and after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.fusing import why_not_fused
from convwright.core.limits import beyond_32_bits
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.rewrites.copies import Steps


class Rewrite(ABC):
    """A pure mapping from a problem to an inner one, its scratch bytes and its cost, and the plan that runs it.

    ``arguments`` says with which arguments it makes sense; the other methods take one of those.
    """

    name: str
    # Of the problems that it applies to.
    kind = "conv"
    # How its arguments are written in a candidate's id, whatever the problem: a regular expression.
    written = ""

    def arguments(self, problem: Any, device: DeviceFacts) -> Iterator[Config | Refusal]:
        """The few arguments worth trying on ``problem``, with a refusal for others; where none is, one refusal."""
        reason = why_not_fused(problem) or (beyond_32_bits(problem) if device.kind == "cuda" else None)
        if reason is None:
            yield from self.possible(problem, device)
        else:
            yield Refusal(self.name, reason)

    @abstractmethod
    def possible(self, problem: Any, device: DeviceFacts) -> Iterator[Config | Refusal]:
        """The same of a problem whose epilogue fuses what kernels fuse."""

    @abstractmethod
    def inner(self, problem: Any, arguments: Config) -> ConvProblem:
        """The problem that is left to be computed."""

    @abstractmethod
    def scratch_bytes(self, problem: Any, arguments: Config) -> int:
        """Workspace that the rewrite itself needs before the inner candidate's, a multiple of the alignment."""

    @abstractmethod
    def moved_bytes(self, problem: Any, arguments: Config) -> int:
        """What it costs: bytes read and written around the inner problem at each call."""

    @abstractmethod
    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        """Run ``candidate``, which ``wrap`` made, around a plan for its inner candidate."""

    def copies(self, problem: Any, arguments: Config) -> Mapping[Role, Steps] | None:
        """How each operand that differs is brought into the inner problem, and the output back out of it; None where
        that takes more than copies."""
        return None

    def wrap(self, problem: Any, arguments: Config, inner: Candidate) -> Candidate:
        """The candidate for ``problem`` that uses ``inner``, a candidate for ``self.inner(problem, arguments)``."""
        scratch = self.scratch_bytes(problem, arguments)
        return Candidate(
            problem=problem,
            backend="rewrite",
            algorithm=self.name,
            config=arguments,
            arithmetic=inner.arithmetic,
            workspace_bytes=None if inner.workspace_bytes is None else scratch + inner.workspace_bytes,
            deterministic=inner.deterministic,
            source=inner.source,
            inner=inner,
            compiles=inner.compiles,
            workspace_is_bound=inner.workspace_is_bound,
        )


def wrap_plan(candidate: Candidate, build_leaf: Callable[[Candidate], Plan]) -> Plan:
    """A plan for a candidate with any number of rewrites around its leaf, which ``build_leaf`` makes ready."""
    from convwright.rewrites import rewrite

    if candidate.inner is None:
        return build_leaf(candidate)
    return rewrite(candidate.algorithm).plan(candidate, wrap_plan(candidate.inner, build_leaf))
