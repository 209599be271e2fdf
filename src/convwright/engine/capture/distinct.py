"""The distinct problems of a network, each with its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convwright.core.problem import ConvProblem
from convwright.engine.capture.layers import LayerCall


@dataclass(frozen=True, slots=True)
class Posed:
    """A problem and the layers that compute it. ``calls`` counts how often one run of the model does so."""

    problem: ConvProblem
    layers: tuple[LayerCall, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(layer.name for layer in self.layers))

    @property
    def is_gradient(self) -> bool:
        """True if only backward passes compute this problem."""
        return all(layer.problem != self.problem for layer in self.layers)

    @property
    def calls(self) -> int:
        return sum(layer.calls for layer in self.layers)


def distinct(
    layers: Iterable[LayerCall], poses: Callable[[LayerCall], Iterable[ConvProblem]] = LayerCall.problems
) -> tuple[Posed, ...]:
    """The distinct problems of the layers, most arithmetic first, so that an interrupted search covers what matters."""
    posed: dict[ConvProblem, list[LayerCall]] = {}
    for layer in layers:
        for problem in dict.fromkeys(poses(layer)):
            posed.setdefault(problem, []).append(layer)
    found = (Posed(problem, tuple(who)) for problem, who in posed.items())
    return tuple(sorted(found, key=lambda each: -each.problem.flops * each.calls))
