"""One engine per bucket. They share weights and one arena, and run one at a time."""

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
from convwright.engine.not_a_module import NotAModule
from convwright.engine.running.arena import Arena
from convwright.engine.running.failure import OnFailure
from convwright.engine.running.memory_report import MemoryReport
from convwright.engine.running.program import arena_bytes, plans_of
from convwright.engine.running.shared import Shared
from convwright.engine.running.undisturbed import check_needs_no_gradient, undisturbed
from convwright.engine.running.weights import nbytes_of
from convwright.engine.saving.kernels_file import kernels_written
from convwright.engine.saving.saved import folder_of
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import singular
from convwright.notebook import Lines

_Plan = Callable[[nn.Module, tuple[Any, ...]], Engine]


class BucketedEngine(NotAModule):
    """A network planned for several input shapes. Call it like the model.

    ``engines`` maps each bucket to its engine. They share weights and one arena. A batch that matches no bucket is
    padded to the next larger one; a batch above the largest is split. Only one thread runs at a time; others wait.
    """

    def __init__(self, engines: Mapping[Bucket, Engine], whole: str | None) -> None:
        self.engines = dict(engines)
        self._whole = whole
        self._by_shapes = {_shapes(engine): engine for engine in self.engines.values()}

    @classmethod
    def of(
        cls, planned: Mapping[Bucket, Blueprint], device: DeviceFacts, whole: str | None, on_failure: OnFailure
    ) -> BucketedEngine:
        """Prepare engines with shared weights and one arena. ``whole`` is why batches must not be padded or split."""
        needed = max(
            arena_bytes(each.assignment, plans_of(each.assignment, device, each.kernels)) for each in planned.values()
        )
        arena, shared = Arena(needed, torch.device(str(device.torch_name))), Shared()
        engines = {
            bucket: Engine(each, device, on_failure, arena=arena, shared=shared) for bucket, each in planned.items()
        }
        return cls(engines, whole)

    def __call__(self, *inputs: Any) -> Any:
        """The model's outputs for these inputs, in new memory, without gradients, as of ``Engine``."""
        given, _ = torch_api.flatten(inputs)
        engine = self._by_shapes.get(_shapes_of(given))
        return self._by_rows(given) if engine is None else engine(*inputs)

    def _by_rows(self, given: list[Any]) -> Any:
        """The outputs of a batch whose size is no bucket: computed in runs of other sizes."""
        batch, sizes = self._fitting(given)
        check_needs_no_gradient(given)
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
        """The size of the batch, and the engines for images of this shape by batch size."""
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
            raise BadInput(f"no bucket takes {got}: all sizes except the batch must match a bucket, here {names}")
        batch, (engine, *_) = wanted[0], sizes.values()
        if (reason := engine.objection(given, batch)) is not None:
            raise BadInput(reason)
        if self._whole is not None:
            raise BadInput(
                f"no bucket has a batch of {batch}, and it cannot be padded or split: {self._whole}; "
                f"add {batch} to `buckets`"
            )
        return batch, dict(sorted(sizes.items()))

    def clone(self) -> BucketedEngine:
        """An engine with the same weights and its own memory, which another thread may call at the same time."""
        engine = self.largest
        arena = Arena(engine.arena_bytes, engine.device)
        return BucketedEngine({bucket: each.clone(arena) for bucket, each in self.engines.items()}, self._whole)

    def update(self, model: nn.Module) -> None:
        """Copy the current weights of ``model``; see ``Engine.update``."""
        for engine in self.engines.values():
            engine.update(model)

    def save(self, folder: Path | str, *, kernels: bool = False) -> None:
        """Write the plans and the weights to a folder, which ``load`` reads. ``kernels=True`` adds the compiled
        kernels, as in ``Engine.save``."""
        planned = {bucket: engine.blueprint for bucket, engine in self.engines.items()}
        facts = self.largest.facts
        compiled = kernels_written(planned.values(), facts) if kernels else None
        save_buckets(folder_of(folder), planned, facts, self._whole, compiled)

    def explain(self) -> str:
        """A table of the steps of each bucket."""
        parts = (f"bucket {bucket_text(each)}:\n{engine.explain()}" for each, engine in self.engines.items())
        return Lines("\n\n".join(parts))

    def memory_report(self) -> MemoryReport:
        """The arena of the bucket that uses most of it, and the weights of all buckets."""
        held = chain.from_iterable(engine.held for engine in self.engines.values())
        return replace(self.largest.memory_report(), weights=nbytes_of(held))

    def profile(self, *inputs: Any) -> Profile:
        """The time of each step in the engine, for inputs of a bucket; by default for the largest bucket."""
        return (self._taking(inputs) if inputs else self.largest).profile(*inputs)

    def compare(self, model: nn.Module, *inputs: Any, **options: Any) -> Comparison:
        """Compare each step with float64, for inputs of a bucket; see ``Engine.compare``."""
        return self._taking(inputs).compare(model, *inputs, **options)

    @property
    def device(self) -> torch.device:
        return self.largest.device

    @property
    def arena_bytes(self) -> int:
        """Size of the one memory block that all buckets use."""
        return self.largest.arena_bytes

    @property
    def largest(self) -> Engine:
        """The engine that uses most of the arena; of several such, the one with the largest input."""
        return max(self.engines.values(), key=lambda engine: (engine.arena_bytes, _numbers(_shapes(engine))))

    def __repr__(self) -> str:
        names = ", ".join(map(bucket_text, self.engines))
        return singular(f"<BucketedEngine: buckets {names} on {self.largest.facts.key}>")

    def _taking(self, inputs: tuple[Any, ...]) -> Engine:
        shapes = _shapes_of(torch_api.flatten(inputs)[0])
        if shapes not in self._by_shapes:
            names = ", ".join(map(bucket_text, self.engines))
            raise BadInput(f"the inputs must have exactly the sizes of a bucket, here {names}")
        return self._by_shapes[shapes]


def planned_in_buckets(
    model: nn.Module, inputs: tuple[Any, ...], buckets: Iterable[Any], plan: _Plan, on_failure: OnFailure
) -> BucketedEngine:
    """Plan a model for each bucket. ``inputs`` is an example, which is repeated or cut to each bucket's sizes."""
    if isinstance(buckets, str) or not isinstance(buckets, Iterable):
        raise BadInput(f"`buckets` must be a list of buckets, for example [1, 8], got {buckets!r}")
    tensors, nesting = torch_api.flatten(inputs)
    shapes = {bucket: shapes_of(bucket, tensors) for bucket in map(bucket_of, buckets)}
    if not shapes:
        raise BadInput("`buckets` must hold at least one bucket, got none")
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
        return "the model nests its outputs differently in different buckets"
    batches = dict[int, Shapes]()
    for bucket, each in planned.items():
        specs, shapes = each.assignment.tensors | each.assignment.constants, _shapes(each)
        if (images := _images(shapes)) is None:
            continue
        batches[images[0]] = min(batches.get(images[0], shapes), shapes, key=_numbers)
        for place, name in enumerate(each.assignment.outputs):
            if specs[name].shape[:1] != images[:1]:
                return f"the first dimension of output {place} is not the batch in bucket {bucket_text(bucket)}"
    if not batches:
        return "the first dimension of every input must be the batch"
    return why_whole(model, example(min(batches.values(), key=_numbers)), batches)


def _runs(batch: int, sizes: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Start, number of images, and bucket size of each run: the largest bucket, until a smaller one takes the rest.

    >>> list(_runs(40, (1, 8, 16))), list(_runs(3, (1, 8)))
    ([(0, 16, 16), (16, 16, 16), (32, 8, 8)], [(0, 3, 8)])
    """
    largest = max(sizes)
    for start in range(0, batch, largest):
        count = min(batch - start, largest)
        yield start, count, min(size for size in sizes if size >= count)


def _images(shapes: Shapes) -> tuple[int, Shapes] | None:
    """The batch size, and the shapes without it; None if the inputs are not all batches of one size."""
    batches = {shape[:1] for shape in shapes}
    if len(batches) != 1 or batches & {(), (0,)}:
        return None
    return shapes[0][0], tuple(shape[1:] for shape in shapes)


def _shapes(of: Engine | Blueprint) -> Shapes:
    return tuple(of.assignment.tensors[name].shape for name in of.assignment.inputs)


def _shapes_of(given: Iterable[Any]) -> Shapes:
    """The shape of each input, None for one that is not a tensor."""
    return tuple(tuple(each.shape) if isinstance(each, Tensor) else () for each in given)


def _numbers(shapes: Shapes) -> int:
    return sum(map(prod, shapes))


def _flat(nested: Any) -> list[Tensor]:
    return torch_api.flatten(nested)[0]


def _with_rows(tensor: Tensor, rows: int) -> Tensor:
    """Empty memory like ``tensor`` with another first dimension, which is outermost in memory."""
    shape, strides = tensor.shape[1:], tensor.stride()[1:]
    return tensor.new_empty_strided((rows, *shape), (prod(shape), *strides))
