"""The time of one run of the whole model, as it is and with changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil, inf, isfinite, sqrt
from typing import Any

import torch
from torch import Tensor

from convwright import flags
from convwright.advising.advice_text import duration, rests_on
from convwright.advising.side_by_side import time_calls
from convwright.advising.suggestion import Kind, Suggestion
from convwright.advising.variants import COMPILED, Variant, variants_of
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.finding import Interval
from convwright.core.policy import Policy
from convwright.eager.enable import enabled
from convwright.eager.scheduler import scheduler
from convwright.engine.capture.example import Subject
from convwright.engine.capture.layers import LayerCall
from convwright.engine.capture.trails import tensors_in
from convwright.engine.capture.unchanged import unchanged, unwritten
from convwright.errors import first_line
from convwright.measuring.clock import HostClock, WallClock
from convwright.measuring.compare import Outcome, Verdict, compare_undisturbed
from convwright.measuring.timer import measure, measure_calls
from convwright.measuring.timing import Timing
from convwright.tensors import core_dtype

_AS_IT_IS, _ENABLED = "as it is", "under cw.enabled()"
# A block of runs on a CPU.
_BLOCK_US = 10_000.0


@dataclass(frozen=True, slots=True)
class WholeModel:
    """The model's device time, the host time to start a run on a GPU, and the suggestions.

    ``notes`` are sentences about changes that did not help or failed. ``unstable`` says why other work makes the
    model's own time unreliable.
    """

    device_us: Interval | None
    host_us: Interval | None
    suggestions: tuple[Suggestion, ...]
    notes: tuple[str, ...]
    unstable: str | None = None


def time_model(
    subject: Subject,
    layers: tuple[LayerCall, ...],
    device: DeviceFacts,
    *,
    backward: bool,
    budget_us: float,
    max_error: float = Policy().max_error,
    compiled: bool = False,
    tolerate_load: bool = False,
) -> WholeModel:
    """Run the model, interleaved with copies that have one change each. Its state is restored. With ``compiled``,
    ``torch.compile`` compiles one of the copies, which may take minutes. With ``tolerate_load``, disturbed rounds count
    too."""
    with _restored(subject, backward):
        variants, notes = variants_of(subject, layers, backward=backward, compiled=compiled)
        right = _right(subject, variants, notes, max_error, most=_most(layers, device))
        rows = {variant.what: variant for variant in right}
        calls = {_AS_IT_IS: _step(subject, backward)} | {what: _step(v.subject, backward) for what, v in rows.items()}
        timings = time_calls(calls, device, budget_us=budget_us)
        host_us = _host_us(calls[_AS_IT_IS], device, budget_us)
    own = timings[_AS_IT_IS]
    unstable = own.unstable if own.disturbed else None
    if own.call_us.value <= 0:
        return WholeModel(None, host_us, (), (*notes, f"The model's time is not known: {own.unstable}."), unstable)
    if own.disturbed and not tolerate_load:
        said = "The model's time is unstable, so no change of the whole model is compared."
        return WholeModel(own.call_us, host_us, (), (*notes, said), unstable)
    pairs = {what: compare_undisturbed(timings[what], own, tolerate_load=tolerate_load) for what in rows}
    gains = [
        _suggestion(rows[what], own, pair, right[rows[what]])
        for what, pair in pairs.items()
        if pair is not None and pair.outcome is Outcome.FAST
    ]
    notes += [
        f"{what} is not surely faster: the whole model {duration(own.call_us.value)} → "
        f"{duration(own.call_us.value * pair.ratio.value)}, {1 / pair.ratio.value:.2f}x "
        f"({rests_on(pair.ratio, pair.rounds)})."
        for what, pair in pairs.items()
        if what == COMPILED and pair is not None and pair.outcome is not Outcome.FAST
    ]
    if host_us is not None and host_us.low > own.call_us.high:
        gains.append(_in_a_graph(host_us, own))
    return WholeModel(own.call_us, host_us, tuple(gains), tuple(notes), unstable)


def time_enabled(
    subject: Subject,
    device: DeviceFacts,
    policy: Policy | None,
    own_us: float,
    *,
    backward: bool,
    budget_us: float,
    tolerate_load: bool = False,
) -> Verdict | None:
    """Compare the model under ``cw.enabled()`` with the model as it is, which takes ``own_us``, in interleaved blocks
    of runs. None if the comparison gives no result."""
    with _restored(subject, backward):
        step = _step(subject, backward)
        with enabled(policy=policy), scheduler.hurried():
            step()
        if device.kind != "cpu":
            timings = time_calls({_AS_IT_IS: step, _ENABLED: _under(policy, step)}, device, budget_us=budget_us)
        else:
            runs = ceil(_BLOCK_US / max(own_us, 1.0))
            timings = _in_blocks(step, runs, policy, budget_us=budget_us)
    pair = compare_undisturbed(timings[_ENABLED], timings[_AS_IT_IS], tolerate_load=tolerate_load)
    return pair if pair is not None and pair.is_known else None


def _under(policy: Policy | None, step: Callable[[], object]) -> Callable[[], object]:
    def under() -> None:
        with enabled(policy=policy):
            step()

    return under


def _in_blocks(step: Callable[[], object], runs: int, policy: Policy | None, *, budget_us: float) -> dict[str, Timing]:
    """Blocks of ``runs`` steps as they are and under ``cw.enabled()``. The time to enable and to disable, and the first
    step after it, are not counted."""

    def block() -> None:
        for _ in range(runs):
            step()

    with ExitStack() as switch:

        def switch_on() -> None:
            switch.close()
            switch.enter_context(enabled(policy=policy))
            step()

        def switch_off() -> None:
            switch.close()
            step()

        before = {_AS_IT_IS: switch_off, _ENABLED: switch_on}
        calls = dict.fromkeys(before, block)
        return measure_calls(calls, clock=WallClock(), budget_us=budget_us, before=before)


@contextmanager
def _restored(subject: Subject, backward: bool) -> Iterator[None]:
    """A context in which the model can run, with or without gradients. Its state is restored at the end."""
    with (
        unchanged(subject.module),
        unwritten(subject.given()),
        torch.enable_grad() if backward else torch.no_grad(),
    ):
        yield


def _step(subject: Subject, backward: bool) -> Callable[[], object]:
    """One run. With ``backward`` it also returns the gradients, and does not accumulate them."""
    if not backward:
        return subject
    wanted: list[Tensor] = [p for p in subject.parameters() if p.requires_grad]
    wanted += [t for t in subject.given() if t.requires_grad and t.is_leaf]

    def step() -> object:
        results = [result for result in tensors_in((subject(),)) if result.requires_grad]
        ones = [torch.ones_like(result) for result in results]
        return torch.autograd.grad(results, wanted, ones, allow_unused=True) if results and wanted else results

    return step


def _right(
    subject: Subject, variants: list[Variant], notes: list[str], max_error: float, *, most: float
) -> dict[Variant, float | None]:
    """The variants with correct outputs, with their distance from the model's outputs. Others get a note.

    The allowed error is that of candidates: ``max_error`` times the model's own error against float64. If the model
    does not run in float64, or computes in it, a variant may differ from the model's outputs by ``most``.
    """
    right: dict[Variant, float | None] = {}
    own, again = _outputs(subject), _outputs(subject)
    by_chance = any(not torch.equal(a, b) for a, b in zip(own, again, strict=True))
    wide = any(each.dtype is torch.float64 for each in own)  # nothing here is more exact than these
    exact = None if by_chance or wide or not variants else _in_float64(subject)
    for variant in variants:
        try:
            changed = _outputs(variant.subject)
        except Exception as error:  # a model may raise anything in another memory format
            notes.append(f"Not possible here: {variant.what} ({first_line(error)}).")
            continue
        if by_chance:
            right[variant] = None
            continue
        difference = _most_off(changed, own)
        why = _too_far_off(changed, own, exact, max_error) if exact is not None else None
        if exact is None and not difference < most:
            why = f"outputs would differ by {difference:.1e} (relative L2)"
        if why is None:
            right[variant] = difference
        else:
            notes.append(f"Not offered: {variant.what}; {why}.")
    return right


def _outputs(subject: Subject) -> list[Tensor]:
    return list(tensors_in((subject(),)))


def _in_float64(subject: Subject) -> list[Tensor] | None:
    """The outputs of the model computed in float64; None if it cannot run so."""

    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    if subject.module is None:
        return None
    try:
        model = copy.deepcopy(subject.module).double()
        given = Subject(
            model, tuple(map(wide, subject.args)), {name: wide(each) for name, each in subject.kwargs.items()}
        )
        return _outputs(given)
    except Exception:  # a model may raise anything in another dtype
        return None


def _too_far_off(changed: list[Tensor], own: list[Tensor], exact: list[Tensor], max_error: float) -> str | None:
    """Why a variant's errors are too large, by the rule for candidates."""
    for y, its, wanted in zip(changed, own, exact, strict=True):
        if not its.is_floating_point():
            continue
        error, known = _relative_l2(y, wanted), _relative_l2(its, wanted)
        if isfinite(known) and not error <= max(max_error * known, core_dtype(its.dtype).roundoff):
            return (
                f"its relative L2 error against float64 would be {error:.2g}, the model's own is {known:.2g} "
                f"({max_error:g}x allowed)"
            )
    return None


def _most_off(changed: list[Tensor], own: list[Tensor]) -> float:
    return max((_relative_l2(b, a) for a, b in zip(own, changed, strict=True) if a.is_floating_point()), default=0.0)


def _relative_l2(y: Tensor, exact: Tensor) -> float:
    if y.shape != exact.shape:
        return inf
    given, wanted = y.detach().double(), exact.detach().double()
    norm = wanted.norm()
    return float((given - wanted).norm() / norm) if norm else float(given.norm())


def _most(layers: tuple[LayerCall, ...], device: DeviceFacts) -> float:
    """The largest difference that rounding explains: half of the digits."""
    tf32 = device.kind == "cuda" and flags.tf32_allowed()
    dtypes = {DType.FP16 if tf32 else layer.problem.dtype for layer in layers}
    return max((sqrt(dtype.roundoff) for dtype in dtypes), default=0.0)


def _host_us(call: Callable[[], object], device: DeviceFacts, budget_us: float) -> Interval | None:
    if device.kind != "cuda" or device.torch_name is None:
        return None
    return measure(call, clock=HostClock(device.torch_name), budget_us=budget_us / 4).call_us


def _suggestion(variant: Variant, own: Timing, pair: Verdict, difference: float | None) -> Suggestion:
    return Suggestion(
        variant.kind,
        variant.what,
        variant.how,
        own.call_us.value,
        own.call_us.value * pair.ratio.value,
        whole_model=True,
        difference=difference,
        ratio=pair.ratio,
        rounds=pair.rounds,
    )


def _in_a_graph(host_us: Interval, own: Timing) -> Suggestion:
    return Suggestion(
        Kind.EXACT,
        "the model in a CUDA graph: the device waits for the host, which takes longer to start a run",
        "graph = torch.cuda.CUDAGraph(); with torch.cuda.graph(graph): y = model(x); then graph.replay()",
        host_us.value,
        own.call_us.value,
        whole_model=True,
    )
