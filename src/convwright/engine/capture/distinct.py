"""The distinct problems of a network, each with the layers that pose it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convwright.core.problem import ConvProblem
from convwright.engine.capture.layers import LayerCall


@dataclass(frozen=True, slots=True)
class Posed:
    """A problem and the layers that pose it; ``calls`` is how often one run of the model computes it."""

    problem: ConvProblem
    layers: tuple[LayerCall, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(layer.name for layer in self.layers))

    @property
    def is_gradient(self) -> bool:
        """True where the problem comes from a backward pass alone."""
        return all(layer.problem != self.problem for layer in self.layers)

    @property
    def calls(self) -> int:
        return sum(layer.calls for layer in self.layers)


def distinct(
    layers: Iterable[LayerCall], poses: Callable[[LayerCall], Iterable[ConvProblem]] = LayerCall.problems
) -> tuple[Posed, ...]:
    """What the layers pose, that with the most arithmetic first: who stops a long search has done what matters."""
    posed: dict[ConvProblem, list[LayerCall]] = {}
    for layer in layers:
        for problem in dict.fromkeys(poses(layer)):
            posed.setdefault(problem, []).append(layer)
    found = (Posed(problem, tuple(who)) for problem, who in posed.items())
    return tuple(sorted(found, key=lambda each: -each.problem.flops * each.calls))
