"""The tensors in a run's arena: their lifetimes and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from convwright.core.candidate import Candidate
from convwright.core.once import once
from convwright.engine.planning.assignment import Assignment
from convwright.graph.memory_plan import Buffer, MemoryPlan, aligned, lower_bound, plan_memory
from convwright.graph.operations import NOTHING_RUNS, View
from convwright.graph.step_order import Task, best_order
from convwright.tuning import listing

WORKSPACE = "workspace of step "  # prefix of a workspace's name in the arena


class Needs(Protocol):
    """The memory that a plan needs."""

    @property
    def workspace_bytes(self) -> int: ...
    @property
    def writes_out(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Life:
    """A tensor with its own memory, and its lifetime. If not ``in_arena``, PyTorch allocates it."""

    nbytes: int
    first: int
    last: int
    in_arena: bool


class Lifetimes:
    """``plan`` places each of the ``buffers`` in the arena. Tensors ``outside`` it are allocated in each run.

    A step overwrites an operand that nothing needs afterwards, if its candidate can.
    """

    def __init__(self, assignment: Assignment, needs: Sequence[Needs | None]) -> None:
        self._assignment, self._needs = assignment, needs
        self._root = _roots(assignment)
        self._lives = self._found_lives()
        self._over = self._overwriting()
        self.buffers, self.plan = self._placed()
        if self._over and self.plan.nbytes > self.plan.lower_bound:
            in_place = self._over, self.buffers, self.plan
            self._over = {}
            self.buffers, self.plan = self._placed()
            if in_place[2].nbytes <= self.plan.nbytes:
                self._over, self.buffers, self.plan = in_place

    def _found_lives(self) -> dict[str, _Life]:
        assignment, lives = self._assignment, dict[str, _Life]()
        specs, last = assignment.tensors | assignment.wholes, dict[str, int]()
        for name, at in assignment.last_uses().items():
            last[self.owner(name)] = max(at, last.get(self.owner(name), -1))
        for number, (step, needs) in enumerate(zip(assignment.steps, self._needs, strict=True)):
            for name in step.writes:
                root = self.owner(name)
                if root in lives or isinstance(step.operation, NOTHING_RUNS):
                    continue
                in_arena = needs is not None and (needs.writes_out or name in assignment.slices)
                lives[root] = _Life(specs[root].span_bytes, number, last[root], in_arena)
        return lives

    def _overwriting(self) -> dict[str, str]:
        """For each tensor that overwrites another: the first tensor in that memory."""
        over = dict[str, str]()
        ends = {name: life.last for name, life in self._lives.items()}
        for number, step in enumerate(self._assignment.steps):
            for role in overwritable(step.candidate, step.reads):
                read, (made,) = dict(step.reads)[role], step.writes
                own, life = self.owner(read), self._lives.get(self.owner(read))
                there = over.get(own, own)
                alike = {name for _, name in step.reads if self.owner(name) == own} == {read}
                fits = alike and life is not None and life.in_arena and ends[there] == number and life.first < number
                if fits and own not in self._assignment.wholes and self._is_own(made):
                    over[made], ends[there] = there, ends[made]
                    break
        return over

    def _is_own(self, name: str) -> bool:
        return name in self._lives and self._lives[name].in_arena

    def _placed(self) -> tuple[list[Buffer], MemoryPlan]:
        last = {name: life.last for name, life in self._lives.items()}
        for made, there in self._over.items():
            last[there] = max(last[there], last[made])
        buffers = [
            Buffer(name, life.nbytes, life.first, last[name])
            for name, life in self._lives.items() if life.in_arena and name not in self._over
        ]  # fmt: skip
        buffers += [
            Buffer(workspace_of(number), needs.workspace_bytes, number, number, is_workspace=True)
            for number, needs in enumerate(self._needs) if needs is not None and needs.workspace_bytes
        ]  # fmt: skip
        return buffers, plan_memory(buffers)

    @property
    def outside(self) -> tuple[Buffer, ...]:
        """Tensors that PyTorch's operators allocate in each run."""
        return tuple(
            Buffer(name, life.nbytes, life.first, life.last)
            for name, life in self._lives.items() if not life.in_arena
        )  # fmt: skip

    @property
    def offsets(self) -> Mapping[str, int]:
        """The offset of each tensor, whole and workspace in the arena."""
        there = self.plan.offsets
        return {**there, **{name: there[first] for name, first in self._over.items()}}

    @property
    def nbytes(self) -> int:
        """Bytes of the arena, plus the peak outside of it."""
        return self.plan.nbytes + lower_bound(self.outside)

    @property
    def without_reuse(self) -> int:
        """Bytes of all results if each had memory of its own."""
        return sum(life.nbytes for life in self._lives.values())

    def owner(self, name: str) -> str:
        """The tensor whose memory a view or slice uses."""
        return self._root.get(name, name)

    def dropped_after(self, number: int) -> Iterator[str]:
        """Tensors outside of the arena that no step after this one needs."""
        return iter(self._dropped.get(number, ()))

    @once
    def _dropped(self) -> dict[int, list[str]]:
        """Tensors to drop after each step, including views into the arena, which each run makes again."""
        assignment, found, last = self._assignment, dict[int, list[str]](), self._assignment.last_uses()
        views = {view for view in self._root if view not in assignment.slices}
        for name in sorted(name for step in assignment.steps for name in step.writes):
            own = self._lives.get(self.owner(name))
            if name in views or (own is not None and not own.in_arena):
                at = own.last if own is not None and name not in views else last[name]
                found.setdefault(at, []).append(name)
        return found

    def reordered(self) -> Assignment:
        """The assignment with its steps in the order of least peak memory."""
        steps, writer = self._assignment.steps, dict[str, int]()
        tasks = list[Task]()
        for number, (step, needs) in enumerate(zip(steps, self._needs, strict=True)):
            reads = dict(step.reads).values()
            over = () if needs is None or not needs.writes_out else overwritable(step.candidate, step.reads)
            tasks.append(Task(
                tuple(sorted({writer[name] for name in reads if name in writer})),
                frozenset(self.owner(name) for name in (*reads, *step.writes)),
                0 if needs is None else needs.workspace_bytes,
                frozenset(self.owner(dict(step.reads)[role]) for role in over if self._is_own(step.writes[0])),
            ))  # fmt: skip
            writer |= dict.fromkeys(step.writes, number)
        sizes = {name: aligned(life.nbytes) for name, life in self._lives.items()}
        order = best_order(tasks, sizes, map(self.owner, self._assignment.outputs))
        return replace(self._assignment, steps=tuple(steps[number] for number in order))


def workspace_of(number: int) -> str:
    """The name of a step's workspace."""
    return f"{WORKSPACE}{number}"


def _roots(assignment: Assignment) -> dict[str, str]:
    """For a view, the tensor whose memory it uses; for a slice, the whole."""
    roots = {name: whole for name, (whole, _) in assignment.slices.items()}
    for step in assignment.steps:
        if isinstance(step.operation, View):
            read = step.reads[0][1]
            roots[step.writes[0]] = roots.get(read, read)
    return roots


def overwritable(candidate: Candidate | None, reads: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The roles of operands, among what it ``reads`` by role, that a candidate may overwrite."""
    allowed = frozenset[str]() if candidate is None else listing.overwrites(candidate)
    refused = {name for role, name in reads if role not in allowed}
    return tuple(role for role, name in reads if name not in refused)
