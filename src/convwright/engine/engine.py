"""What a user calls: a network that is planned for inputs of one shape, on a GPU as one CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from threading import RLock
from typing import Any
from warnings import warn

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.engine.assignment import Assignment
from convwright.engine.comparison import Comparison, step_errors
from convwright.engine.cuda_graph import CudaGraph
from convwright.engine.explained import explained
from convwright.engine.failure import OnFailure, is_pytorchs
from convwright.engine.memory_report import MemoryReport
from convwright.engine.origin import Origin
from convwright.engine.pinned import pinned
from convwright.engine.profile import Profile
from convwright.engine.program import Program, Values
from convwright.engine.saved import save
from convwright.engine.step_times import step_times
from convwright.engine.structure import Structure, filled
from convwright.engine.undisturbed import undisturbed
from convwright.engine.weights import Weights
from convwright.errors import BadInput, FailureWarning, Refused, StepFailed
from convwright.forking import forks
from convwright.graph.graph import Graph
from convwright.graph.memory_plan import MemoryPlan
from convwright.shortage import needing
from convwright.tensors import torch_dtype
from convwright.tuning.listing import build


class Engine:
    """A network that is planned for inputs of one shape. Called, it gives what the model gives.

    Threads that call it take turns. ``clone`` gives one that runs at the same time.
    """

    def __init__(
        self,
        assignment: Assignment,
        constants: Mapping[str, Tensor],
        device: DeviceFacts,
        structure: Structure,
        origin: Origin | None = None,
        graph: Graph | None = None,
        on_failure: OnFailure = OnFailure.RAISE,
    ) -> None:
        self.assignment, self.constants, self.structure, self.facts = assignment, constants, structure, device
        self.device, self._origin = torch.device(str(device.torch_name)), origin
        self._graph, self._on_failure = graph, on_failure
        self._turn, self._forks = RLock(), forks()
        self._build()
        self._ready(constants)

    def _build(self) -> None:
        steps = self.assignment.steps
        self._plans = [None if step.candidate is None else build(step.candidate, self.facts) for step in steps]

    def _ready(self, constants: Mapping[str, Tensor]) -> None:
        """Pack the weights, and capture the steps."""
        with undisturbed(self.device), needing("the engine's weights"):
            weights = Weights(self.assignment, self._plans, constants, self.device)
        try:
            self._wire(weights)
        except StepFailed as failed:
            self._leave_to_pytorch(failed)
            self._ready(constants)

    def _wire(self, weights: Weights) -> None:
        """Until all of it is there, the engine stays what it was."""
        held: Values = []
        with undisturbed(self.device):
            program = Program(self.assignment, self._plans, weights, self.device)

            def compute() -> None:
                held[:] = program.rerun()

            captured = CudaGraph(compute, self.device) if self.device.type == "cuda" else None
        self._weights, self._program, self._values, self._captured = weights, program, held, captured

    def __call__(self, *inputs: Any) -> Any:
        """The model's outputs for these inputs, in memory of their own. It has no gradients."""
        given, _ = torch_api.flatten(inputs)
        self._check(given)
        if self._forks != forks():
            self._renew()
        with self._turn, undisturbed(self.device), needing("a run of the engine"):
            try:
                outputs = self._outputs(given)
            except StepFailed as failed:
                self._leave_to_pytorch(failed)
                self._ready(self.constants)
                return self(*inputs)
        return filled(self.structure, outputs)

    def _outputs(self, given: Sequence[Tensor]) -> list[Tensor]:
        program, captured = self._program, self._captured
        if captured is None or torch_api.is_capturing():  # inside a user's graph steps are a part of that
            values = program.run(program.take(given))
        else:
            captured.join()
            program.take(given)
            captured.replay()
            values = self._values
        return program.outputs(values, given, replayed=captured is not None)

    def _leave_to_pytorch(self, failed: StepFailed) -> None:
        """Let PyTorch's own call compute the step that failed from now on, if that was asked for."""
        step = self.assignment.steps[failed.number]
        if self._on_failure is not OnFailure.TORCH or is_pytorchs(step):
            raise failed
        warn(f"PyTorch computes {step.name} from now on: {failed}", FailureWarning, stacklevel=3)
        self.assignment = pinned(self.assignment, (failed.number,), self.facts)
        self._build()

    def _renew(self) -> None:
        """In a process that was forked off: a thread that is not there may have had its turn."""
        if self.device.type == "cuda":
            raise Refused(
                "a forked process cannot use the GPU memory of an engine: start it with the method 'spawn', and load "
                "the engine there"
            )
        # GNU's OpenMP would wait for ever for threads that are not there. PyTorch's data loader does the same.
        torch.set_num_threads(1)
        self._turn, self._forks = RLock(), forks()

    def clone(self) -> Engine:
        """An engine that another thread may call at the same time. It shares the weights, and has memory of its own."""
        with self._turn:
            other = copy(self)
        other._turn = RLock()
        other._wire(self._weights)
        return other

    def update(self, model: nn.Module) -> None:
        """Take the weights that ``model`` has by now. It must be the model that the engine was made of, or one like it;
        nothing is searched again. On a GPU it waits for the runs that were begun."""
        if self._origin is None:
            raise BadInput("an engine from a folder does not know how its weights follow from a model's: make it anew")
        constants = self._origin.network(model).constants
        with self._turn:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # they use memory that is given back
            self._ready(constants)
            self.constants = constants

    def save(self, folder: Path | str) -> None:
        """Write the plan and the weights to a folder, from which ``load`` makes the engine again."""
        save(Path(folder), self.assignment, self.constants, self.facts, self.structure, self._graph)

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
        with self._turn, undisturbed(self.device):
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
        pinned_ = pinned(self.assignment, (number,), self.facts)
        return Engine(
            pinned_, self.constants, self.facts, self.structure, self._origin, self._graph, self._on_failure
        )  # fmt: skip

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
        with self._turn, undisturbed(self.device):
            return step_times(self._program, inputs)

    def objection(self, given: Sequence[Any]) -> str | None:
        """Why the engine does not take these tensors; None where it does."""
        names = self.assignment.inputs
        if len(given) != len(names):
            return f"the engine takes {len(names)} tensors, got {len(given)}"
        for name, tensor in zip(names, given, strict=True):
            spec, name = self.assignment.tensors[name], name.partition("@")[0]  # which layout it has is no matter here
            dtype = torch_dtype(spec.dtype)
            if not isinstance(tensor, Tensor) or (tuple(tensor.shape), tensor.dtype) != (spec.shape, dtype):
                got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
                return f"`{name}` must be {dtype} {spec.shape}, got {got}"
            if tensor.layout is not torch.strided:
                return f"`{name}` must be a dense tensor, got a sparse one"
            if tensor.device != self.device and tensor.device.type != self.device.type:
                return f"`{name}` must be on {self.device}, got one on {tensor.device}"
        return None

    def _check(self, given: Sequence[Any]) -> None:
        reason = self.objection(given)
        if reason is not None:
            raise BadInput(reason)
