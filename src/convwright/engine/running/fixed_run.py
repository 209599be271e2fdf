"""Runs a program on tensors at fixed addresses."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from convwright import torch_api
from convwright.engine.running.cuda_graph import CudaGraph
from convwright.engine.running.program import Program, Values
from convwright.engine.running.undisturbed import undisturbed


class FixedRun:
    """``inputs`` and ``outputs`` have the same addresses in every run. On a GPU a run is one CUDA graph. On a CPU an
    operator that allocates its output costs a copy to the output of the first run."""

    def __init__(self, program: Program) -> None:
        self._program, self.inputs, self._place = program, program.fixed_inputs(), program.arena.place
        self._values: Values = []
        self._graph = None
        if self._place is not None:
            self._graph = CudaGraph(self._begin, self._place)
        else:
            self._begin()
        names, inputs = program.assignment.outputs, program.assignment.inputs
        different = [name for name in dict.fromkeys(names) if name not in inputs]
        self._different = [self._value(name) for name in different]
        self._returned = [(True, inputs.index(name)) if name in inputs else (False, different.index(name))
                          for name in names]  # fmt: skip

    def _begin(self) -> None:
        self._values = []  # frees memory for the new ones
        self._values = self._computed()

    def _computed(self) -> Values:
        return self._program.run(self._program.take(self.inputs))

    def of(self, given: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for these inputs, in new memory."""
        self._program.arena.join()
        for fixed, tensor in zip(self.inputs, given, strict=True):
            if fixed is not tensor:
                fixed.copy_(tensor.detach())
        self.run()
        own = [output.clone() for output in self._different]
        return [given[place] if is_input else own[place] for is_input, place in self._returned]

    def run(self) -> Values:
        """Compute from the contents of the inputs. During a CUDA graph capture of the caller, steps join that graph."""
        if self._graph is not None and not torch_api.is_capturing():
            self._program.arena.join()
            self._graph.replay()
            return self._values
        with undisturbed(self._program.device):
            computed = self._computed()
            for place in dict.fromkeys(map(self._program.place, self._program.assignment.outputs)):
                fixed, made = self._values[place], computed[place]
                assert fixed is not None
                assert made is not None
                if made.data_ptr() != fixed.data_ptr():
                    fixed.copy_(made)
        return self._values

    @property
    def outputs(self) -> list[Tensor]:
        return [self._value(name) for name in self._program.assignment.outputs]

    def _value(self, name: str) -> Tensor:
        held = self._values[self._program.place(name)]
        assert held is not None
        return held

    @property
    def pool_bytes(self) -> int:
        """Bytes that PyTorch's allocator keeps for this graph and those that share its pool."""
        return 0 if self._place is None else self._place.nbytes
