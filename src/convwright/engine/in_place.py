"""Refine an assignment by timing its steps inside the network and choosing again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from convwright.core.candidate import Candidate
from convwright.engine.engine import Engine
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planned import Planner

# At most _ROUNDS assignments are tried. An untried way counts with its best possible time, so that every possible
# winner gets a try, until the best remaining one would gain no more than _GAIN.
_ROUNDS, _GAIN = 6, 0.01


def fastest_in_place(planner: Planner, build: Callable[[Assignment], Engine], inputs: Sequence[Tensor]) -> Engine:
    """The fastest engine of those tried, with the times of its steps measured in the network."""
    costs, tried = Costs(), list[list[tuple[str, Candidate | None]]]()
    fastest: Engine | None = None
    for number in range(_ROUNDS):
        planned = planner.assignment(costs)
        chosen = [(str(step.operation.key), step.candidate) for step in planned.steps]
        if chosen in tried or (fastest is not None and planned.modelled_us > (1 - _GAIN) * fastest.assignment.steps_us):
            break
        tried.append(chosen)
        engine = build(planned)
        times_us = engine.step_times(inputs)
        costs.learn(planned.steps, times_us)
        engine.assignment = planned.taking(times_us)
        if fastest is None or engine.assignment.steps_us < fastest.assignment.steps_us:
            fastest = engine
        if number == 0 and engine.device.type == "cpu":
            # A run of the network times all its steps within one moment; their searches were minutes apart, in which a
            # CPU may slow down by half.
            for variant in planner.variants(planned, costs):
                costs.learn(variant.steps, build(variant).step_times(inputs))
    assert fastest is not None
    return fastest
