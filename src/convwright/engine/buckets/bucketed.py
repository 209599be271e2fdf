"""Engines for several sizes of the input, which take turns in one arena."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.engine.blueprint import Blueprint
from convwright.engine.buckets.batches import why_whole
from convwright.engine.buckets.bucketed_files import save_buckets
from convwright.engine.buckets.buckets import Bucket, Shapes, bucket_of, bucket_text, resized, shapes_of
from convwright.engine.engine import Engine
from convwright.engine.inspecting.comparison import Comparison
from convwright.engine.inspecting.profile import Profile
from convwright.engine.running.arena import Arena
from convwright.engine.running.failure import OnFailure
from convwright.engine.running.memory_report import MemoryReport
from convwright.engine.running.program import arena_bytes, plans_of
from convwright.engine.running.shared import Shared
from convwright.engine.running.undisturbed import undisturbed
from convwright.engine.running.weights import nbytes_of
from convwright.engine.saving.kernels_file import kernels_written
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts

_Plan = Callable[[nn.Module, tuple[Any, ...]], Engine]


class BucketedEngine:
    """A network that is planned for inputs of several shapes. Called, it gives what the model gives.

    ``engines`` are those for one shape each, by their bucket. They share weights and one arena. A batch that is no
    bucket's is padded to the next larger one, and one that is larger than all is split. Threads
    that call it take turns.
    """

    def __init__(self, engines: Mapping[Bucket, Engine], whole: str | None) -> None:
        self.engines = dict(engines)
        self._whole = whole
        self._by_shapes = {_shapes(engine): engine for engine in self.engines.values()}

    @classmethod
    def of(
        cls, planned: Mapping[Bucket, Blueprint], device: DeviceFacts, whole: str | None, on_failure: OnFailure
    ) -> BucketedEngine:
        """Make engines ready that share weights and one arena. ``whole`` is why batches must not be padded or split."""
        needed = max(
            arena_bytes(each.assignment, plans_of(each.assignment, device, each.kernels)) for each in planned.values()
        )
        arena, shared = Arena(needed, torch.device(str(device.torch_name))), Shared()
        engines = {
            bucket: Engine(each, device, on_failure, arena=arena, shared=shared) for bucket, each in planned.items()
        }
        return cls(engines, whole)

    def __call__(self, *inputs: Any) -> Any:
        """The model's outputs for these inputs, in memory of their own."""
        given, _ = torch_api.flatten(inputs)
        engine = self._by_shapes.get(_shapes_of(given))
        return self._by_rows(given) if engine is None else engine(*inputs)

    def _by_rows(self, given: list[Any]) -> Any:
        """The outputs of a batch that no bucket has, computed in runs of larger or smaller ones."""
        batch, sizes = self._fitting(given)
        outputs, nesting = list[Tensor](), None
        with self.largest.turn, undisturbed(self.device):
            for start, count, size in _runs(batch, sizes):
                engine = sizes[size]
                for fixed, tensor in zip(_flat(engine.input), given, strict=True):
                    fixed[:count].copy_(tensor[start : start + count].detach())
                made, nesting = torch_api.flatten(engine.run())
                outputs = outputs or [_with_rows(each, batch) for each in made]
                for whole, part in zip(outputs, made, strict=True):
                    whole[start : start + count].copy_(part[:count])
        return torch_api.unflatten(outputs, nesting)

    def _fitting(self, given: list[Any]) -> tuple[int, dict[int, Engine]]:
        """The size of a batch, and the engines that take such images, by the size of their batch."""
        wanted = _images(_shapes_of(given))
        sizes = {
            images[0]: engine
            for images, engine in ((_images(shapes), engine) for shapes, engine in self._by_shapes.items())
            if images is not None and wanted is not None and images[1] == wanted[1]
        }
        if wanted is None or not sizes:
            got = ", ".join(
                str(tuple(each.shape)) if isinstance(each, Tensor) else type(each).__name__ for each in given
            )
            names = ", ".join(map(bucket_text, self.engines))
            raise BadInput(f"no bucket takes {got}: all sizes but the batch must be those of a bucket, here {names}")
        batch, (engine, *_) = wanted[0], sizes.values()
        if (reason := engine.objection(given, batch)) is not None:
            raise BadInput(reason)
        if self._whole is not None:
            raise BadInput(f"no bucket has a batch of {batch}, and it cannot be padded or split: {self._whole}")
        return batch, dict(sorted(sizes.items()))

    def clone(self) -> BucketedEngine:
        """An engine that another thread may call at the same time. It shares the weights, and has memory of its own."""
        engine = self.largest
        arena = Arena(engine.arena_bytes, engine.device)
        return BucketedEngine({bucket: each.clone(arena) for bucket, each in self.engines.items()}, self._whole)

    def update(self, model: nn.Module) -> None:
        """Take the weights that ``model`` has by now, as ``Engine.update`` does."""
        for engine in self.engines.values():
            engine.update(model)

    def save(self, folder: Path | str, *, kernels: bool = False) -> None:
        """Write the plans and the weights to a folder, from which ``load`` makes the engine again; with ``kernels`` the
        compiled kernels as well, as ``Engine.save`` does."""
        planned = {bucket: engine.blueprint for bucket, engine in self.engines.items()}
        facts = self.largest.facts
        compiled = kernels_written(planned.values(), facts) if kernels else None
        save_buckets(Path(folder), planned, facts, self._whole, compiled)

    def explain(self) -> str:
        """A table of the steps of each bucket."""
        return "\n\n".join(f"bucket {bucket_text(each)}:\n{engine.explain()}" for each, engine in self.engines.items())

    def memory_report(self) -> MemoryReport:
        """The arena as the bucket fills it that needs most of it, and the weights of all buckets."""
        held = chain.from_iterable(engine.held for engine in self.engines.values())
        return replace(self.largest.memory_report(), weights=nbytes_of(held))

    def profile(self, *inputs: Any) -> Profile:
        """What each step takes where it runs, on inputs of a bucket; by default in the largest."""
        return (self._taking(inputs) if inputs else self.largest).profile(*inputs)

    def compare(self, model: nn.Module, *inputs: Any, **options: Any) -> Comparison:
        """Hold each step against float64 on inputs of a bucket, as ``Engine.compare`` does."""
        return self._taking(inputs).compare(model, *inputs, **options)

    @property
    def device(self) -> torch.device:
        return self.largest.device

    @property
    def arena_bytes(self) -> int:
        """Bytes of the one block in which the steps of all buckets write."""
        return self.largest.arena_bytes

    @property
    def largest(self) -> Engine:
        """The engine that needs most of the arena, and of those that need as much the one for the largest input."""
        return max(self.engines.values(), key=lambda engine: (engine.arena_bytes, _numbers(_shapes(engine))))

    def _taking(self, inputs: tuple[Any, ...]) -> Engine:
        shapes = _shapes_of(torch_api.flatten(inputs)[0])
        if shapes not in self._by_shapes:
            names = ", ".join(map(bucket_text, self.engines))
            raise BadInput(f"the inputs must have all sizes of a bucket, here {names}")
        return self._by_shapes[shapes]


def planned_in_buckets(
    model: nn.Module, inputs: tuple[Any, ...], buckets: Iterable[Any], plan: _Plan, on_failure: OnFailure
) -> BucketedEngine:
    """Plan a model for each bucket. ``inputs`` are an example, which is repeated or cut to the sizes of each."""
    tensors, nesting = torch_api.flatten(inputs)
    shapes = {bucket: shapes_of(bucket, tensors) for bucket in map(bucket_of, buckets)}
    if not shapes:
        raise BadInput("`buckets` must have at least one bucket")
    if len(set(shapes.values())) < len(shapes):
        raise BadInput(f"two of the buckets {', '.join(map(bucket_text, shapes))} have the same sizes")

    def example(of: Shapes) -> tuple[Any, ...]:
        made: tuple[Any, ...] = torch_api.unflatten(list(map(resized, tensors, of)), nesting)
        return made

    planned = {bucket: plan(model, example(each)).blueprint for bucket, each in shapes.items()}
    whole = _whole(model, example, planned)
    return BucketedEngine.of(planned, device_facts(tensors[0].device), whole, on_failure)


def _whole(
    model: nn.Module, example: Callable[[Shapes], tuple[Any, ...]], planned: Mapping[Bucket, Blueprint]
) -> str | None:
    """Why batches must not be padded or split."""
    if len({repr(each.structure) for each in planned.values()}) > 1:
        return "the model nests its outputs otherwise in other buckets"
    batches = dict[int, Shapes]()
    for bucket, each in planned.items():
        specs, shapes = each.assignment.tensors | each.assignment.constants, _shapes(each)
        if (images := _images(shapes)) is None:
            continue
        batches[images[0]] = min(batches.get(images[0], shapes), shapes, key=_numbers)
        for place, name in enumerate(each.assignment.outputs):
            if specs[name].shape[:1] != images[:1]:
                return f"output {place} does not have the batch as its first dimension in bucket {bucket_text(bucket)}"
    if not batches:
        return "the first dimension of every input must be the batch"
    return why_whole(model, example(min(batches.values(), key=_numbers)), batches)


def _runs(batch: int, sizes: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Where each run begins, how many images it computes, and the size of its bucket: the largest until the smallest
    that takes what is left.

    >>> list(_runs(40, (1, 8, 16))), list(_runs(3, (1, 8)))
    ([(0, 16, 16), (16, 16, 16), (32, 8, 8)], [(0, 3, 8)])
    """
    largest = max(sizes)
    for start in range(0, batch, largest):
        count = min(batch - start, largest)
        yield start, count, min(size for size in sizes if size >= count)


def _images(shapes: Shapes) -> tuple[int, Shapes] | None:
    """The size of a batch, and the shapes without it; None where not all inputs are batches of this size."""
    batches = {shape[:1] for shape in shapes}
    if len(batches) != 1 or batches & {(), (0,)}:
        return None
    return shapes[0][0], tuple(shape[1:] for shape in shapes)


def _shapes(of: Engine | Blueprint) -> Shapes:
    return tuple(of.assignment.tensors[name].shape for name in of.assignment.inputs)


def _shapes_of(given: Iterable[Any]) -> Shapes:
    """The shapes of tensors; what is none has no shape."""
    return tuple(tuple(each.shape) if isinstance(each, Tensor) else () for each in given)


def _numbers(shapes: Shapes) -> int:
    return sum(map(prod, shapes))


def _flat(nested: Any) -> list[Tensor]:
    return torch_api.flatten(nested)[0]


def _with_rows(tensor: Tensor, rows: int) -> Tensor:
    """Memory for a tensor with another first dimension, which is its outermost in memory."""
    shape, strides = tensor.shape[1:], tensor.stride()[1:]
    return tensor.new_empty_strided((rows, *shape), (prod(shape), *strides))
