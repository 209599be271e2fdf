"""Chains of one or two nested rewrites, with the inner problem that remains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.prediction.physics import moved_by
from convwright.rewrites import REWRITES, Rewrite

# The rewrites allowed inside each one. Most pairs commute, so each pair has one order, the one that copies less: a
# rewrite without copies goes outside, and a layout changes once around everything inside. No rewrite contains itself.
_INSIDE = {
    "unfuse": ("relayout", "pad-c", "space-to-depth", "subsample", "as-2d", "as-forward", "split-batch"),
    "relayout": ("pad-c", "space-to-depth", "as-2d", "as-forward"),
    "space-to-depth": ("pad-c", "as-forward"),
    "subsample": ("relayout", "pad-c", "as-forward"),
    "as-conv": ("pad-c",),
}
_MOST_NESTED = 6


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite with its arguments and the problem that it applies to."""

    rewrite: Rewrite
    problem: Problem
    arguments: Config

    @property
    def inner(self) -> Problem:
        return self.rewrite.inner(self.problem, self.arguments)

    @property
    def parts(self) -> int:
        """How often the inner problem is computed."""
        return int(dict(self.arguments).get("parts", 1))


@dataclass(frozen=True, slots=True)
class Chain:
    """Rewrites, outermost first, around ``inner``."""

    steps: tuple[Step, ...]
    inner: Problem

    @property
    def moved_bytes(self) -> int:
        """Bytes that the rewrites read and write at each call."""
        return moved_by((step.rewrite, step.problem, step.arguments) for step in self.steps)

    @property
    def splits(self) -> bool:
        """Whether the inner problem is one of several parts."""
        return any(step.parts > 1 for step in self.steps)

    @property
    def effort(self) -> tuple[bool, int, int]:
        """Sort key, most promising first. Splitting a batch saves workspace but no work, so it comes last. Otherwise
        fewer bytes moved, by the rewrite and the inner problem, come first."""
        return self.splits, self.moved_bytes + self.inner.bytes, len(self.steps)

    def wrap(self, candidate: Candidate) -> Candidate:
        """Wrap ``candidate``, which computes ``inner``, into a candidate for the outermost problem."""
        for step in reversed(self.steps):
            candidate = step.rewrite.wrap(step.problem, step.arguments, candidate)
        return candidate


def chains(problem: Problem, device: DeviceFacts) -> tuple[list[Chain], list[Refusal]]:
    """Every single rewrite, then the few most promising pairs; and refusals with the reasons.

    The most promising chains come first. Of chains that lead to the same problem only the cheapest is kept.
    """
    refusals: list[Refusal] = []
    single = [Chain((step,), step.inner) for step in _steps(problem, device, refusals)]
    pairs = [
        Chain((*outer.steps, step), step.inner)
        for outer in single
        for step in _steps(outer.inner, device, [], within=outer.steps[0].rewrite.name)
    ]
    pairs.sort(key=lambda chain: chain.effort)
    seen, kept = {problem}, list[Chain]()
    for chain in [*single, *pairs]:
        if chain.inner not in seen and len(kept) < len(single) + _MOST_NESTED:
            seen.add(chain.inner)
            kept.append(chain)
    return sorted(kept, key=lambda chain: chain.effort), refusals


def _steps(problem: Problem, device: DeviceFacts, refusals: list[Refusal], within: str | None = None) -> Iterator[Step]:
    for each in REWRITES:
        if each.kind != problem.kind or (within is not None and each.name not in _INSIDE.get(within, ())):
            continue
        for arguments in each.arguments(problem, device):
            if isinstance(arguments, Refusal):
                refusals.append(arguments)
            else:
                yield Step(each, problem, arguments)
