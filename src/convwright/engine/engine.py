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
from convwright.engine.arena import Arena
from convwright.engine.assignment import Assignment
from convwright.engine.blueprint import Blueprint
from convwright.engine.comparison import Comparison, step_errors
from convwright.engine.eager_peak import eager_peaks
from convwright.engine.explained import explained
from convwright.engine.fixed_run import FixedRun
from convwright.engine.memory_report import MemoryReport
from convwright.engine.origin import Origin
from convwright.engine.profile import Profile
from convwright.engine.program import Program, plans_of
from convwright.engine.saved import save
from convwright.engine.shared import Shared
from convwright.engine.step_times import step_times
from convwright.engine.structure import Structure, filled
from convwright.engine.undisturbed import undisturbed
from convwright.engine.user_kernels import unlike, user_kernels
from convwright.engine.weights import Weights
from convwright.errors import BadInput, Refused
from convwright.graph.memory_plan import MemoryPlan
from convwright.tensors import torch_dtype
from convwright.tuning.asked import named


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
        *,
        arena: Arena | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.assignment, self.structure, self.facts = assignment, structure, device
        self.device, self._origin = torch.device(str(device.torch_name)), origin
        self._user_kernels = user_kernels(assignment)
        self._plans, self._shared = plans_of(assignment, device), Shared() if shared is None else shared
        self._ready(constants, arena)

    def _ready(self, constants: Mapping[str, Tensor], arena: Arena | None) -> None:
        """Pack the weights, and capture the steps."""
        with undisturbed(self.device):
            self.constants = {name: self._shared.one(name, each) for name, each in constants.items()}
            self._weights = Weights(self.assignment, self._plans, self.constants, self.device, self._shared)
            self._wire(arena)

    def _wire(self, arena: Arena | None) -> None:
        self._program = Program(self.assignment, self._plans, self._weights, self.device, arena)
        self._fixed = FixedRun(self._program) if self.device.type == "cuda" else None

    def __call__(self, *inputs: Any) -> Any:
        """The model's outputs for these inputs, in memory of their own."""
        given, _ = torch_api.flatten(inputs)
        self._check(given)
        with undisturbed(self.device):
            values, is_on_gpu = self._program.take(given), self.device.type == "cuda"
            values = self._at_rest.run() if is_on_gpu else self._program.run(values)
            outputs = self._program.outputs(values, given, replayed=is_on_gpu)
        return filled(self.structure, outputs)

    @property
    def input(self) -> Any:
        """The tensor that ``run`` reads; a tuple of them where the model takes several."""
        self._program.arena.join()  # what is written to it next is written after the last run
        inputs = self._at_rest.inputs
        return inputs[0] if len(inputs) == 1 else tuple(inputs)

    @property
    def output(self) -> Any:
        """What ``run`` writes, as the model returns it."""
        self._program.arena.join()
        return filled(self.structure, self._at_rest.outputs)

    def run(self) -> Any:
        """Compute ``output`` from ``input``, and return it. The next run or call overwrites it."""
        with undisturbed(self.device):
            self._at_rest.run()
        return self.output

    @property
    def _at_rest(self) -> FixedRun:
        """The run on fixed tensors, which on a CPU is made when it is first asked for."""
        if self._fixed is None:
            with undisturbed(self.device):
                self._fixed = FixedRun(self._program)
        return self._fixed

    def clone(self, arena: Arena | None = None) -> Engine:
        """An engine that another thread may call at the same time. It shares the weights, and has memory of its own.
        Engines that lie in one ``arena`` take turns."""
        other = copy(self)
        with undisturbed(self.device):
            self._program.arena.join()
            other._wire(arena)
        return other

    def update(self, model: nn.Module) -> None:
        """Take the weights that ``model`` has by now. It must be the model that the engine was made of, or one like it;
        nothing is searched again. On a GPU it waits for the runs that were begun. ``input`` and ``output`` are others
        then."""
        if self._origin is None:
            raise BadInput("an engine from a folder does not know how its weights follow from a model's: make it anew")
        constants = self._origin.network(model).constants
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # they use memory that is given back
        self._ready(constants, self._program.arena)

    @property
    def blueprint(self) -> Blueprint:
        """What it is made of, but for memory."""
        return Blueprint(self.assignment, self.constants, self.structure, self._origin)

    @property
    def held(self) -> list[Tensor]:
        """The constants, and what is packed of them."""
        return [*self.constants.values(), *self._weights]

    def save(self, folder: Path | str) -> None:
        """Write the plan and the weights to a folder, from which ``load`` makes the engine again."""
        if (missing := unlike(self._user_kernels)) is not None:
            raise Refused(f"the engine runs {missing}")
        save(Path(folder), self.assignment, self.constants, self.facts, self.structure)

    def explain(self) -> str:
        """A table of the steps: what runs, in which layout, how long it takes and what the device needs at least."""
        return explained(self.assignment, self.facts, self.memory_plan)

    def memory_report(self, model: nn.Module | None = None, *inputs: Any) -> MemoryReport:
        """What the engine keeps in memory. Printed it is a table; ``draw(path)`` makes a picture of the arena.

        With ``model`` and inputs, on a GPU, it also has the peak of a run of the model itself.
        """
        report = self._program.memory_report(self.constants.values())
        if (model is None) != (not inputs):
            raise BadInput("`memory_report` takes a model and its inputs, or neither")
        if self.device.type != "cuda":
            return report
        with undisturbed(self.device):
            eager = None if model is None else eager_peaks(model, inputs, self.device)
            free, total = torch.cuda.mem_get_info(self.device)
            context = total - free - torch.cuda.memory_reserved(self.device)
        return replace(report, pool=self._at_rest.pool_bytes, context=context, eager=eager)

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

    def objection(self, given: Sequence[Any], batch: int | None = None) -> str | None:
        """Why the engine does not take these tensors; None where it does. ``batch`` stands for that of the plan."""
        names = self.assignment.inputs
        if len(given) != len(names):
            return f"the engine takes {len(names)} tensors, got {len(given)}"
        for name, tensor in zip(names, given, strict=True):
            spec = self.assignment.tensors[name]
            dtype, shape = torch_dtype(spec.dtype), spec.shape if batch is None else (batch, *spec.shape[1:])
            if not isinstance(tensor, Tensor) or (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
                got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
                return f"`{name}` must be {dtype} {shape}, got {got}"
            if tensor.device != self.device and tensor.device.type != self.device.type:
                return f"`{name}` must be on {self.device}, got one on {tensor.device}"
        return None

    def _check(self, given: Sequence[Any]) -> None:
        reason = self.objection(given)
        if reason is not None:
            raise BadInput(reason)
