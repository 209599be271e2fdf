"""Choose the layers of a network that may use fewer bits, within an error limit for the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from sys import float_info

from torch import Tensor

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.engine.network import Network
from convwright.engine.planning.assignment import Assignment
from convwright.engine.precision.checking import relative_l2
from convwright.engine.precision.lowering import Lowering, Precision, layers, lowered
from convwright.engine.precision.roundings import rounded_outputs
from convwright.engine.reference import values
from convwright.graph.graph import Graph, Node

# The target of a lowering, and the arithmetic that the device needs for it.
_NEEDS = {
    Precision.TF32: Arithmetic.TF32, Precision.FP16: Arithmetic.FP16_ACC32, Precision.BF16: Arithmetic.BF16_ACC32,
}  # fmt: skip
# The share of a layer's time saved, if nothing is timed: tensor cores run TF32 at half the 16-bit rate.
_SAVED = {Precision.TF32: 0.5, Precision.FP16: 0.75, Precision.BF16: 0.75}


@dataclass(frozen=True, slots=True)
class Move:
    """A layer in fewer bits: the time that it saves, and the largest output error if only this layer is lowered."""

    layer: str
    precision: Precision
    saved: float
    error: float

    @property
    def saved_per_error(self) -> float:
        """The gain per error. Errors of layers are independent, so their squares add up."""
        return self.saved / max(self.error**2, float_info.min)


class Mixed:
    """Lowers the layers of a network one after the other: those first that save most time for the error that they cause
    on ``samples``.

    ``plan`` gives the assignment of the network in some precision: it shows the time that a layer saves, and whether
    casts between layers cost more. Without it layers count by their FLOPs.
    """

    def __init__(
        self,
        network: Network,
        samples: Sequence[Sequence[Tensor]],
        device: DeviceFacts,
        plan: Callable[[Lowering], Assignment] | None,
    ) -> None:
        self._network, self._samples, self._plan = network, samples, plan
        self._layers = [node for node in layers(network.graph) if _is_fp32(node, network.graph)]
        self._exact: list[tuple[Tensor, ...]] = []
        errors = self._errors([each for each in _NEEDS if _has(device, each)])
        saved = self._saved({precision for _, precision in errors})
        moves = [Move(*key, saved[key], error) for key, error in errors.items() if saved[key] > 0]
        self._moves = sorted(moves, key=lambda move: (-move.saved_per_error, move.layer, move.precision))

    def within(self, max_error: float) -> Lowering:
        """The fastest of three options within the error: as many moves as possible; as many moves to TF32, which needs
        no casts; none."""
        moves = [move for move in self._moves if move.error <= max_error]
        in_tf32 = [move for move in moves if move.precision is Precision.TF32]
        possible = [self._most(each, max_error) for each in (moves, in_tf32, ())]
        if self._plan is None:
            return possible[0]
        times_us = [self._plan(each).modelled_us for each in possible]
        return possible[times_us.index(min(times_us))]

    def _most(self, moves: Sequence[Move], max_error: float) -> Lowering:
        """The longest beginning of the moves that together stay within the error."""
        fits, over, tried = 0, len(moves) + 1, len(moves)
        while over - fits > 1:
            if self._error(self._after(moves[:tried])) <= max_error:
                fits = tried
            else:
                over = tried
            tried = (fits + over) // 2
        return self._after(moves[:fits])

    def _after(self, moves: Sequence[Move]) -> Lowering:
        best = dict[str, Move]()
        for move in moves:
            if move.layer not in best or move.saved > best[move.layer].saved:
                best[move.layer] = move
        return Lowering.of_layers(self._network.graph, {name: move.precision for name, move in best.items()})

    def _errors(self, precisions: Sequence[Precision]) -> dict[tuple[str, Precision], float]:
        """The output error for each layer that alone is lowered, if finite. bf16 is as fast as fp16 but coarser, so it
        is used only for layers whose values overflow in fp16."""
        found = dict[tuple[str, Precision], float]()
        alone = {(node.name, each): Lowering.of_layers(self._network.graph, {node.name: each})
                 for node in self._layers for each in precisions}  # fmt: skip
        for sample in self._samples:
            exact = values(self._network, sample)
            self._exact.append(tuple(exact[name] for name in self._network.graph.outputs))
            for key, lowering in alone.items():
                error = self._error_of(lowering, len(self._exact) - 1, exact)
                found[key] = max(found.get(key, 0.0), error if isfinite(error) else inf)
        finite = {key: error for key, error in found.items() if isfinite(error)}
        return {
            (layer, precision): error for (layer, precision), error in finite.items()
            if precision is not Precision.BF16 or (layer, Precision.FP16) not in finite
        }  # fmt: skip

    def _saved(self, precisions: set[Precision]) -> Mapping[tuple[str, Precision], float]:
        nodes = {node.name: node for node in self._layers}
        if self._plan is None:
            return {(name, each): _SAVED[each] * node.operation.flops  # type: ignore[union-attr]
                    for name, node in nodes.items() for each in precisions}  # fmt: skip
        own = _times(self._plan(Lowering(tf32=frozenset())))
        saved = dict[tuple[str, Precision], float]()
        for precision in sorted(precisions):
            times = _times(self._plan(Lowering.of_layers(self._network.graph, dict.fromkeys(nodes, precision))))
            saved |= {(name, precision): own.get(name, 0.0) - times.get(name, 0.0) for name in nodes}
        return saved

    def _error(self, lowering: Lowering) -> float:
        return max(self._error_of(lowering, number) for number in range(len(self._samples)))

    def _error_of(self, lowering: Lowering, number: int, exact: Mapping[str, Tensor] | None = None) -> float:
        """The largest output error for one sample; NaN counts as infinite."""
        made = rounded_outputs(
            lowered(self._network, lowering.dtypes).network, self._samples[number],
            tf32=lowering.tf32 or (), exact=exact, of=self._network.graph,
        )  # fmt: skip
        return max(each if isfinite(each) else inf for each in relative_l2(made, self._exact[number]))


def _is_fp32(node: Node, graph: Graph) -> bool:
    return graph.values[node.writes[0]].dtype is DType.FP32


def _has(device: DeviceFacts, precision: Precision) -> bool:
    return device.computes(_NEEDS[precision]) and (device.kind == "cuda" or precision is not Precision.TF32)


def _times(assignment: Assignment) -> dict[str, float]:
    """The time of the step that each node belongs to."""
    return {name: step.time_us.value for step in assignment.steps for name in step.name.split("+")}
