"""Compare an engine with float64 step by step, each step on the operands that it read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from convwright import torch_api
from convwright.core.dtype import DType
from convwright.engine.export.exported import exported
from convwright.engine.planning.step_text import table, what_runs
from convwright.engine.precision.checking import relative_l2
from convwright.engine.reference import evaluated, reference
from convwright.engine.running.program import Program, Values
from convwright.engine.saving.saved import safetensors
from convwright.graph.operations import NOTHING_RUNS

# The default limit for a step's relative L2 error, by the coarsest type that it reads or writes, because PyTorch's
# operators round to that internally. It is several times what rounding explains, including TF32 and products of fp16.
_TOLERANCES = {DType.FP64: 1e-11, DType.FP32: 2e-3, DType.FP16: 1e-2, DType.BF16: 5e-2}

# An output whose error is this many times the model's own is another model's.
_FAR = 10


@dataclass(frozen=True, slots=True)
class StepError:
    """``error`` is the relative L2 error of a step's results against float64 on the same operands."""

    name: str
    runs: str
    error: float
    tolerance: float

    @property
    def is_over(self) -> bool:
        return not self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Comparison:
    """``outputs`` are the relative L2 errors of the engine's outputs against the model in float64; ``models`` are the
    errors of the model itself. Printed, it is a table."""

    steps: tuple[StepError, ...]
    outputs: tuple[float, ...]
    models: tuple[float, ...]

    @classmethod
    def of(cls, steps: tuple[StepError, ...], model: nn.Module, inputs: tuple[Any, ...], outputs: Any) -> Comparison:
        tensors, _ = torch_api.flatten(inputs)
        right = reference(exported(model, inputs, tensors).network, tensors)
        ours, own = (torch_api.flatten(each)[0] for each in (outputs, model(*inputs)))
        return cls(steps, relative_l2(ours, right), relative_l2(own, right))

    @property
    def first_over(self) -> StepError | None:
        """The first step whose error is over its tolerance."""
        return next((each for each in self.steps if each.is_over), None)

    @property
    def is_another_model(self) -> bool:
        """Whether an output errs by more than the steps explain."""
        most = max((each.tolerance for each in self.steps), default=0.0)
        pairs = zip(self.outputs, self.models, strict=True)
        return self.first_over is None and any(ours > most and ours > _FAR * theirs for ours, theirs in pairs)

    def __str__(self) -> str:
        rows = [(each.name, each.runs, f"{each.error:.1e}", f"{each.tolerance:.1e}") for each in self.steps]
        pairs = enumerate(zip(self.outputs, self.models, strict=True))
        lines = [f"output {place}: {ours:.1e}, the model itself {theirs:.1e}" for place, (ours, theirs) in pairs]
        over = "no step is over its tolerance"
        if self.first_over is not None:
            over = f"the first step over its tolerance is {self.first_over.name}"
        elif self.is_another_model:
            over += ", but outputs are not the model's: the engine was planned with another model, or has other weights"
        return "\n".join((table(("step", "runs", "error", "tolerance"), rows, numbers=(2, 3)), "", *lines, over))


def step_errors(
    program: Program,
    constants: Mapping[str, Tensor],
    given: Sequence[Tensor],
    tolerance: float | None,
    save_to: Path | None,
) -> tuple[StepError, ...]:
    """Run the steps one by one. Operands and results of the first step over its tolerance are written to
    ``save_to``."""
    watched = _Watched(program, constants, tolerance, save_to)
    watched.values = program.take(given)
    program.run(watched.values, at=watched.between)
    return tuple(watched.errors)


class _Watched:
    """Records what a step reads before it runs, and what it has written afterwards."""

    def __init__(
        self, program: Program, constants: Mapping[str, Tensor], tolerance: float | None, save_to: Path | None
    ) -> None:
        self.values: Values = []
        self.errors: list[StepError] = []
        self._program, self._constants, self._tolerance, self._save_to = program, constants, tolerance, save_to
        self._number, self._read = 0, dict[str, Tensor]()

    def between(self) -> None:
        steps = self._program.assignment.steps
        if self._number:
            self._look(self._number - 1)
        if self._number < len(steps):
            reads = steps[self._number].reads
            self._read = {role: self._tensor(name).clone() for role, name in reads}
        self._number += 1

    def _tensor(self, name: str) -> Tensor:
        if name in self._constants:
            return self._constants[name].to(self._program.device)
        tensor = self.values[self._program.place(name)]
        assert tensor is not None
        return tensor

    def _look(self, number: int) -> None:
        step = self._program.assignment.steps[number]
        if isinstance(step.operation, NOTHING_RUNS):
            return
        every = evaluated(step.operation, {role: tensor.double() for role, tensor in self._read.items()})
        # The run has dropped outputs that no step reads.
        kept = [at for at, name in enumerate(step.writes) if self.values[self._program.place(name)] is not None]
        made, right = [self._tensor(step.writes[at]) for at in kept], [every[at] for at in kept]
        specs = step.operation.operands.values()
        tolerance = self._tolerance or max(_TOLERANCES.get(spec.dtype, 0.0) for spec in specs)
        error = StepError(step.name, what_runs(step), max(relative_l2(made, right)), tolerance)
        if error.is_over and self._save_to is not None and not any(each.is_over for each in self.errors):
            _save(self._save_to, self._read, made, right)
        self.errors.append(error)


def _save(path: Path, read: Mapping[str, Tensor], made: Sequence[Tensor], right: Sequence[Tensor]) -> None:
    tensors = dict(read)
    for name, written in (("written", made), ("right", right)):
        tensors |= {f"{name}.{place}": each for place, each in enumerate(written)}
    safetensors().save_file({name: each.contiguous() for name, each in tensors.items()}, path)
