"""Decide what a call runs from now on: the chosen candidate of each direction, ready to run.

A question has one answer for eager calls and one for calls captured into a CUDA graph. If they differ, both are made
ready, and each call picks its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from convwright import flags, torch_api
from convwright.backends.torch_native.own import torch_candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.epilogue import activation_named
from convwright.core.host_costs import objection_of_host
from convwright.core.policy import Objective, Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.eager.asking import ambient
from convwright.eager.calls.call import Call
from convwright.eager.calls.posed import FROM_OUTPUT, Wanted, gradient_problems
from convwright.eager.calls.slots import Run
from convwright.eager.gradients.autograd import Training
from convwright.eager.gradients.fused_gradients import FusedGradients, fused_choices, fused_problems
from convwright.eager.host_costs import eager_rule, host_costs, launches_of
from convwright.eager.running.bound import (
    activated,
    call_runner,
    direction_runner,
    either_runner,
    own_runner,
    torchs_own,
)
from convwright.errors import BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning.session import Answer, Choice, capturing, session

_Pick = Callable[[Answer], Choice]
_eager: _Pick = attrgetter("eager")
_captured: _Pick = attrgetter("captured")


class Decision(NamedTuple):
    """The decision for a call. If ``run`` is None, PyTorch's own function runs on the caller's own arguments, and
    ``in_graph`` runs instead during the capture of a CUDA graph, if given. ``choice`` is the choice for the call
    itself, None if nothing was chosen. A decision that does not last is made again at a later call."""

    run: Run | None
    choice: Choice | None = None
    lasts: bool = True
    in_graph: Run | None = None


def decide(call: Call) -> Decision:
    """Choose a candidate for each direction that this call needs, and make it ready."""
    try:
        problem = call.problem()
    except Refused:
        if call.request.algorithm is not None:
            raise
        return Decision(torchs_own(call))
    if call.trains and activation_named(call.request.activation) not in FROM_OUTPUT:
        inner = decide(replace(call, request=call.request._replace(activation=None)))
        run = activated(inner.run, call)
        if inner.in_graph is not None:
            run = either_runner(run, activated(inner.in_graph, call))
        return inner._replace(run=run, in_graph=None)
    answers = _answers(problem, call)
    lasts = all(answer is None or answer.lasts for answer in answers)
    captured = _step(problem, answers, _captured, call) if call.x.is_cuda else None
    # A capture does not wait for a measurement of host costs, which would break it.
    is_captured = captured is not None and torch_api.is_capturing()
    eager = captured if is_captured else _step(problem, answers, _eager, call)
    assert eager is not None
    in_eager = _ready(problem, eager, call)
    if captured is None or captured == eager:
        return Decision(in_eager, eager.main, lasts)
    in_graph = _ready(problem, captured, call)
    if in_eager is None:
        return Decision(None, eager.main, lasts, in_graph)
    return Decision(either_runner(in_eager, in_graph or own_runner(call)), eager.main, lasts)


def choices_for(
    problem: ConvProblem, device: DeviceFacts, policy: Policy, algorithm: str | None, *, searches: bool = True
) -> Answer:
    """The choice for ``problem`` in an eager call and in a captured one."""
    is_settled = algorithm is not None or capturing(device)  # then host time does not count
    eager = None if is_settled else eager_rule(device, policy)
    return session().answer(problem, device, policy, algorithm, eager, searches=searches)


def choices_where_possible(problem: ConvProblem, device: DeviceFacts, policy: Policy, algorithm: str | None) -> Answer:
    """The same where ``algorithm`` can serve. Otherwise what is known to be fastest: layers may see a new shape at each
    call, and a search for each would take far longer than the calls."""
    try:
        return choices_for(problem, device, policy, algorithm)
    except (Refused, BadInput):  # the name is known, so a configuration is missing, or the policy cannot be kept
        if algorithm is None:
            raise
        return choices_for(problem, device, policy, None, searches=False)


def training(call: Call) -> Training:
    """The three directions of a convolution, by chosen candidates or PyTorch's own."""
    problem = call.problem()
    pick = _captured if capturing(device_facts(call.x.device)) else _eager
    main, *gradients = (None if answer is None else pick(answer) for answer in _answers(problem, call))
    assert main is not None
    return _trained(problem, _Step(main, gradients), call)


def _answers(problem: ConvProblem, call: Call) -> list[Answer | None]:
    """The answers for the call itself and for each gradient that is needed."""
    device, wanted = device_facts(call.x.device), Wanted.at(call)
    main = _answer(problem, device, call, call.request.algorithm)
    posed = gradient_problems(problem, wanted) if any(wanted) else (None, None)
    return [main, *(None if each is None else _answer(each, device, call, None) for each in posed)]


def _answer(problem: ConvProblem, device: DeviceFacts, call: Call, algorithm: str | None) -> Answer:
    around = ambient.current()
    asked = algorithm or (around.get(problem.direction) if around is not None else None)
    is_wish = algorithm is None and around is not None and not around.strict
    return (choices_where_possible if is_wish else choices_for)(problem, device, call.policy, asked)


class _Step(NamedTuple):
    """The choices for a call and its gradients. ``fused`` are the gradients that include the activation's derivative
    and the bias's gradient."""

    main: Choice
    gradients: Sequence[Choice | None] = (None, None)
    fused: Sequence[Choice | None] | None = None

    @property
    def choices(self) -> list[Choice]:
        return [self.main, *(choice for choice in self.fused or self.gradients if choice is not None)]


def _step(problem: ConvProblem, answers: Sequence[Answer | None], pick: _Pick, call: Call) -> _Step:
    """The choices for one kind of call; PyTorch's own if a training step saves less than it costs on the host."""
    main, *gradients = (None if answer is None else pick(answer) for answer in answers)
    assert main is not None
    if not call.trains:
        return _Step(main)
    step = _Step(main, gradients, None if _is_asked(call) else _fused(problem, call, gradients, pick))
    is_free = all(_is_own(each) or _is_free(each, call) for each in step.choices)
    if pick is _eager and is_free and not all(map(_is_own, step.choices)) and not _pays(step.choices, call):
        own = torch_candidate(problem, cpu=main.device.kind == "cpu")
        return _Step(replace(main, candidate=own, device_us=main.torch_device_us))
    return step


def _ready(problem: ConvProblem, step: _Step, call: Call) -> Run | None:
    """The function that runs these choices; None for PyTorch's own function."""
    if all(map(_is_own, step.choices)):
        return torchs_own(call)
    return _trained(problem, step, call) if call.trains else call_runner(step.main, call)


def _fused(
    problem: ConvProblem, call: Call, plain: Sequence[Choice | None], pick: _Pick
) -> Sequence[Choice | None] | None:
    """Gradient choices that include the activation's derivative and the bias's gradient, if surely faster."""
    device = device_facts(call.x.device)
    posed = fused_problems(problem, Wanted.at(call), call.policy, device)
    return fused_choices(posed, plain, lambda each: pick(_answer(each, device, call, None)))


def _pays(choices: Sequence[Choice], call: Call) -> bool:
    """Whether a training step saves more device time than the choices and an autograd node cost on the host."""
    device = device_facts(call.x.device)
    costs, packs = host_costs(device), call.policy.weights is Weights.CHANGING
    saved_us, extra_us = 0.0, costs.node_us
    for choice in choices:
        if choice.device_us is None or choice.torch_device_us is None or _is_own(choice):
            continue
        saved_us += choice.torch_device_us.value - choice.device_us.value
        if device.kind != "cpu":  # on a CPU, host and device are one
            extra_us += costs.extra_us(choice.candidate, launches_of(choice.candidate, packs=packs))
    return objection_of_host(saved_us, extra_us) is None


def _trained(problem: ConvProblem, step: _Step, call: Call) -> Training:
    to_input, to_weight = (
        None if choice is None or _is_own(choice) else direction_runner(choice, call) for choice in step.gradients
    )
    chosen = next((choice for choice in step.gradients if choice is not None), None)
    gradient = problem.output
    if chosen is not None:
        gradient = chosen.candidate.problem.y if problem.direction is Direction.FORWARD else chosen.candidate.problem.x
    fused = FusedGradients(step.fused, call) if step.fused is not None else None
    return Training(problem, gradient, call.request, call_runner(step.main, call), to_input, to_weight, fused)


def _is_own(choice: Choice) -> bool:
    """Whether the choice is PyTorch's own function under the current flags."""
    precision = dict(choice.candidate.config).get("tf32")
    return choice.is_torch and (precision is None or (precision == "on") is flags.tf32_allowed())


def _is_asked(call: Call) -> bool:
    return call.request.algorithm is not None or ambient.current() is not None


def _is_free(choice: Choice, call: Call) -> bool:
    """Whether PyTorch's own call may replace a choice: not if the choice was asked for by name, or not made for time,
    or if equal calls must give equal bits."""
    policy = call.policy
    if _is_asked(call) or policy.objective is not Objective.TIME or policy.arithmetic is not None:
        return False
    timed = choice.device_us is not None and choice.torch_device_us is not None
    return timed and not choice.is_torch and not (policy.deterministic or flags.deterministic())
