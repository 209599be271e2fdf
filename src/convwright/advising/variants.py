"""Copies of a whole model with one change each, to be timed against the model itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from convwright.advising.suggestion import Kind
from convwright.backends.torch_native.own import spoils_memory
from convwright.core.tensor_spec import Layout
from convwright.engine.capture.example import Subject
from convwright.engine.capture.layers import LayerCall
from convwright.engine.capture.trails import BATCH_NORM
from convwright.errors import first_line
from convwright.torch_api import AnyBatchNorm, AnyConvolution

_FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
_FORMAT_WORDS = {
    torch.channels_last: "torch.channels_last",
    torch.channels_last_3d: "torch.channels_last_3d",
    torch.contiguous_format: "torch.contiguous_format",
}


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A changed copy of a model, and how a user makes the same change."""

    kind: Kind
    what: str
    how: str
    subject: Subject


COMPILED = "torch.compile"


def variants_of(
    subject: Subject, layers: tuple[LayerCall, ...], *, backward: bool, compiled: bool = False
) -> tuple[list[Variant], list[str]]:
    """The changed copies to time, and sentences about changes that could not be tried."""
    model = subject.module
    if model is None:
        return [], ["The model is a function, so no other memory format and no folded batch normalisation were tried."]
    made: list[Variant] = []
    notes: list[str] = []
    memory_format = _other_format(layers)
    if backward and (spoiling := _spoiling(model, layers)):
        memory_format = None
        words = f"in it, PyTorch's gradient of layer {spoiling!r} may crash the process"
        notes.append(f"Another memory format was not tried: {words}.")
    pairs = [] if backward else _normalised(model, layers)
    tries: list[tuple[str, Callable[[], Variant]]] = []
    if memory_format is not None:
        tries.append((_FORMAT_WORDS[memory_format], lambda: _in_format(subject, memory_format)))
    if pairs:
        tries.append(("batch normalisation folded", lambda: _folded(subject, pairs)))
    if pairs and memory_format is not None:
        tries.append(("both", lambda: _both(subject, pairs, memory_format)))
    if compiled:
        tries.append((COMPILED, lambda: _compiled(subject)))
    for what, make in tries:
        try:
            made.append(make())
        except Exception as error:  # a user's model may raise anything when it is copied
            notes.append(f"{what} could not be tried: copying the model failed ({first_line(error)}).")
    return made, notes


def _in_format(subject: Subject, memory_format: torch.memory_format) -> Variant:
    words = _FORMAT_WORDS[memory_format]
    return Variant(
        Kind.EXACT,
        f"the whole model in {words.removeprefix('torch.')}",
        f"model = model.to(memory_format={words}); x = x.contiguous(memory_format={words})",
        _converted(subject, copy.deepcopy(subject.model), memory_format),
    )


def _folded(subject: Subject, pairs: list[tuple[str, str]]) -> Variant:
    return Variant(
        Kind.INFERENCE,
        f"batch normalisation folded into the convolution before it, {len(pairs)} times",
        "conv = torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn), and torch.nn.Identity() in place of bn",
        _with_model(subject, _fold(copy.deepcopy(subject.model), pairs)),
    )


def _both(subject: Subject, pairs: list[tuple[str, str]], memory_format: torch.memory_format) -> Variant:
    return Variant(
        Kind.INFERENCE,
        f"batch normalisation folded, and the whole model in {_FORMAT_WORDS[memory_format].removeprefix('torch.')}",
        "the two changes together",
        _converted(subject, _fold(copy.deepcopy(subject.model), pairs), memory_format),
    )


def _compiled(subject: Subject) -> Variant:
    model = copy.deepcopy(subject.model)
    how = "model = torch.compile(model)"
    return Variant(Kind.EXACT, COMPILED, how, _with_model(subject, torch.compile(model)))


def _other_format(layers: Iterable[LayerCall]) -> torch.memory_format | None:
    """The other memory format than the model's; None unless all its convolutions are 2D or all are 3D."""
    problems = [layer.problem for layer in layers]
    ranks = {problem.rank for problem in problems}
    if len(ranks) != 1 or not ranks <= _FORMATS.keys():
        return None
    last = sum(problem.x.layout is Layout.NHWC for problem in problems)
    return torch.contiguous_format if 2 * last > len(problems) else _FORMATS[ranks.pop()]


def _spoiling(model: nn.Module, layers: Iterable[LayerCall]) -> str | None:
    """The first layer whose weight's gradient PyTorch cannot compute with channels last on a CPU."""
    on_cpu = any(parameter.device.type == "cpu" for parameter in model.parameters())
    return next((layer.name for layer in layers if on_cpu and spoils_memory(layer.problem)), None)


def _normalised(model: nn.Module, layers: Iterable[LayerCall]) -> list[tuple[str, str]]:
    """Paths of convolutions and of the batch normalisations that follow them, if these have fixed statistics."""
    modules = dict(model.named_modules())
    pairs = {
        (layer.name, layer.follows[0].module)
        for layer in layers
        if layer.follows and layer.follows[0].op == BATCH_NORM
        if _is_fixed(modules.get(layer.name), AnyConvolution)
        and _is_fixed(modules.get(layer.follows[0].module), AnyBatchNorm)
    }
    convolutions, norms = ([pair[side] for pair in pairs] for side in (0, 1))
    alone = [pair for pair in pairs if convolutions.count(pair[0]) == norms.count(pair[1]) == 1]
    return sorted(alone)


def _is_fixed(module: nn.Module | None, kind: type[nn.Module]) -> bool:
    """True for a module of ``kind`` in evaluation mode. A batch normalisation must have running statistics."""
    return isinstance(module, kind) and not module.training and getattr(module, "running_mean", 0) is not None


def _fold(model: Any, pairs: Iterable[tuple[str, str]]) -> nn.Module:
    for convolution, norm in pairs:
        fused = fuse_conv_bn_eval(model.get_submodule(convolution), model.get_submodule(norm))
        _set(model, convolution, fused)
        _set(model, norm, nn.Identity())
    return model  # type: ignore[no-any-return]


def _set(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _with_model(subject: Subject, model: Any) -> Subject:
    return Subject(model, subject.args, subject.kwargs)


def _converted(subject: Subject, model: Any, memory_format: torch.memory_format) -> Subject:
    """A model and its example in ``memory_format``, since a user would also convert the inputs."""
    rank = 5 if memory_format is torch.channels_last_3d else 4

    def moved(value: Any) -> Any:
        fits = isinstance(value, Tensor) and value.dim() == rank
        return value.contiguous(memory_format=memory_format) if fits else value

    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = moved(tensor.data)
    args = tuple(moved(value) for value in subject.args)
    return Subject(model, args, {name: moved(value) for name, value in subject.kwargs.items()})
