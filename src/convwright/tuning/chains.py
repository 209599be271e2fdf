"""Chains of one or two nested rewrites, with the inner problem that remains."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.prediction.physics import moved_by
from convwright.prediction.rates import rates_of
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
# How long copies may take, as a share of the best time without them. Of 1,547 problems on an H200 none was won by a
# rewrite whose copies take more than 0.37 of that. For CPUs this was not measured.
_MOST_COPYING = {"cuda": 0.4, "cpu": 1.0}


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite with its arguments and the problem that it applies to."""

    rewrite: Rewrite
    problem: Problem
    arguments: Config

    @property
    def inner(self) -> Problem:
        return self.rewrite.inner(self.problem, self.arguments)


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
        return any(int(dict(step.arguments).get("parts", 1)) > 1 for step in self.steps)

    @property
    def effort(self) -> tuple[bool, int, int]:
        """Sort key, most promising first. Splitting a batch saves workspace but no work, so it comes last. Otherwise
        fewer bytes moved, by the rewrite and the inner problem, come first."""
        return self.splits, self.moved_bytes + self.inner.bytes, len(self.steps)

    def cannot_win(self, best_us: float, device: DeviceFacts) -> str | None:
        """Why the chain is not faster than ``best_us``, the best time without a rewrite; None if it may be."""
        if self.splits:
            return "computes a batch in parts, which saves workspace and no time"
        rates = rates_of(device)
        copying = sum(step.rewrite.moved_bytes(step.problem, step.arguments) > 0 for step in self.steps)
        copies_us = self.moved_bytes / rates.bandwidth_bytes_per_us + copying * rates.launch_us
        most = _MOST_COPYING[device.kind]
        if copies_us <= most * best_us:
            return None
        return f"its copies take {copies_us:.1f} µs, more than {most:.0%} of the best time without it, {best_us:.1f} µs"

    def wrap(self, candidate: Candidate) -> Candidate:
        """Wrap ``candidate``, which computes ``inner``, into a candidate for the outermost problem."""
        for step in reversed(self.steps):
            candidate = step.rewrite.wrap(step.problem, step.arguments, candidate)
        return candidate


def chains(problem: Problem, device: DeviceFacts) -> tuple[list[Chain], list[Refusal]]:
    """Every single rewrite, then the few most promising pairs; and refusals with the reasons.

    The most promising chains come first. Of chains that lead to the same problem only the cheapest is kept.
    """
    found = list(steps(problem, device))
    single = [Chain((step,), step.inner) for step in found if isinstance(step, Step)]
    pairs = [
        Chain((*outer.steps, step), step.inner)
        for outer in single
        for step in steps(outer.inner, device, _INSIDE.get(outer.steps[0].rewrite.name, ()))
        if isinstance(step, Step)
    ]
    pairs.sort(key=lambda chain: chain.effort)
    seen, kept = {problem}, list[Chain]()
    for chain in [*single, *pairs]:
        if chain.inner not in seen and len(kept) < len(single) + _MOST_NESTED:
            seen.add(chain.inner)
            kept.append(chain)
    refusals = [each for each in found if isinstance(each, Refusal)]
    return sorted(kept, key=lambda chain: chain.effort), refusals


def steps(problem: Problem, device: DeviceFacts, names: Container[str] | None = None) -> Iterator[Step | Refusal]:
    """The rewrites of these names, or all, each with each of its possible arguments, or a refusal."""
    for each in REWRITES:
        if each.kind == problem.kind and (names is None or each.name in names):
            for arguments in each.arguments(problem, device):
                yield arguments if isinstance(arguments, Refusal) else Step(each, problem, arguments)
