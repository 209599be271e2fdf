"""A trained model and a few inputs → the model with its convolutions in int8, and the loss of accuracy."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as brief
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.policy import Policy, check_policy
from convwright.engine.capture.example import check_complete
from convwright.engine.capture.layers import LayerCall, Recording, record
from convwright.engine.capture.merged import ACTIVATIONS, NORMS, Merged, merged
from convwright.engine.capture.samples import Hook, Samples
from convwright.errors import BadInput, Refused, in_words
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import is_above_0, one_of
from convwright.option_names import RangesName
from convwright.quantizing.calibration import CutOff, Ranges, Seen
from convwright.quantizing.deviation import Deviation
from convwright.quantizing.int8_calls import OUTPUTS
from convwright.quantizing.int8_layer import Int8Conv
from convwright.quantizing.quantized import Quantized, QuantizedLayer
from convwright.quantizing.run_times import run_times
from convwright.torch_api import AnyConvolution, AnyTransposedConvolution
from convwright.training.converted import is_convertible
from convwright.training.paths import fitting
from convwright.uncompiled import uncompiled
from convwright.wording.progress import Progress, progress_to

MAX_LAYER_ERROR = 0.1


@uncompiled()
def quantize(
    model: nn.Module,
    samples: Iterable[Any],
    *,
    keep: Sequence[str] = (),
    ranges: Ranges | RangesName = Ranges.MSE,
    max_layer_error: float = MAX_LAYER_ERROR,
    policy: Policy | None = None,
    layers: str | None = None,
    progress: bool | Progress | None = None,
) -> Quantized:
    """A copy of ``model`` for inference, with convolutions in int8 whose scales are calibrated on ``samples``.

    Weights get one scale for each output channel, the inputs of a layer one scale. Batch normalisation and an
    activation become part of a convolution if nothing else reads its output. A layer stays in its own precision if
    ``keep`` names it, if its error exceeds ``max_layer_error``, or if nothing computes it in int8; the result says why.
    ``model`` itself is not changed. At the end, runs of both models on the first sample are timed side by side, since
    int8 is not faster on every device.

    Args:
        samples: An iterable of typical inputs, each a tensor, a tuple of arguments or a dict of keyword arguments. All
            are held in memory and run several times.
        keep: Paths of layers, or patterns for them, that stay in their own precision.
        max_layer_error: The largest relative L2 error of a layer's result in int8.
        ranges: How to choose the range of a layer's inputs: "mse" minimises the mean squared error, "largest" clips no
            sample.
        layers: A pattern for the paths of layers, as "d1.*". All others stay as they are and are not listed.
        policy: The policy for choosing candidates in int8.

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    >>> made = quantize(model, [torch.randn(2, 3, 12, 12) for _ in range(3)])
    >>> made, made.layers[0].merged, made.error < 0.02
    (<Quantized: 2 of 2 convolutions in int8 on ...>, ('1', '2'), True)
    >>> made.model(torch.randn(1, 3, 20, 20)).shape
    torch.Size([1, 4, 18, 18])
    """
    begun, ranges = perf_counter(), one_of(Ranges, "`ranges`", ranges)
    check_policy(policy)
    if not is_above_0(max_layer_error):
        raise BadInput(f"`max_layer_error` must be above 0 (relative L2), got {max_layer_error!r}")
    with torch.inference_mode(False), torch.no_grad():  # or else the state could not be written to outside of it
        copied = _copied(model)
        kept, chosen = _kept(keep, copied), _convolutions(copied)
        if layers is not None:
            chosen = fitting(layers, chosen, argument="layers")
            kept |= set(_convolutions(copied)).difference(chosen)
        work = _Work(copied, kept, progress_to(progress), 5 if ranges is Ranges.MSE else 4)
        given = Samples(samples, work.tell)
        work.steps = work.steps * len(given) + 1  # the last for times
        own = work.look(given)
        work.calibrate(given, ranges, policy)
        work.compare(given, max_layer_error)
        made = work.exchanged()
        error = _error(given.run(made, "in int8"), own)
        where = next((tensor.device for tensor in (*made.parameters(), *made.buffers())), None)
        facts, times, untimed = device_facts(where), None, None
        if any(layer.kept is None for layer in work.layers.values()):
            work.tell("times")
            took = run_times(given.subject(_copied(model), 0), given.subject(made, 0), facts)
            times, untimed = (None, took) if isinstance(took, str) else (took, None)
        work.end()
    shown = {name or type(copied).__name__ for name in chosen}
    listed = tuple(each for each in work.layers.values() if layers is None or each.name in shown)
    return Quantized(
        made, facts, ranges, max_layer_error, len(given), listed, error, perf_counter() - begun,
        times, untimed,
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class _Work:
    """The convolutions found so far. ``ready`` are those that could compute in int8, by their names."""

    model: nn.Module
    asked: set[str]
    progress: Progress
    steps: int
    done: int = 0
    modules: dict[str, nn.Module] = field(default_factory=dict)
    layers: dict[str, QuantizedLayer] = field(default_factory=dict)
    merged: dict[str, Merged] = field(default_factory=dict)
    ready: dict[str, Int8Conv] = field(default_factory=dict)

    def tell(self, what: str) -> None:
        self.progress(self.done, self.steps, what)
        self.done += 1

    def end(self) -> None:
        self.progress(self.steps, self.steps, "")

    def look(self, samples: Samples) -> list[list[Tensor]]:
        """Run the model as it is and record its convolutions, the modules after them and their inputs."""
        self.modules = dict(self.model.named_modules())
        recordings = [self._record(samples, number) for number in range(len(samples))]
        calls = _by_name(recordings)
        seen = {name: Seen() for name, module in self.modules.items() if type(module) in (*NORMS, *ACTIVATIONS)}
        seen |= {name: Seen() for name, module in self.modules.items() if isinstance(module, AnyConvolution)}
        own = samples.run(self.model, "as it is", {self.modules[n]: _looking(each) for n, each in seen.items()})
        counts = {name: each.calls for name, each in seen.items()}
        left_out = {name: reason for recording in recordings for name, reason in recording.left_out}
        for name, module in self._in_order(calls, left_out).items():
            shown = name or type(self.model).__name__
            posed = next(iter(calls.get(shown, ())), None)
            layer = QuantizedLayer(shown, problem=None if posed is None else posed.problem)
            if module is None:
                self.layers[name] = replace(layer, kept=left_out.get(name, "is a call of a function, not of a module"))
                continue
            reason = self._why_kept(name, module, seen[name]) or left_out.get(shown)
            self.layers[name] = replace(layer, kept=reason, largest=seen[name].largest if seen[name].calls else None)
            if reason is None:
                self.merged[name] = merged(module, calls.get(shown, ()), self.modules, counts)
        return own

    def calibrate(self, samples: Samples, ranges: Ranges, policy: Policy | None) -> None:
        """Choose the range of each layer's inputs, and make the layer in int8."""
        limits = {name: self.layers[name].largest or 0.0 for name in self.merged}
        if ranges is Ranges.MSE:
            cuts = {name: CutOff(limit) for name, limit in limits.items()}
            samples.run(self.model, "ranges", {self.merged[name].conv: _cutting(cut) for name, cut in cuts.items()})
            limits = {name: cut.best for name, cut in cuts.items()}
        for name, limit in limits.items():
            self.ready[name] = Int8Conv(self.merged[name], limit, policy, name)

    def compare(self, samples: Samples, max_layer_error: float) -> None:
        """Compute each layer in int8 on the inputs of the original model, and keep the original layer if the error is
        too large."""
        found = {name: _Compared(layer, self.merged[name]) for name, layer in self.ready.items()}
        samples.run(self.model, "layers in int8", {each.merged.conv: each.see for each in found.values()})
        paths = {module: name for name, module in self.modules.items()}
        for name, each in found.items():
            error, reason = each.deviation.relative_l2, each.refused
            if reason is None and not error <= max_layer_error:
                reason = f"in int8 it is off by {error:.2g} (relative L2), {max_layer_error:g} is allowed"
            self.layers[name] = replace(
                self.layers[name],
                kept=reason,
                merged=tuple(paths[module] for module in each.merged.behind) if reason is None else (),
                limit=each.layer.limit,
                error=None if each.refused else error,
                candidate=each.layer.choices.get("forward") if each.refused is None else None,
            )

    def exchanged(self) -> nn.Module:
        """The model with the int8 layers in it."""
        new: dict[nn.Module, nn.Module] = {}
        for name, layer in self.ready.items():
            if self.layers[name].kept is None:
                new[self.merged[name].conv] = layer
                new |= {module: nn.Identity() for module in self.merged[name].behind}
        for module in self.modules.values():
            children = torch_api.children_of(module)
            for name, child in children.items():
                if child in new:
                    children[name] = new[child]
        return new.get(self.model, self.model)

    def _record(self, samples: Samples, number: int) -> Recording:
        self.tell(f"convolutions, sample {number}")
        try:
            return record(samples.subject(self.model, number))
        except BadInput as error:
            raise BadInput(f"sample {number}: {error}") from error

    def _in_order(self, calls: Mapping[str, object], left_out: Mapping[str, object]) -> dict[str, nn.Module | None]:
        """Each convolution by its path, in the order of the model's modules, then convolutions that are not modules."""
        modules = {name: module for name, module in self.modules.items() if isinstance(module, AnyConvolution)}
        shown = {name or type(self.model).__name__ for name in modules}
        return {**modules, **{name: None for name in (*calls, *left_out) if name not in shown}}

    def _why_kept(self, name: str, module: Any, seen: Seen) -> str | None:
        """Why a module stays as it is, as far as this is known in advance."""
        if name in self.asked:
            return "is to be kept"
        if isinstance(module, AnyTransposedConvolution):
            return "is a transposed convolution, and int8 is computed in the forward direction only"
        if not is_convertible(module):
            return f"is a {type(module).__name__} with a forward of its own"
        if torch_api.hooks(module):
            return "has hooks, which a layer in int8 would not call"
        if module.weight.dtype not in OUTPUTS:
            return f"computes in {module.weight.dtype}, which int8 layers cannot return"
        if not bool(torch.isfinite(module.weight).all()):
            return "holds a NaN or an infinity in its weight"
        if not seen.calls:
            return "is not reached by any sample"
        if seen.largest == float("inf"):
            return "gets a NaN or an infinity"
        return None if seen.largest else "gets only zeros, which give no range"


@dataclass(slots=True, eq=False)
class _Compared:
    """A layer in int8 next to the layer that it replaces."""

    layer: Int8Conv
    merged: Merged
    deviation: Deviation = field(default_factory=Deviation)
    refused: str | None = None

    def see(self, x: Tensor, output: Tensor) -> None:
        if self.refused is None:
            try:
                self.deviation.add(self.layer(x), self.merged.own(output))
            except Refused as refused:
                self.refused = str(refused)


def _looking(seen: Seen) -> Hook:
    return lambda x, output: seen.see(x)


def _cutting(cut: CutOff) -> Hook:
    return lambda x, output: cut.see(x)


def _copied(model: nn.Module) -> nn.Module:
    """A copy to work on, for inference; for a compiled model, a copy of the original."""
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise BadInput(f"`model` must be an nn.Module that is not scripted, got {type(model).__name__}")
    check_complete(model)
    empty = next((name for name, each in model.named_parameters() if each.is_meta), None)
    if empty is not None:
        raise BadInput(f"`model` must have its weights, and `{empty}` is on the device meta, without values")
    try:
        return copy.deepcopy(model).eval().requires_grad_(False)
    except Exception as error:  # whatever somebody's model raises when it is copied
        raise BadInput(f"`model` cannot be copied: {in_words(error)}") from error


def _convolutions(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, AnyConvolution)]


def _kept(patterns: Sequence[str], model: nn.Module) -> set[str]:
    """The convolutions that ``keep`` names."""
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise BadInput(f"`keep` must be a sequence of paths or patterns of them, got {brief(patterns)}")
    patterns = tuple(patterns)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise BadInput(f"`keep` must hold paths or patterns of them, got {brief(pattern)} among them")
    layers = _convolutions(model)
    return {name for pattern in patterns for name in fitting(pattern, layers, argument="keep")}


def _by_name(recordings: Sequence[Recording]) -> dict[str, list[LayerCall]]:
    found: dict[str, list[LayerCall]] = {}
    for recording in recordings:
        for call in recording.layers:
            found.setdefault(call.name, []).append(call)
    return found


def _error(made: list[list[Tensor]], own: list[list[Tensor]]) -> float | None:
    """The error of the outputs; of several, the largest."""
    each: dict[int, Deviation] = {}
    for ours, theirs in zip(made, own, strict=True):
        for position, (y, meant) in enumerate(zip(ours, theirs, strict=False)):
            each.setdefault(position, Deviation()).add(y, meant)
    return max((deviation.relative_l2 for deviation in each.values()), default=None)
