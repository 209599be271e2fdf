"""What a user calls: a network that is planned for inputs of one shape, on a GPU as one CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.assignment import Assignment
from convwright.engine.comparison import Comparison, step_errors
from convwright.engine.cuda_graph import CudaGraph
from convwright.engine.explained import explained
from convwright.engine.memory_report import MemoryReport
from convwright.engine.origin import Origin
from convwright.engine.profile import Profile
from convwright.engine.program import Program, Values
from convwright.engine.saved import save
from convwright.engine.step_times import step_times
from convwright.engine.structure import Structure, filled
from convwright.engine.undisturbed import undisturbed
from convwright.engine.user_kernels import unlike, user_kernels
from convwright.engine.weights import Weights
from convwright.errors import BadInput, Refused
from convwright.graph.memory_plan import MemoryPlan
from convwright.tensors import torch_dtype
from convwright.tuning.asked import named
from convwright.tuning.listing import build


class Engine:
    """A network that is planned for inputs of one shape. Called, it gives what the model gives.

    One thread at a time may call it.
    """

    def __init__(
        self,
        assignment: Assignment,
        constants: Mapping[str, Tensor],
        device: DeviceFacts,
        structure: Structure,
        origin: Origin | None = None,
    ) -> None:
        self.assignment, self.constants, self.structure, self.facts = assignment, constants, structure, device
        self.device, self._origin = torch.device(str(device.torch_name)), origin
        self._user_kernels = user_kernels(assignment)
        self._plans = [None if step.candidate is None else build(step.candidate, device) for step in assignment.steps]
        self._ready(constants)

    def _ready(self, constants: Mapping[str, Tensor]) -> None:
        """Pack the weights, and capture the steps."""
        with undisturbed(self.device):
            self._weights = Weights(self.assignment, self._plans, constants, self.device)
            self._wire()

    def _wire(self) -> None:
        self._program = Program(self.assignment, self._plans, self._weights, self.device)
        self._values: Values = []
        self._captured = CudaGraph(self._compute, self.device) if self.device.type == "cuda" else None

    def __call__(self, *inputs: Any) -> Any:
        """The model's outputs for these inputs, in memory of their own."""
        given, _ = torch_api.flatten(inputs)
        self._check(given)
        with undisturbed(self.device):
            if self._captured is None or torch_api.is_capturing():  # inside a user's graph steps are a part of that
                values = self._program.run(self._program.take(given))
            else:
                self._captured.join()
                self._program.take(given)
                self._captured.replay()
                values = self._values
            outputs = self._program.outputs(values, given, replayed=self._captured is not None)
        return filled(self.structure, outputs)

    def clone(self) -> Engine:
        """An engine that another thread may call at the same time. It shares the weights, and has memory of its own."""
        other = copy(self)
        with undisturbed(self.device):
            other._wire()
        return other

    def update(self, model: nn.Module) -> None:
        """Take the weights that ``model`` has by now. It must be the model that the engine was made of, or one like it;
        nothing is searched again. On a GPU it waits for the runs that were begun."""
        if self._origin is None:
            raise BadInput("an engine from a folder does not know how its weights follow from a model's: make it anew")
        self.constants = self._origin.network(model).constants
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # they use memory that is given back
        self._ready(self.constants)

    def save(self, folder: Path | str) -> None:
        """Write the plan and the weights to a folder, from which ``load`` makes the engine again."""
        if (missing := unlike(self._user_kernels)) is not None:
            raise Refused(f"the engine runs {missing}")
        save(Path(folder), self.assignment, self.constants, self.facts, self.structure)

    def explain(self) -> str:
        """A table of the steps: what runs, in which layout, how long it takes and what the device needs at least."""
        return explained(self.assignment, self.facts, self.memory_plan)

    def memory_report(self) -> MemoryReport:
        """What the engine keeps in memory. Printed it is a table; ``draw(path)`` makes a picture of the arena."""
        return self._program.memory_report(self.constants.values())

    def profile(self, *inputs: Any) -> Profile:
        """What each step takes where it runs, on these inputs."""
        given, _ = torch_api.flatten(inputs)
        self._check(given)
        return Profile.of(self.assignment, self.step_times(given))

    @torch.no_grad()
    def compare(
        self, model: nn.Module, *inputs: Any, tolerance: float | None = None, save_to: Path | str | None = None
    ) -> Comparison:
        """Hold each step against float64 on the tensors that it read, and the outputs against the model in float64.

        A step is over its ``tolerance``, a relative L2 error, by default at more than rounding explains. Operands and
        results of the first that is are written to the file ``save_to``; ``pin`` lets PyTorch compute it.
        """
        given, _ = torch_api.flatten(inputs)
        self._check(given)
        with undisturbed(self.device):
            path = None if save_to is None else Path(save_to)
            steps = step_errors(self._program, self.constants, given, tolerance, path)
        return Comparison.of(steps, model, inputs, self(*inputs))

    def pin(self, name: str) -> Engine:
        """An engine in which PyTorch's own call computes the step of this name."""
        number = next((at for at, each in enumerate(self.assignment.steps) if each.name == name), None)
        if number is None:
            raise BadInput(f"no step is called {name!r}; `explain` lists them")
        step = self.assignment.steps[number]
        if step.candidate is None:
            raise BadInput(f"{name} is not computed by a candidate: it is PyTorch's already, or runs nothing")
        own = named("torch/default", step.candidate.problem, self.facts, Policy())
        steps = list(self.assignment.steps)
        steps[number] = replace(step, candidate=own)
        pinned = replace(self.assignment, steps=tuple(steps))
        return Engine(pinned, self.constants, self.facts, self.structure, self._origin)

    @property
    def memory_plan(self) -> MemoryPlan:
        """Where each buffer lies in the arena."""
        return self._program.memory_plan

    @property
    def arena_bytes(self) -> int:
        """Bytes of the one block that holds what steps write to memory that is given to them."""
        return self.memory_plan.nbytes

    def step_times(self, inputs: Sequence[Tensor]) -> list[float]:
        """What each step takes in a run, in microseconds."""
        with undisturbed(self.device):
            return step_times(self._program, inputs)

    def _compute(self) -> None:
        self._values = self._program.rerun()

    def objection(self, given: Sequence[Any]) -> str | None:
        """Why the engine does not take these tensors; None where it does."""
        names = self.assignment.inputs
        if len(given) != len(names):
            return f"the engine takes {len(names)} tensors, got {len(given)}"
        for name, tensor in zip(names, given, strict=True):
            spec = self.assignment.tensors[name]
            dtype = torch_dtype(spec.dtype)
            if not isinstance(tensor, Tensor) or (tuple(tensor.shape), tensor.dtype) != (spec.shape, dtype):
                got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
                return f"`{name}` must be {dtype} {spec.shape}, got {got}"
            if tensor.device != self.device and tensor.device.type != self.device.type:
                return f"`{name}` must be on {self.device}, got one on {tensor.device}"
        return None

    def _check(self, given: Sequence[Any]) -> None:
        reason = self.objection(given)
        if reason is not None:
            raise BadInput(reason)
