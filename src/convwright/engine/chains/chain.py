"""Convolutions one after the other, with one arena, on a GPU as one CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from convwright.core.policy import Objective, Policy, Weights
from convwright.engine.chains.arena import Arena
from convwright.engine.chains.layer import ConvLayer
from convwright.engine.chains.steps import Step, steps_of
from convwright.engine.cuda_graph import CudaGraph
from convwright.engine.undisturbed import undisturbed
from convwright.errors import BadInput
from convwright.graph.memory_plan import Buffer, MemoryPlan
from convwright.tensors import empty
from convwright.tuning.session import Choice


class Chain:
    """A network of convolutions for inputs like ``example``, made ready to run again and again.

    Weights and biases are taken as they are now; a later change of the model is not seen. ``algorithm`` asks for one
    candidate in every layer, or for one in each (None: the best that ``policy`` allows).

    ``chain(x)`` returns ``chain.output``, which keeps its values until the next call; ``chain(x, out=y)`` copies them
    out. It may be called on any stream, by one thread at a time, and must outlive the work that was started with it.

    >>> import torch
    >>> from convwright.engine.chains.layer import ConvLayer
    >>> layers = [ConvLayer(torch.ones(2, 1, 3, 3), padding=1), ConvLayer(torch.ones(1, 2, 1, 1), activation="relu")]
    >>> chain = Chain(layers, torch.ones(1, 1, 3, 3), algorithm="reference/gemm")
    >>> chain(torch.ones(1, 1, 3, 3))[0, 0].tolist()
    [[8.0, 12.0, 8.0], [12.0, 18.0, 12.0], [8.0, 12.0, 8.0]]
    """

    def __init__(
        self,
        layers: Sequence[ConvLayer],
        example: Tensor,
        *,
        policy: Policy = Policy(),
        algorithm: str | Sequence[str | None] | None = None,
    ) -> None:
        _check_parts(layers, example)
        policy = replace(policy, weights=Weights.CONSTANT)
        if policy.objective is Objective.TIME:  # in a captured graph nobody waits for the host
            policy = replace(policy, objective=Objective.DEVICE_TIME)
        with undisturbed(example.device):
            self._steps = steps_of(layers, example, policy, _one_each(algorithm, len(layers)))
            self._arena = Arena(self._steps, example.device)
            self.input = empty(self._steps[0].problem.x, example.device).copy_(example)
            self.output = empty(self._steps[-1].problem.y, example.device)
            self._calls = self._wired()
            self._captured = CudaGraph(self._run, example.device) if example.is_cuda else None

    def __call__(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The network's output for ``x``: in ``out``, or in ``chain.output`` until the next call."""
        _check_like("x", x, self.input)
        if out is not None:
            _check_like("out", out, self.output)
        if self._captured is not None:
            self._captured.join()
        self.input.copy_(x.detach())
        if self._captured is not None:
            self._captured.replay()
        else:
            with undisturbed(self.input.device):
                self._run()
        return self.output if out is None else out.copy_(self.output)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What runs in each layer."""
        return tuple(step.choice for step in self._steps)

    @property
    def arena(self) -> Tensor:
        """The bytes in which all intermediate activations and workspaces lie; nothing in them outlives a call."""
        return self._arena.memory

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What lies in the arena, with the steps that need it."""
        return self._arena.buffers

    @property
    def memory_plan(self) -> MemoryPlan:
        """Where each buffer lies."""
        return self._arena.plan

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena, workspaces included."""
        return self._arena.plan.nbytes

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the largest workspace that any layer needs."""
        return max(step.plan.workspace_bytes for step in self._steps)

    def _wired(self) -> list[tuple[Step, Tensor, Tensor, Tensor | None]]:
        """Each step with its input, output and workspace."""
        between = self._arena.activations
        return list(
            zip(self._steps, [self.input, *between], [*between, self.output], self._arena.workspaces, strict=True)
        )

    def _run(self) -> None:
        for step, x, out, workspace in self._calls:
            step.run(x, out, workspace)


def _check_parts(layers: Sequence[ConvLayer], example: Tensor) -> None:
    if not layers:
        raise BadInput("a chain needs at least one layer, got none")
    strangers = [type(layer).__name__ for layer in layers if not isinstance(layer, ConvLayer)]
    if strangers:
        raise BadInput(f"a chain is made of ConvLayers, which `from_sequential` makes of a model, got {strangers[0]}")
    if not isinstance(example, Tensor):
        raise BadInput(f"`example` must be a tensor, got {type(example).__name__}")
    if example.numel() == 0:
        raise BadInput(f"`example` must not be empty, got shape {tuple(example.shape)}")


def _one_each(algorithm: str | Sequence[str | None] | None, layers: int) -> Sequence[str | None]:
    if algorithm is None or isinstance(algorithm, str):
        return [algorithm] * layers
    if len(algorithm) != layers:
        raise BadInput(f"`algorithm` must be one id or one for each of {layers} layers, got {len(algorithm)}")
    return algorithm


def _check_like(name: str, given: Tensor, wanted: Tensor) -> None:
    if not isinstance(given, Tensor):
        raise BadInput(f"`{name}` must be a tensor, got {type(given).__name__}")
    if given.shape != wanted.shape or given.dtype != wanted.dtype or given.device != wanted.device:
        raise BadInput(f"`{name}` must be {_words(wanted)}, as the chain was built for, got {_words(given)}")


def _words(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
