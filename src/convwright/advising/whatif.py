"""The times of slightly changed convolutions, each measured as a separate problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from convwright.advising.advice import LayerAdvice
from convwright.advising.gain import Gain, suggest
from convwright.advising.side_by_side import time_problems
from convwright.advising.suggestion import Kind, Suggestion
from convwright.backends.torch_native.own import spoils_memory
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Weights
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.engine.capture.distinct import Posed
from convwright.engine.capture.layers import LayerCall
from convwright.engine.capture.trails import ADD, BATCH_NORM
from convwright.measuring.compare import TIE, Outcome, Verdict, compare_undisturbed
from convwright.tuning.choose import call_us, choose
from convwright.tuning.findings import Findings

# So few channels come from the data (grey, RGB, two classes), and a user cannot add any.
_DATA_CHANNELS = 4
# A wider layer that is not faster than this ratio is described as free, not as a gain.
_NOTHING = 0.98
_ACTIVATIONS = {str(activation) for activation in Activation} - {str(Activation.NONE)}
_CPU_VECTOR_BYTES = {"AVX512": 64, "AVX2": 32}
_VECTOR_BYTES = 16
# These suggestions count more than the layers of the table.
_SCOPE = "these convolutions and what follows them"


@dataclass(frozen=True, slots=True)
class Fusible:
    """The layers of a fused problem, and whether batch normalisation must be folded first."""

    posed: Posed
    folded: bool


# Times two candidates side by side. The first packs its weight at each call; the flag says whether the second does.
Beside = Callable[[Candidate, Candidate, bool], Verdict | None]


def with_constant_weights(layers: Iterable[LayerAdvice], beside: Beside | None = None) -> list[Suggestion]:
    """The gain if packed weights are kept, which may change the choice among the measured candidates. ``beside`` times
    both choices again and decides.

    Weights that each run computes are left out, since each run must pack them again.
    """
    gains = []
    for layer in map(_with_own_weights, layers):
        found = layer.findings
        if not layer.posed.layers or found.policy.weights is Weights.CONSTANT or layer.best_us is None:
            continue
        policy = replace(found.policy, weights=Weights.CONSTANT)
        rows = [verdict.finding for verdict in found.verdicts]
        best = next((v.finding for v in choose(rows, found.baseline, policy) if v.won), None)
        if best is None or not (best_us := call_us(best, policy)).high < layer.best_us.low:
            continue
        if beside is None or layer.candidate is None:
            gains.append(Gain(layer, layer.best_us.value, best_us.value))
        elif (pair := beside(layer.candidate, best.candidate, False)) and pair.outcome is Outcome.FAST:
            gains.append(Gain(layer, layer.best_us.value, layer.best_us.value * pair.ratio.value, pair))
    what = "weights packed once and kept, since they do not change"
    return suggest(gains, Kind.INFERENCE, what, 'with cw.enabled(policy=cw.Policy(weights="constant")): y = model(x)')


def _with_own_weights(layer: LayerAdvice) -> LayerAdvice:
    own = tuple(call for call in layer.posed.layers if call.own_weight)
    return replace(layer, posed=replace(layer.posed, layers=own))


# The other layout, by the number of dimensions and the present layout.
_MEMORY_FORMATS = {
    (2, Layout.NHWC): "contiguous_format", (3, Layout.NHWC): "contiguous_format",
    (2, Layout.NCHW): "channels_last", (3, Layout.NCHW): "channels_last_3d",
}  # fmt: skip


def fusible(posed: Iterable[Posed], *, training: bool) -> dict[ConvProblem, Fusible]:
    """Forward problems fused with what follows them, if the same operations follow all layers of a problem.

    In ``training``, batch normalisation computes its statistics from the layer's output and cannot be folded.
    """
    found = {}
    for each in posed:
        after = {_epilogue(call) for call in each.layers}
        if each.problem.direction is Direction.FORWARD and len(after) == 1 and (known := after.pop()) is not None:
            epilogue, folded = known
            if not (folded and training):
                found[replace(each.problem, epilogue=epilogue)] = Fusible(each, folded)
    return found


def fused(measured: Iterable[tuple[LayerAdvice, Fusible, Findings]], beside: Beside | None = None) -> list[Suggestion]:
    """The gain of a kernel that computes the layer and what follows it, beyond the gain of the layer alone. If there
    seems to be one, ``beside`` times both again and decides."""
    gains: dict[tuple[bool, int], list[Gain]] = defaultdict(list)
    for layer, source, found in measured:
        baseline, choice = found.baseline, found.choice
        if baseline is None or baseline.measurement is None or choice is None or choice is baseline:
            continue
        alone_us = (layer.gain_us or 0.0) / layer.calls
        before_us, after_us = call_us(baseline, found.policy), call_us(choice, found.policy)
        if not after_us.high < before_us.low - alone_us:
            continue
        gain = Gain(layer, before_us.value - alone_us, after_us.value)
        if beside is not None:
            packs = found.policy.weights is Weights.CHANGING
            pair = beside(baseline.candidate, choice.candidate, packs)
            ratio = None if pair is None else pair.ratio.scaled(before_us.value / gain.before_us)
            if pair is None or ratio is None or ratio.high >= 1 / (1 + TIE):
                continue
            gain = Gain(layer, gain.before_us, gain.before_us * ratio.value, replace(pair, ratio=ratio))
        gains[source.folded, layer.problem.rank].append(gain)
    suggestions = []
    for (folded, rank), fusing in sorted(gains.items()):
        what = "bias, residual and activation in the convolution's own kernel"
        how = f'cw.conv{rank}d(x, w, b, …, activation="relu", residual=z)'
        suggestions += (
            suggest(fusing, Kind.INFERENCE, f"batch normalisation folded, {what}", f"{how} with folded w and b", _SCOPE)
            if folded
            else suggest(fusing, Kind.EXACT, what, how, _SCOPE)
        )
    return suggestions


def other_layout(
    layer: LayerAdvice, device: DeviceFacts, budget_us: float, *, training: bool, tolerate_load: bool = False
) -> list[Gain]:
    """The gain of PyTorch's own call with all operands in the other memory layout. Copies into it are not counted."""
    problem = layer.problem
    layout = Layout.NCHW if problem.x.layout is Layout.NHWC else Layout.NHWC
    if problem.rank == 1 or problem.x.layout is Layout.STRIDED:
        return []
    if training and device.kind == "cpu" and spoils_memory(problem):
        return []
    changed = problem.in_layout(layout)
    return _gain(layer, changed, device, budget_us, {Outcome.FAST}, tolerate_load=tolerate_load)


def in_other_layout(gains: Iterable[Gain]) -> list[Suggestion]:
    """Suggestions to keep these layers' tensors in the other layout."""
    suggestions = []
    for (rank, layout), word in _MEMORY_FORMATS.items():
        suggestions += suggest(
            [gain for gain in gains if (gain.layer.problem.rank, gain.layer.problem.x.layout) == (rank, layout)],
            Kind.EXACT,
            f"input, weight and output of these layers in {word}, copies not counted",
            f"weight.to(memory_format=torch.{word}), with inputs in the same format",
        )
    return suggestions


def fitting_channels(
    layer: LayerAdvice, device: DeviceFacts, budget_us: float, *, tolerate_load: bool = False
) -> list[Suggestion]:
    """A suggestion to round the channels up to the hardware's vector width, if the wider layer is not slower."""
    changed = widened(layer.problem, _lanes(layer.problem, device))
    if changed is None:
        return []
    wanted = {Outcome.FAST, Outcome.SAME}
    gains = _gain(layer, changed, device, budget_us, wanted, tolerate_load=tolerate_load)
    sides = ("out", "in") if layer.problem.direction is Direction.BACKWARD_DATA else ("in", "out")
    sizes = zip(sides, (layer.problem.c, layer.problem.k), (changed.c, changed.k), strict=True)
    words = " and ".join(f"{old} → {new} channels {side}" for side, old, new in sizes if old != new)
    if gains and not gains[0].after_us < gains[0].before_us * _NOTHING:
        words += ", in the same time"
    return suggest(gains, Kind.RETRAINING, words, "widen the layer and its neighbours, and train the model again")


def _epilogue(call: LayerCall) -> tuple[Epilogue, bool] | None:
    """The operations after a layer that its kernel could compute, and whether batch normalisation is one of them; None
    if there are none."""
    ops = [follower.op for follower in call.follows]
    folded = ops[:1] == [BATCH_NORM]
    ops = ops[folded:]
    residual = ops[:1] == [ADD]
    ops = ops[residual:]
    activation = Activation(ops[0]) if ops and ops[0] in _ACTIVATIONS else Activation.NONE
    if not residual and activation is Activation.NONE:
        return None
    return Epilogue(residual, call.has_bias or folded, activation), folded


def _gain(
    layer: LayerAdvice,
    changed: ConvProblem,
    device: DeviceFacts,
    budget_us: float,
    wanted: set[Outcome],
    *,
    tolerate_load: bool,
) -> list[Gain]:
    """Time the problem and the changed one side by side. Empty if the outcome is not one of ``wanted``."""
    baseline = layer.findings.baseline
    if baseline is None or baseline.measurement is None or layer.now_us is None:
        return []
    problems = {"now": layer.problem, "changed": changed}
    timings = time_problems(baseline.candidate, problems, device, budget_us=budget_us)
    pair = compare_undisturbed(timings["changed"], timings["now"], tolerate_load=tolerate_load)
    if pair is None or pair.outcome not in wanted:
        return []
    now_us = layer.now_us.value  # the same figure as in the table
    return [Gain(layer, now_us, now_us * pair.ratio.value, pair)]


def _lanes(problem: ConvProblem, device: DeviceFacts) -> int:
    """The number of channels in one vector of the hardware: 16 bytes on a GPU, a SIMD register on a CPU."""
    capability = torch.backends.cpu.get_cpu_capability() if device.kind == "cpu" else ""
    return _CPU_VECTOR_BYTES.get(capability, _VECTOR_BYTES) // problem.dtype.nbytes


def widened(problem: ConvProblem, lanes: int) -> ConvProblem | None:
    """The problem with its channels rounded up to multiples of ``lanes``; None if nothing changes or it is not
    possible."""
    c, k = (size if size <= _DATA_CHANNELS else -(-size // lanes) * lanes for size in (problem.c, problem.k))
    layouts = {spec.layout for spec in (problem.x, problem.w, problem.y)}
    if (c, k) == (problem.c, problem.k) or problem.groups > 1 or Layout.STRIDED in layouts:
        return None
    shapes = ((problem.x, (problem.n, c)), (problem.w, (k, c)), (problem.y, (problem.n, k)))
    x, w, y = (_with_channels(spec, sizes) for spec, sizes in shapes)
    return replace(problem, x=x, w=w, y=y)


def _with_channels(spec: TensorSpec, sizes: tuple[int, int]) -> TensorSpec:
    shape = (*sizes, *spec.shape[2:])
    return TensorSpec(shape, spec.dtype, dense_strides(shape, spec.layout))
