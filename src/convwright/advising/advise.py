"""Measure a model and suggest what makes it faster. The model is not changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convwright.advising import whatif
from convwright.advising.advice import Advice, LayerAdvice
from convwright.advising.advice_text import curable, names
from convwright.advising.gain import Gain, suggest
from convwright.advising.optimized import optimized
from convwright.advising.shapes import example_of
from convwright.advising.side_by_side import time_pair
from convwright.advising.suggestion import Kind, Suggestion
from convwright.advising.tuned import layers_like, where
from convwright.advising.whole_model import WholeModel, time_enabled, time_model
from convwright.api.finding import refuse_ignored, why_nothing_is_measured
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.limits import only_in_parts
from convwright.core.policy import Objective, Policy, Weights, check_policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.eager.enable import is_enabled
from convwright.engine.capture.distinct import Posed, distinct
from convwright.engine.capture.example import Model, Subject
from convwright.engine.capture.layers import Recording, record
from convwright.errors import BadInput
from convwright.measuring.compare import Outcome, Verdict
from convwright.measuring.conditions import today
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import is_whole, one_of
from convwright.option_names import ModeName
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.find import find
from convwright.tuning.findings import Findings
from convwright.tuning.session import session, using
from convwright.tuning.trials.search_input import NO_HOOKS
from convwright.tuning.upcoming import Upcoming
from convwright.uncompiled import uncompiled
from convwright.wording.compact import compact
from convwright.wording.conditions_text import conditions_now
from convwright.wording.progress import Progress, progress_to
from convwright.wording.unstable_text import unstable_sentence

_MODEL_BUDGET_US = {Mode.PREDICT_TOP: 4e6, Mode.QUICK: 4e6, Mode.FULL: 30e6}
_BY_TIME = (Objective.TIME, Objective.DEVICE_TIME, Objective.TIME_THEN_WORKSPACE)
_DISTURBED = "What the model takes under cw.enabled() is not known: there was too little time, or other work."
_NOT_COMPILED = (
    "torch.compile was not tried, since it may take minutes to compile: compiled=True (--compiled) tries it."
)
_WHATIF_BUDGET_US = {Mode.PREDICT_TOP: 200_000.0, Mode.QUICK: 200_000.0, Mode.FULL: 2e6}


@uncompiled()
def advise(
    model: Model,
    example: object,
    *,
    device: str | DeviceFacts | None = None,
    backward: bool = False,
    mode: Mode | ModeName = Mode.QUICK,
    policy: Policy | None = None,
    top: int | None = None,
    compiled: bool | None = None,
    layers: str | None = None,
    tolerate_load: bool = False,
    progress: bool | Progress | None = None,
    store: Store | Path | str | None = None,
) -> Advice:
    """How long the convolutions of ``model`` take, what would be faster, and what that gains in the whole model.

    ``example`` is a tensor, its shape, a tuple of arguments or a dict of keyword arguments. The model runs in its
    present mode, and its state is restored. Each distinct convolution is measured, then each change, then the whole
    model. A change is suggested if it was surely faster side by side with the present state; the interval of that ratio
    is shown. Outputs may differ from float64 as much as a search allows a candidate. An estimate for ``optimize`` comes
    last.

    For a device that is not in this machine ("h200"), and in mode "heuristic", limits and candidates are listed without
    times.

    Args:
        backward: Measure a training step.
        mode: "quick" or "full": the time for each distinct convolution.
        top: The number of rows to show.
        compiled: Also try ``torch.compile``, which may take minutes. By default only in mode "full".
        layers: A pattern for the names of layers, as "d1.*". Changes of the whole model are then not tried.
        tolerate_load: Compare by ratios of rounds on a busy machine as well, where times are unstable.

    >>> import torch
    >>> advice = advise(torch.nn.Conv2d(2, 4, 3), torch.ones(1, 2, 8, 8), mode="heuristic")
    >>> advice.layers[0].names, advice.layers[0].candidate.id, advice.layers[0].now_us
    (('Conv2d',), 'torch/default', None)
    """
    wanted = one_of(Mode, "mode", mode, but=Mode.OFF)
    check_policy(policy)
    if top is not None and (not is_whole(top) or top < 1):
        raise BadInput(f"`top` must be at least 1, got {top!r}")
    for name, given in (("backward", backward), ("compiled", compiled), ("tolerate_load", tolerate_load)):
        if given not in (True, False) and (name != "compiled" or given is not None):
            raise BadInput(f"`{name}` must be True or False, got {given!r}")
    compiles = wanted is Mode.FULL and layers is None if compiled is None else compiled
    if layers is not None:
        refuse_ignored({"`compiled`": compiled}, "`layers` looks at single layers")
    if compiled and not wanted.measures:
        refuse_ignored({"`compiled`": True}, f"mode {wanted} measures nothing")
    if not wanted.measures:
        refuse_ignored({"`tolerate_load`": tolerate_load}, f"mode {wanted} measures nothing")
    with using(store) as kept:
        return _advice(
            Subject.of(model, example_of(model, example)), device, policy, wanted, kept, progress_to(progress),
            backward=backward, top=top, compiled=compiles, tolerate_load=tolerate_load, like=layers,
        )  # fmt: skip


def _advice(
    subject: Subject,
    device: str | DeviceFacts | None,
    policy: Policy | None,
    wanted: Mode,
    kept: Store,
    tell: Progress,
    *,
    backward: bool,
    top: int | None,
    compiled: bool,
    tolerate_load: bool,
    like: str | None,
) -> Advice:
    recording = record(subject, backward=backward)
    if like is not None:
        recording = replace(recording, layers=layers_like(like, recording), left_out=())
    facts = where(device, recording)
    if (nothing := why_nothing_is_measured(facts, wanted)) is not None:
        refuse_ignored({"mode full": wanted is Mode.FULL, "`tolerate_load`": tolerate_load}, nothing)
    wanted = wanted if facts.present or not wanted.measures else Mode.HEURISTIC
    if policy is None and facts.kind == "cuda":
        policy = Policy(
            objective=Objective.DEVICE_TIME
        )  # the table shows device times, and a CUDA graph takes no others
    search = _Search(recording, backward, facts, wanted, policy or Policy(), kept, tell, tolerate_load=tolerate_load)
    with search.upcoming.compiling():
        layers = search.layers()
        suggestions = search.changes(layers) if search.runs and layers else []
    whole, under, planned = WholeModel(None, None, (), ()), None, None
    if search.runs and layers:
        budget_us = _MODEL_BUDGET_US[wanted]
        if _at_home(facts, recording):
            search.tell("the whole model")
            whole = time_model(
                subject, recording.layers if like is None else (), facts, backward=backward, budget_us=budget_us,
                max_error=search.policy.max_error, compiled=compiled and subject.module is not None,
                tolerate_load=tolerate_load,
            )  # fmt: skip
            if not compiled and subject.module is not None and like is None:
                whole = replace(whole, notes=(*whole.notes, _NOT_COMPILED))
            suggestions += whole.suggestions
            gains = any(not layer.is_torch for layer in layers)
            if whole.device_us and gains and kept is session().store and like is None:
                under = time_enabled(
                    subject, facts, policy, whole.device_us.value, backward=backward, budget_us=budget_us / 2,
                    tolerate_load=tolerate_load,
                )  # fmt: skip
                if under is None:
                    whole = replace(whole, notes=(*whole.notes, _DISTURBED))
        suggestions += _chosen(layers, whole.device_us, under)
        if search.plans and like is None:
            search.tell("what optimize would give")
            planned = optimized(subject, _layout_of(layers), facts, search.policy, wanted, kept, NO_HOOKS.progress)
    tell(search.steps, search.steps, "")
    notes = [*_notes(recording, facts, wanted, layers), *(curable(note, wanted) for note in whole.notes)]
    notes += _of_load(layers, whole, wanted) if tolerate_load else []
    # Where layers are unstable too, the summary says why.
    alone = whole.device_us and not tolerate_load and not any(layer.unstable for layer in layers)
    if alone and (said := unstable_sentence([whole.unstable])) is not None:
        notes.append(curable(said, wanted))
    return Advice(
        device=facts,
        mode=wanted,
        backward=backward,
        layers=layers,
        model_us=whole.device_us,
        model_host_us=whole.host_us,
        enabled_us=whole.device_us.times(under.ratio) if whole.device_us and under else None,
        suggestions=tuple(sorted(suggestions, key=lambda suggestion: -suggestion.gain_us)),
        notes=tuple(notes),
        conditions=(*conditions_now(facts), *today()),
        top=top,
        optimized=planned,
    )


@dataclass(slots=True, eq=False)
class _Search:
    """The measurements of single convolutions."""

    recording: Recording
    backward: bool
    facts: DeviceFacts
    mode: Mode
    policy: Policy
    store: Store
    progress: Progress
    tolerate_load: bool = False
    posed: tuple[Posed, ...] = ()
    fusible: dict[ConvProblem, whatif.Fusible] = field(default_factory=dict)
    upcoming: Upcoming = field(init=False)
    steps: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.posed = distinct(self.recording.layers)
        self.steps = len(self.posed)
        if self.runs:
            self.fusible = whatif.fusible(self.posed, training=self.backward)
            forward = sum(not each.is_gradient for each in self.posed)
            self.steps += len(self.fusible) + forward + 1 + self.plans
        problems = [*(each.problem for each in self.posed), *self.fusible]
        self.upcoming = Upcoming(problems, self.facts, self.policy, mode=self.mode, store=self.store)

    @property
    def runs(self) -> bool:
        """Whether anything is measured."""
        return self.mode.measures

    @property
    def plans(self) -> bool:
        """Whether to estimate ``optimize``: for a forward pass, on the model's own device."""
        return self.runs and not self.backward and _at_home(self.facts, self.recording)

    def layers(self) -> tuple[LayerAdvice, ...]:
        return tuple(self._confirmed(LayerAdvice(each, self._find(each.problem, each))) for each in self.posed)

    def changes(self, layers: tuple[LayerAdvice, ...]) -> list[Suggestion]:
        """The gains of changes to single layers."""
        # A training step changes the weights.
        found = [] if self.backward else whatif.with_constant_weights(layers, self._beside)
        by_problem = {layer.problem: layer for layer in layers}
        fusing = [
            (by_problem[source.posed.problem], source, self._find(problem, source.posed))
            for problem, source in self.fusible.items()
        ]
        found += whatif.fused(fusing, self._beside)
        gains, budget_us = [], _WHATIF_BUDGET_US[self.mode]
        for layer in layers:
            if not layer.posed.is_gradient:
                self.tell(f"what if: {', '.join(layer.names)}")
                gains += whatif.other_layout(
                    layer, self.facts, budget_us, training=self.backward, tolerate_load=self.tolerate_load
                )
                found += whatif.fitting_channels(layer, self.facts, budget_us, tolerate_load=self.tolerate_load)
        return found + whatif.in_other_layout(gains)

    def _confirmed(self, layer: LayerAdvice) -> LayerAdvice:
        """The layer with its choice timed side by side with PyTorch's own call, if it was chosen for its time."""
        own, choice = layer.findings.baseline, layer.findings.choice
        timed = self.runs and layer.now_us is not None and self.policy.objective in _BY_TIME
        if not timed or own is None or choice is None or layer.is_torch:
            return layer
        packs = self.policy.weights is Weights.CHANGING
        return replace(layer, paired=self._beside(own.candidate, choice.candidate, packs))

    def _beside(self, before: Candidate, after: Candidate, packs: bool) -> Verdict | None:
        return time_pair(
            before, after, self.facts, packs=(self.policy.weights is Weights.CHANGING, packs),
            budget_us=_WHATIF_BUDGET_US[self.mode], tolerate_load=self.tolerate_load,
        )  # fmt: skip

    def tell(self, what: str) -> None:
        """Report the next step."""
        self.progress(self.done, self.steps, what)
        self.done += 1

    def _find(self, problem: ConvProblem, posed: Posed) -> Findings:
        self.tell(f"{', '.join(posed.names)}: {compact(problem)}")
        self.upcoming.at(problem)
        return find(
            problem, self.facts, self.policy, mode=self.mode, store=self.store, tolerate_load=self.tolerate_load
        )


def _chosen(layers: tuple[LayerAdvice, ...], model_us: Interval | None, under: Verdict | None) -> list[Suggestion]:
    """The policy's choices in place of PyTorch's own calls: for the whole model if it was measured, else for the
    layers."""
    what, how = "every convolution by the candidate of the table", "with cw.enabled(): y = model(x)"
    if model_us is not None and under is not None:
        if under.outcome is not Outcome.FAST:
            return []
        after_us = model_us.value * under.ratio.value
        return [
            Suggestion(
                Kind.EXACT,
                what,
                how,
                model_us.value,
                after_us,
                whole_model=True,
                ratio=under.ratio,
                rounds=under.rounds,
            )
        ]
    gains = [
        Gain(layer, layer.now_us.value, layer.best_us.value, layer.paired)
        for layer in layers
        if layer.now_us and layer.best_us and not layer.is_torch
    ]
    return suggest(gains, Kind.EXACT, what, how)


def _layout_of(layers: Sequence[LayerAdvice]) -> Layout:
    """The layout in which the model's convolutions take most of their time."""
    times = dict.fromkeys((Layout.NCHW, Layout.NHWC), 0.0)
    for layer in layers:
        if layer.problem.x.layout in times and layer.now_us is not None:
            times[layer.problem.x.layout] += layer.calls * layer.now_us.value
    return max(times, key=lambda layout: times[layout])


def _at_home(facts: DeviceFacts, recording: Recording) -> bool:
    """Whether the model is on the device in question."""
    return recording.device is not None and device_facts(recording.device) == facts


def _of_load(layers: Sequence[LayerAdvice], whole: WholeModel, mode: Mode) -> list[str]:
    """Notes about disturbances by other work, if they are tolerated."""
    reasons = [layer.findings.unstable for layer in layers]
    reasons += [] if whole.device_us is None else [whole.unstable]
    said = unstable_sentence(reasons, tolerated=True)
    untimed = sum(layer.now_us is None for layer in layers)
    if not untimed:
        return [] if said is None else [said]
    more = "" if mode is Mode.FULL else "; mode full has more time"
    rest = (
        f"{untimed} of {len(layers)} distinct convolutions were not timed: a call took too long for the budget{more}."
    )
    return [rest] if said is None else [said, rest]


def _notes(recording: Recording, facts: DeviceFacts, mode: Mode, layers: Sequence[LayerAdvice]) -> list[str]:
    notes = [f"{name} is left out: {reason}." for name, reason in recording.left_out]
    if not layers:
        return notes
    if not facts.present:
        notes.append(f"{facts.name} is not in this machine: limits and candidates are known, times are not.")
    elif not mode.measures:
        notes.append(f"Nothing ran in mode {mode}: times are those of earlier searches, where there were any.")
    elif recording.device is not None and not _at_home(facts, recording):
        notes.append(f"The model is on {recording.device}: convolutions were measured on {facts.name}, it was not.")
    notes += [
        f"{names(layer.names)}: {reason}."
        for layer in layers
        if (reason := only_in_parts(layer.problem, facts)) is not None
    ]
    if is_enabled():
        notes.append("cw.enable() is on: the model's time is with its choices, what PyTorch alone takes is not known.")
    return notes
