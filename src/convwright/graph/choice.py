"""The data of a joint choice: ways to compute nodes, copies between them, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite
from typing import Any

from convwright.errors import BadInput, Refused

State = str  # the layout of a value, for example "nchw"
Place = tuple[str, State]  # a value in one state


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of an option or a copy, without what it reads: a workspace while it runs, and its output, in the arena
    or, if it allocates that itself, ``outside``. It may write its output over one of the places ``overwrites`` that
    nothing needs afterwards."""

    workspace_bytes: int = 0
    outside: bool = False
    overwrites: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True)
class Option:
    """One way to compute some nodes at once, in microseconds. Values between these nodes exist only inside it."""

    name: str
    covers: frozenset[str]
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    cost: float
    footprint: Footprint = Footprint()


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a value to another state, in microseconds. All readers of that state share it."""

    value: str
    source: State
    target: State
    cost: float
    footprint: Footprint = Footprint()


@dataclass(frozen=True, slots=True)
class ChoiceProblem:
    """``copies`` are the possible copies, ``given`` the places that exist before, ``wanted`` those that must exist
    after.

    A value is either given or written by options. A copy starts from a place that was given or written.
    """

    nodes: tuple[str, ...]
    options: tuple[Option, ...]
    copies: tuple[Copy, ...]
    given: tuple[Place, ...]
    wanted: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class JointChoice:
    """The options and copies to run, in the order of the problem, and their cost in microseconds."""

    options: tuple[Option, ...]
    copies: tuple[Copy, ...]
    cost: float


def check_choice(problem: ChoiceProblem) -> None:
    """Check that costs are valid and that options cover only nodes of the network."""
    nodes = set(problem.nodes)
    for option in problem.options:
        if not isfinite(option.cost) or option.cost < 0:
            raise BadInput(f"the way {option.name} costs {option.cost} us; expected a finite number of at least 0")
        if not option.covers or not option.covers <= nodes:
            strange = sorted(option.covers - nodes) or ["nothing"]
            raise BadInput(f"the way {option.name} covers {', '.join(strange)}; expected nodes of the network")
    for copy in problem.copies:
        if not isfinite(copy.cost) or copy.cost < 0:
            asked = f"the copy of {copy.value} from {copy.source} to {copy.target}"
            raise BadInput(f"{asked} costs {copy.cost} us; expected a finite number of at least 0")


def nothing_covers(problem: ChoiceProblem) -> Refused:
    covered = {node for option in problem.options for node in option.covers}
    for node in problem.nodes:
        if node not in covered:
            return Refused(f"no way computes {node}, a node of the network")
    return Refused("no set of ways covers the network: each leaves out a node or a value that is read")


def plan_of(problem: ChoiceProblem, chosen: Sequence[Option]) -> JointChoice:
    """The options in the order of the problem, with the cheapest copies that they need."""
    there = set(problem.given).union(*(option.writes for option in chosen))
    needed = set(problem.wanted).union(*(option.reads for option in chosen)) - there
    into = copies_into(problem)
    copies = {next(copy for copy in into[place] if (copy.value, copy.source) in there) for place in needed}
    options = set(chosen)
    run = tuple(option for option in dict.fromkeys(problem.options) if option in options)
    copied = tuple(copy for copy in dict.fromkeys(problem.copies) if copy in copies)
    return JointChoice(run, copied, fsum([*(option.cost for option in run), *(copy.cost for copy in copied)]))


def copies_into(problem: ChoiceProblem) -> dict[Place, list[Copy]]:
    """The copies to each place, cheapest first."""
    into: dict[Place, list[Copy]] = {}
    for copy in sorted(problem.copies, key=lambda copy: (copy.cost, copy.source)):
        into.setdefault((copy.value, copy.target), []).append(copy)
    return into


def option_key(option: Option) -> tuple[Any, ...]:
    return option.name, sorted(option.covers), option.reads, option.writes
