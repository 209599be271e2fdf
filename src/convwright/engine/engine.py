"""A network planned for one input shape. On a GPU it runs as one CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as brief
from threading import RLock
from typing import Any
from warnings import warn

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.engine.blueprint import Blueprint
from convwright.engine.export.inputs import check_evaluates, check_has_weights
from convwright.engine.inspecting.comparison import Comparison, step_errors
from convwright.engine.inspecting.explained import expected, explained
from convwright.engine.inspecting.profile import Profile
from convwright.engine.not_a_module import NotAModule
from convwright.engine.running.arena import Arena
from convwright.engine.running.eager_peak import eager_peaks
from convwright.engine.running.failure import OnFailure, is_pytorchs
from convwright.engine.running.fixed_run import FixedRun
from convwright.engine.running.memory_report import MemoryReport
from convwright.engine.running.pinned import pinned
from convwright.engine.running.program import Program, plans_of
from convwright.engine.running.shared import Shared
from convwright.engine.running.step_times import step_times
from convwright.engine.running.undisturbed import check_needs_no_gradient, undisturbed
from convwright.engine.running.weights import Weights
from convwright.engine.saving.kernels_file import kernels_written
from convwright.engine.saving.saved import folder_of, save
from convwright.engine.saving.user_kernels import unlike, user_kernels
from convwright.engine.structure import filled
from convwright.errors import BadInput, FailureWarning, Refused, StepFailed
from convwright.graph.memory_plan import MemoryPlan
from convwright.naming import singular
from convwright.notebook import Lines
from convwright.shortage import needing
from convwright.tensors import is_like, torch_dtype


class Engine(NotAModule):
    """A network planned for one input shape. Call it like the model.

    Only one thread runs it at a time; others wait. ``clone`` gives an engine that can run concurrently.
    """

    def __init__(
        self,
        made: Blueprint,
        device: DeviceFacts,
        on_failure: OnFailure = OnFailure.RAISE,
        *,
        arena: Arena | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.assignment, self.structure, self.facts = made.assignment, made.structure, device
        self.device = torch.device(str(device.torch_name))
        self._origin, self._graph, self._on_failure = made.origin, made.graph, on_failure
        self._user_kernels, self._kernels = user_kernels(self.assignment), made.kernels
        self._plans = plans_of(self.assignment, device, self._kernels)
        self._shared = Shared() if shared is None else shared
        self._ready(made.constants, arena)

    def _ready(self, constants: Mapping[str, Tensor], arena: Arena | None) -> None:
        """Pack the weights and capture the steps. If that fails, the engine stays as it was."""
        with undisturbed(self.device), needing("the engine's weights"):
            held = {name: self._shared.one(name, each) for name, each in constants.items()}
            weights = Weights(self.assignment, self._plans, held, self.device, self._shared)
        try:
            self._wire(weights, arena)
        except StepFailed as failed:
            self._leave_to_pytorch(failed)
            self._ready(constants, arena)
        else:
            self.constants = self._kept(held)

    def _kept(self, constants: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The constants, which ``save``, ``compare`` and ``pin`` need. On a GPU they stay in host memory, since steps
        read packed copies."""
        if self.device.type == "cpu":
            return constants
        return {name: self._shared.one(name, each.cpu()) for name, each in constants.items()}

    def _wire(self, weights: Weights, arena: Arena | None) -> None:
        with undisturbed(self.device):
            program = Program(self.assignment, self._plans, weights, self.device, arena)
            fixed = FixedRun(program) if self.device.type == "cuda" else None
        self._weights, self._program, self._fixed = weights, program, fixed

    def __call__(self, *inputs: Any) -> Any:
        """The model's outputs for these inputs, in new memory, without gradients. An input may require them only in
        torch.no_grad()."""
        is_flat = all(type(each) is Tensor for each in inputs)
        given = list(inputs) if is_flat else torch_api.flatten(inputs)[0]
        self._check(given)
        check_needs_no_gradient(given)
        with self.turn, needing("a run of the engine"):
            try:
                outputs = self._outputs(given)
            except StepFailed as failed:
                self._leave_to_pytorch(failed)
                self._ready(self.constants, self._program.arena)
                return self(*inputs)
        return filled(self.structure, outputs)

    def _outputs(self, given: Sequence[Tensor]) -> list[Tensor]:
        if self._fixed is not None and self.device.type == "cuda":
            return self._fixed.of(given)
        with undisturbed(self.device):
            return self._program.outputs(self._program.run(self._program.take(given)), given)

    def _leave_to_pytorch(self, failed: StepFailed) -> None:
        """Replace the failed step by PyTorch's own call, if the user asked for that."""
        step = self.assignment.steps[failed.number]
        if self._on_failure is not OnFailure.TORCH or is_pytorchs(step):
            raise failed
        warn(f"PyTorch computes {step.name} from now on: {failed}", FailureWarning, stacklevel=3)
        self.assignment = pinned(self.assignment, (failed.number,), self.facts)
        self._plans = plans_of(self.assignment, self.facts, self._kernels)

    @property
    def turn(self) -> RLock:
        """The lock that a thread holds while it runs an engine in this arena."""
        return self._program.arena.turn

    @property
    def input(self) -> Any:
        """The tensor that ``run`` reads, or a tuple of them if the model takes several."""
        self._program.arena.join()  # writes to the input must come after the last run
        inputs = self._at_rest.inputs
        return inputs[0] if len(inputs) == 1 else tuple(inputs)

    @property
    def output(self) -> Any:
        """The tensors that ``run`` writes, nested as the model returns them."""
        self._program.arena.join()
        return filled(self.structure, self._at_rest.outputs)

    def run(self) -> Any:
        """Compute ``output`` from ``input``, and return it. The next run or call overwrites it."""
        with self.turn, needing("a run of the engine"):
            try:
                check_needs_no_gradient(self._at_rest.inputs)
            except BadInput:
                for each in self._at_rest.inputs:
                    each.detach_()
                raise
            try:
                self._at_rest.run()
            except StepFailed as failed:
                self._leave_to_pytorch(failed)
                inputs = [each.clone() for each in self._at_rest.inputs]
                self._ready(self.constants, self._program.arena)
                for fixed, tensor in zip(self._at_rest.inputs, inputs, strict=True):
                    fixed.copy_(tensor)
                return self.run()
            return self.output

    @property
    def _at_rest(self) -> FixedRun:
        """The run on fixed tensors; on a CPU it is built at first use."""
        if self._fixed is None:
            with self.turn, undisturbed(self.device):  # building it runs all steps in the arena
                if self._fixed is None:  # another thread may have built it meanwhile
                    self._fixed = FixedRun(self._program)
        return self._fixed

    def clone(self, arena: Arena | None = None) -> Engine:
        """An engine with the same weights and its own memory, which another thread may call at the same time.
        Engines in one ``arena`` run one at a time."""
        if arena is not None and not isinstance(arena, Arena):
            raise BadInput(f"`arena` must be an arena, or left out, got {brief(arena)}")
        with self.turn:
            self._program.arena.join()
            other = object.__new__(Engine)
            vars(other).update(vars(self))
            other._wire(self._weights, arena)
        return other

    def update(self, model: nn.Module) -> None:
        """Copy the current weights of ``model``, which must be the model that the engine was made from, or one with the
        same parameters, in evaluation mode. Nothing is searched again. On a GPU this waits for running work. ``input``
        and ``output`` are new tensors afterwards."""
        check_evaluates(model)
        check_has_weights(model)
        if self._origin is None:
            raise BadInput(
                "this engine is from a folder of an older convwright, which does not say how its weights follow from "
                "the model's: plan the model again"
            )
        constants = self._origin().network(model).constants
        self._check_constants(constants)
        with self.turn:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # running work uses memory that is freed below
            self._ready(constants, self._program.arena)

    def _check_constants(self, constants: Mapping[str, Tensor]) -> None:
        """Refuse constants that are not the plan's: another version may have other passes."""
        for name, spec in self.assignment.constants.items():
            if not is_like(constants.get(name), spec):
                raise BadInput(f"the model gives no {name!r} of {spec.dtype} {spec.shape}: plan the model again")

    @property
    def blueprint(self) -> Blueprint:
        """Everything the engine is made of except its memory."""
        return Blueprint(self.assignment, self.constants, self.structure, self._origin, self._graph, self._kernels)

    @property
    def held(self) -> list[Tensor]:
        """The constants and packed weights in the device's memory."""
        return [*(each for each in self.constants.values() if each.device == self.device), *self._weights]

    def save(self, folder: Path | str, *, kernels: bool = False) -> None:
        """Write the plan and the weights to a folder, which ``load`` reads.

        ``kernels=True`` writes the compiled kernels too; ``load`` with ``trust_kernels=True`` then compiles nothing.
        """
        if (missing := unlike(self._user_kernels)) is not None:
            raise Refused(f"the engine runs {missing}")
        made = self.blueprint
        save(folder_of(folder), made, self.facts, kernels_written([made], self.facts) if kernels else None)

    def explain(self) -> str:
        """A table of the steps: candidate, layout, time, and the least time that the device needs."""
        return Lines(explained(self.assignment, self.facts, self.memory_plan))

    def memory_report(self, model: nn.Module | None = None, *inputs: Any) -> MemoryReport:
        """The memory that the engine holds. Printed it is a table; ``draw(path)`` draws the arena.

        On a GPU, with ``model`` and inputs, it also reports the peak of a run of the model itself.
        """
        report = self._program.memory_report(self.held)
        if (model is None) != (not inputs):
            raise BadInput("`memory_report` takes a model and its inputs, or neither: give both or none")
        if self.device.type != "cuda":
            return report
        with undisturbed(self.device):
            eager = None if model is None else eager_peaks(model, inputs, self.device)
            free, total = torch.cuda.mem_get_info(self.device)
            context = total - free - torch.cuda.memory_reserved(self.device)
        return replace(report, pool=self._at_rest.pool_bytes, context=context, eager=eager)

    def profile(self, *inputs: Any) -> Profile:
        """The time of each step in the engine, for these inputs; by default for the contents of ``input``."""
        given = torch_api.flatten(inputs)[0] if inputs else self._at_rest.inputs
        self._check(given)
        return Profile.of(self.assignment, self.step_times(given))

    @torch.no_grad()
    def compare(
        self, model: nn.Module, *inputs: Any, tolerance: float | None = None, save_to: Path | str | None = None
    ) -> Comparison:
        """Compare each step with float64 on the same operands, and the outputs with the model in float64.

        ``tolerance`` is the largest relative L2 error that a step may have; by default more than rounding explains. The
        operands and results of the first step above it are written to the file ``save_to``. ``pin`` replaces a step.
        """
        check_evaluates(model)
        check_has_weights(model)
        given, _ = torch_api.flatten(inputs)
        self._check(given)
        with self.turn, undisturbed(self.device):
            path = None if save_to is None else Path(save_to)
            steps = step_errors(self._program, self.constants, given, tolerance, path)
        return Comparison.of(steps, model, inputs, self(*inputs))

    def pin(self, name: str) -> Engine:
        """An engine in which PyTorch's own call computes the step ``name``."""
        number = next((at for at, each in enumerate(self.assignment.steps) if each.name == name), None)
        if number is None:
            raise BadInput(f"no step is called {name!r}; `explain` lists them")
        step = self.assignment.steps[number]
        if step.candidate is None:
            raise BadInput(f"{name} cannot be pinned: PyTorch computes it already, or it runs nothing")
        made = replace(self.blueprint, assignment=pinned(self.assignment, (number,), self.facts))
        return Engine(made, self.facts, self._on_failure)

    @property
    def memory_plan(self) -> MemoryPlan:
        """The place of each buffer in the arena."""
        return self._program.memory_plan

    @property
    def arena_bytes(self) -> int:
        """Size of the one memory block that steps write to."""
        return self.memory_plan.nbytes

    def step_times(self, inputs: Sequence[Tensor]) -> list[float]:
        """The time of each step during a run, in microseconds."""
        with self.turn, undisturbed(self.device):
            return step_times(self._program, inputs)

    def objection(self, given: Sequence[Any], batch: int | None = None) -> str | None:
        """The reason to refuse these tensors, or None. ``batch`` replaces the batch size of the plan."""
        names = self.assignment.inputs
        if len(given) != len(names):
            return singular(f"the engine takes {len(names)} tensors, got {len(given)}")
        for name, tensor in zip(names, given, strict=True):
            spec, name = self.assignment.tensors[name], name.partition("@")[0]  # the layout does not matter here
            dtype, shape = torch_dtype(spec.dtype), spec.shape if batch is None else (batch, *spec.shape[1:])
            if not isinstance(tensor, Tensor) or (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
                got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
                is_batch = isinstance(tensor, Tensor) and (tensor.shape[1:], tensor.dtype) == (shape[1:], dtype)
                cure = "; an engine with several batch sizes is planned with `buckets`" * (is_batch and batch is None)
                return f"`{name}` must be {dtype} {shape}, got {got}{cure}"
            if tensor.layout is not torch.strided:
                return f"`{name}` must be a dense tensor, got a sparse one"
            if tensor.device != self.device and tensor.device.type != self.device.type:
                return f"`{name}` must be on {self.device}, got one on {tensor.device}"
        return None

    def __repr__(self) -> str:
        return singular(
            f"<Engine: {len(self.assignment.steps)} steps on {self.facts.key}, {expected(self.assignment)}>"
        )

    def _check(self, given: Sequence[Any]) -> None:
        reason = self.objection(given)
        if reason is not None:
            raise BadInput(reason)
