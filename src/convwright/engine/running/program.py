"""An assignment ready to run: its steps as calls, one arena, packed weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from convwright import torch_api
from convwright.core.binding import RolePlan, bind_prepared
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.plan import Plan
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export.foreign import prepared
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.lifetimes import Lifetimes, workspace_of
from convwright.engine.running.arena import Arena
from convwright.engine.running.failure import failure
from convwright.engine.running.memory_report import MemoryReport
from convwright.engine.running.weights import Weights, nbytes_of
from convwright.graph.operations import Foreign, Join, Part, View
from convwright.shortage import needing
from convwright.store.kept_plans import KeptPlans
from convwright.tensors import carve, empty, laid_, lies_as
from convwright.tuning.listing import build
from convwright.tuning.stored_plan import stored_plan

# The tensors of one run by index; None before they are computed and after their last use.
Values = list[Tensor | None]
_Run = Callable[[Values], None]


class Program:
    """The steps of an assignment. Plans that write to given memory use the ``arena``, by default a new one. On a CPU
    most of PyTorch's operators allocate their output in each run."""

    def __init__(
        self, assignment: Assignment, plans: Sequence[Plan | None], weights: Weights, device: torch.device,
        arena: Arena | None = None,
    ) -> None:  # fmt: skip
        self.assignment, self.device, self._weights = assignment, device, weights
        self._places = {name: place for place, name in enumerate((*assignment.tensors, *assignment.constants))}
        self.lifetimes = Lifetimes(assignment, plans)
        self.memory_plan, needed = self.lifetimes.plan, self.lifetimes.plan.nbytes
        with needing(f"the engine's arena of {needed:,} bytes"):
            is_enough = arena is not None and arena.memory.numel() >= needed
            self.arena = arena if arena is not None and is_enough else Arena(needed, self.device)
        self._static = self._fixed_values()
        self._steps = [
            (self._runner(number, step, plan), self._dropped(number))
            for number, (step, plan) in enumerate(zip(assignment.steps, plans, strict=True))
        ]

    def memory_report(self, held: Iterable[Tensor]) -> MemoryReport:
        """The contents of the arena over time, and the memory outside of it. ``held`` are constants, packed or not."""
        lifetimes = self.lifetimes
        return MemoryReport(
            lifetimes.plan, tuple(lifetimes.buffers), lifetimes.outside, nbytes_of(held),
            lifetimes.without_reuse, len(self.assignment.steps),
        )  # fmt: skip

    def place(self, name: str) -> int:
        """The index of a tensor among the values of a run."""
        return self._places[name]

    def take(self, given: Sequence[Tensor]) -> Values:
        """Values at the start of a run. A GPU's steps read inputs from fixed memory, a CPU's read them in place."""
        self.arena.join()
        values = list(self._static)
        for name, tensor in zip(self.assignment.inputs, given, strict=True):
            held, spec = values[self._places[name]], self.assignment.tensors[name]
            if held is tensor:
                continue
            if held is not None:
                held.copy_(tensor.detach())
            else:
                # Kernels read raw memory, where a tensor with PyTorch's negative bit has the opposite sign.
                lies = lies_as(tensor, spec) and not tensor.is_neg()
                lies = lies and not torch_api.share_storage(tensor, self.arena.memory)
                values[self._places[name]] = tensor.detach() if lies else empty(spec, self.device).copy_(tensor)
        return values

    def fixed_inputs(self) -> list[Tensor]:
        """Memory for inputs: on a GPU the fixed memory that steps read, on a CPU new memory."""
        names, tensors = self.assignment.inputs, self.assignment.tensors
        held = [self._static[self._places[name]] for name in names]
        return [
            empty(tensors[name], self.device).zero_() if there is None else there
            for name, there in zip(names, held, strict=True)
        ]

    def run(self, values: Values, at: Callable[[], object] | None = None) -> Values:
        """The values that are still needed after all steps. ``at`` is called before the first step and after each."""
        for number, (step, dropped) in enumerate(self._steps):
            if at is not None:
                at()
            try:
                step(values)
            except Exception as error:  # a kernel can raise anything
                raise failure(self.assignment.steps[number], number, error) from error
            for place in dropped:
                values[place] = None
        if at is not None:
            at()
        return values

    def rerun(self, at: Callable[[], object] | None = None) -> Values:
        """Run again on the inputs in fixed memory."""
        return self.run(list(self._static), at)

    def outputs(self, values: Values, given: Sequence[Tensor]) -> list[Tensor]:
        """The model's outputs, in memory that the next run does not overwrite."""
        inputs, own = dict(zip(self.assignment.inputs, given, strict=True)), dict[str, Tensor]()
        for name in dict.fromkeys(self.assignment.outputs):
            value, root = values[self._places[name]], self.lifetimes.owner(name)
            assert value is not None
            is_kept = root in inputs or self._static[self._places[root]] is not None
            own[name] = inputs[name] if name in inputs else value.clone() if is_kept else value
        return [own[name] for name in self.assignment.outputs]

    def _fixed_values(self) -> Values:
        """The tensors at fixed addresses: constants, the arena's tensors, inputs on a GPU."""
        values: Values = [None] * len(self._places)
        for name in self.assignment.inputs if self.device.type == "cuda" else ():
            values[self._places[name]] = empty(self.assignment.tensors[name], self.device)
        for name, tensor in self._weights.tensors.items():
            values[self._places[name]] = tensor
        for name, offset in self.lifetimes.offsets.items():
            if name in self.assignment.tensors:
                values[self._places[name]] = carve(self.arena.memory, offset, self.assignment.tensors[name])
        for name, (whole, start) in self.assignment.slices.items():
            offset = self.memory_plan.offsets[whole] + start
            values[self._places[name]] = carve(self.arena.memory, offset, self.assignment.tensors[name])
        return values

    def _dropped(self, number: int) -> tuple[int, ...]:
        """The indices of tensors that no later step needs."""
        return tuple(self._places[name] for name in self.lifetimes.dropped_after(number))

    def _runner(self, number: int, step: Step, plan: Plan | None) -> _Run:
        reads = tuple(self._places[name] for _, name in step.reads)
        if isinstance(step.operation, View):
            return _viewing(reads[0], self._places[step.writes[0]], step.operation.y)
        if isinstance(step.operation, Join | Part):
            return _nothing
        if isinstance(step.operation, Foreign):
            return _calling_pytorch(step.operation, reads, tuple(self._places[name] for name in step.writes))
        assert plan is not None
        workspace = self._workspace(number, plan)
        (name,) = step.writes
        fixed = self._weights.operands[number]
        operands = {
            role: fixed[role] if role in fixed else self._static[place]
            for (role, _), place in zip(step.reads, reads, strict=True)
        }
        out, missing = self._static[self._places[name]], [role for role, held in operands.items() if held is None]
        if out is not None and not plan.writes_out:
            return _copied(self._computing(plan, step, operands, None, workspace), self._places[name], out)
        if out is not None and not missing:
            there = {role: held for role, held in operands.items() if held is not None}
            return _calling(bind_prepared(plan, {**there, step.operation.outputs[-1]: out}, workspace))
        return self._computing(plan, step, operands, out, workspace)

    def _computing(
        self, plan: Plan, step: Step, operands: Mapping[str, Tensor | None], out: Tensor | None,
        workspace: Tensor | None,
    ) -> _Run:  # fmt: skip
        places, (name,) = {role: self._places[value] for role, value in step.reads}, step.writes
        if isinstance(plan, RolePlan):
            given = operands if out is None else {**operands, step.operation.outputs[-1]: out}
            return _ComputingByRole(plan, given, places, workspace, self._places[name])
        return _Calling(plan, operands, places, out, workspace, self._places[name])

    def _workspace(self, number: int, plan: Plan) -> Tensor | None:
        if not plan.workspace_bytes:
            return None
        offset = self.memory_plan.offsets[workspace_of(number)]
        return self.arena.memory[offset : offset + plan.workspace_bytes]


def plans_of(assignment: Assignment, device: DeviceFacts, kernels: KeptPlans | None = None) -> list[Plan | None]:
    """The plan of each step that has a candidate. Kernels in ``kernels`` are not compiled again."""

    def plan(candidate: Candidate) -> Plan:
        return build(candidate, device) if kernels is None else stored_plan(candidate, device, kernels)

    return [None if step.candidate is None else plan(step.candidate) for step in assignment.steps]


def arena_bytes(assignment: Assignment, plans: Sequence[Plan | None]) -> int:
    """Bytes that a program needs in the arena."""
    return Lifetimes(assignment, plans).plan.nbytes


class _Calling:
    """A convolution whose operands or result have other addresses in each run."""

    def __init__(
        self, plan: Plan, operands: Mapping[str, Tensor | None], places: Mapping[str, int],
        out: Tensor | None, workspace: Tensor | None, result: int,
    ) -> None:  # fmt: skip
        self._run: Callable[..., Tensor] = plan
        self._out, self._workspace, self._result = out, workspace, result
        roles = (*plan.candidate.problem.direction.operands, Role.BIAS, Role.RESIDUAL)
        self._operands = [(operands.get(str(role)), places.get(str(role))) for role in roles]

    def __call__(self, values: Values) -> None:
        operands: list[Any] = [
            held if held is not None or place is None else values[place] for held, place in self._operands
        ]
        values[self._result] = self._run(*operands, out=self._out, workspace=self._workspace)


class _ComputingByRole:
    """The same for a plan that takes its operands by role."""

    def __init__(
        self, plan: RolePlan, operands: Mapping[str, Tensor | None], places: Mapping[str, int],
        workspace: Tensor | None, result: int,
    ) -> None:  # fmt: skip
        self._plan, self._workspace, self._result = plan, workspace, result
        self._fixed = {role: held for role, held in operands.items() if held is not None}
        self._places = [(role, place) for role, place in places.items() if role not in self._fixed]

    def __call__(self, values: Values) -> None:
        operands: dict[str, Any] = {**self._fixed, **{role: values[place] for role, place in self._places}}
        values[self._result] = self._plan.compute(operands, self._workspace)


def _nothing(values: Values) -> None:
    """For a concatenation in place, and for parts of a value: nothing to do."""


def _copied(run: _Run, place: int, out: Tensor) -> _Run:
    """For a plan that allocates its output: copy that to its place in a slice."""

    def copied(values: Values) -> None:
        run(values)
        result = values[place]
        assert result is not None
        values[place] = out.copy_(result)

    return copied


def _viewing(read: int, write: int, spec: TensorSpec) -> _Run:
    def run(values: Values) -> None:
        held = values[read]
        assert held is not None
        values[write] = held.view(spec.shape)

    return run


def _calling_pytorch(operation: Foreign, reads: tuple[int, ...], writes: tuple[int, ...]) -> _Run:
    compute = prepared(operation)

    def run(values: Values) -> None:
        results = compute([values[place] for place in reads])  # type: ignore[misc]
        for place, result, spec in zip(writes, results, operation.results, strict=True):
            values[place] = laid_(result, spec)

    return run


def _calling(call: Callable[[], object]) -> _Run:
    def run(values: Values) -> None:
        call()

    return run
