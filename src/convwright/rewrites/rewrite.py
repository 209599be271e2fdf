"""The base class of rewrites: an inner problem, with work before and after it."""

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

    ``arguments`` lists the arguments worth trying; the other methods take one of those.
    """

    name: str
    # The kind of problems that it applies to.
    kind = "conv"
    # A regular expression for its arguments in a candidate's id, whatever the problem.
    written = ""

    def arguments(self, problem: Any, device: DeviceFacts) -> Iterator[Config | Refusal]:
        """The few arguments worth trying on ``problem``, and refusals for others; one refusal if there are none."""
        reason = why_not_fused(problem) or (beyond_32_bits(problem) if device.kind == "cuda" else None)
        if reason is None:
            yield from self.possible(problem, device)
        else:
            yield Refusal(self.name, reason)

    @abstractmethod
    def possible(self, problem: Any, device: DeviceFacts) -> Iterator[Config | Refusal]:
        """The same for a problem whose epilogue one kernel may fuse."""

    @abstractmethod
    def inner(self, problem: Any, arguments: Config) -> ConvProblem:
        """The inner problem."""

    @abstractmethod
    def scratch_bytes(self, problem: Any, arguments: Config) -> int:
        """Workspace of the rewrite itself, before the inner candidate's; a multiple of the alignment."""

    @abstractmethod
    def moved_bytes(self, problem: Any, arguments: Config) -> int:
        """Its cost: bytes read and written around the inner problem at each call."""

    @abstractmethod
    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        """A plan for ``candidate``, made by ``wrap``, around a plan for its inner candidate."""

    def copies(self, problem: Any, arguments: Config) -> Mapping[Role, Steps] | None:
        """The copies that bring each changed operand into the inner problem, and the output back; None if copies do not
        suffice."""
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
    """A plan for a candidate with any number of rewrites around its leaf, which ``build_leaf`` builds."""
    from convwright.rewrites import rewrite

    if candidate.inner is None:
        return build_leaf(candidate)
    return rewrite(candidate.algorithm).plan(candidate, wrap_plan(candidate.inner, build_leaf))
