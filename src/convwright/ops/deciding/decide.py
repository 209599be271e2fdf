"""What a call will run from now on: the chosen candidates of its directions, made ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

from convwright import flags
from convwright.backends.torch_native.own import torch_candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.epilogue import Activation, activation_named
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import Refused
from convwright.measuring.compare import TIE
from convwright.measuring.hardware.machine import device_facts
from convwright.ops.asking import ambient
from convwright.ops.calls.call import Call
from convwright.ops.calls.posed import FROM_OUTPUT, Wanted, gradient_problems, with_dense_output
from convwright.ops.calls.slots import Run
from convwright.ops.deciding.earned import Earning, earning
from convwright.ops.deciding.host_costs import LONG_LOOK_US, host_costs
from convwright.ops.deciding.node_cost import node_host_us
from convwright.ops.gradients.autograd import Training
from convwright.ops.gradients.fused_gradients import FusedGradients, fused_choices, fused_problems
from convwright.ops.running.behind import activated, behind, torchs_own
from convwright.ops.running.proving import Proving, Wrapped
from convwright.ops.running.relief import bound
from convwright.ops.running.runner import Runner
from convwright.ops.running.strides import with_strides
from convwright.tuning.session import Choice, capturing, session

# A quick search takes few samples of the host, so their interval may be very wide; the median is within this factor.
_DOUBT = 1.25
# PyTorch's own call hardly ever takes the host more than so many times as long as that of a tiny convolution (H200).
# Where it seemed to take longer, all that was timed beside it did, too, as beside compilers.
_LONGEST = 2.0


def decide(call: Call) -> Run | None:
    """Choose a candidate for each direction that this call needs, and make it ready.

    None: PyTorch's own function, called with the caller's own arguments.
    """
    try:
        problem = call.problem()
    except Refused:
        if call.request.algorithm is not None:
            raise
        return _torchs_own(call)
    if call.trains and activation_named(call.request.activation) not in FROM_OUTPUT:
        run = decide(replace(call, request=call.request._replace(activation=None)))
        return wrapped(activated(run, call), run)
    facts = device_facts(call.x.device)
    main = _tried(_choice(problem, facts, call, call.request.algorithm), call)
    asked = call.request.algorithm is not None or ambient.current() is not None
    if not call.trains:
        if _is_own(main):
            return (None if asked else _earning(own_runner(call), (main,), call)) or _torchs_own(call)
        if _is_free(main, call) and not _worth_a_look(main, adds_bias=call.form.transposed and call.bias is not None):
            return _torchs_own_instead(main, call)
        return _proving(main, _main(main, call), own_runner(call)) if _proves(main, call) else _main(main, call)
    gradients = _gradient_choices(problem, call, facts)
    fused = None if asked else _fused_choices(problem, call, gradients, facts)
    choices = (main, *(choice for choice in fused or gradients if choice is not None))
    is_free = not asked and all(_is_own(choice) or _is_free(choice, call) for choice in choices)
    if all(map(_is_own, choices)):
        return (None if asked else _earning(own_runner(call), choices, call)) or _torchs_own_instead(main, call)
    if is_free and not _worth_a_node(choices):
        return _torchs_own_instead(main, call)
    run = _trained(problem, main, gradients, call, fused)
    return (None if asked else _earning(run, choices, call)) or run


def _earning(run: Run, choices: tuple[Choice, ...], call: Call) -> Run | None:
    """``run``, counted, where a search for one of these choices was too short; None where none was."""
    return earning(run, [choice.candidate.problem for choice in choices], call)


def training(call: Call) -> Training:
    """The three directions of a convolution, whether or not they are PyTorch's own."""
    problem, facts = call.problem(), device_facts(call.x.device)
    main = _choice(problem, facts, call, call.request.algorithm)
    return _trained(problem, main, _gradient_choices(problem, call, facts), call)


def torchs_training(call: Call) -> Training:
    """All three of PyTorch's own, for a call about which nothing is decided yet."""
    problem = call.problem()
    return Training(problem, with_dense_output(problem).output, call.form, call.request, torchs_own(call), None, None)


def _choice(problem: ConvProblem, device: DeviceFacts, call: Call, algorithm: str | None) -> Choice:
    policy, around = call.request.policy or Policy(), ambient.current()
    asked = algorithm or (around.get(problem.direction) if around is not None else None)
    try:
        return session().choose(problem, device, policy, asked)
    except Refused:
        if algorithm is not None or around is None or around.strict:
            raise
        return session().choose(problem, device, policy, None)


def _gradient_choices(problem: ConvProblem, call: Call, device: DeviceFacts) -> list[Choice | None]:
    posed = gradient_problems(problem, Wanted.at(call))
    return [None if each is None else _tried(_choice(each, device, call, None), call) for each in posed]


def _fused_choices(
    problem: ConvProblem, call: Call, plain: list[Choice | None], device: DeviceFacts
) -> list[Choice | None] | None:
    """Choices for gradients with what stands ahead of them, where these are surely faster."""
    posed = fused_problems(problem, Wanted.at(call), call.request.policy or Policy(), device)
    return fused_choices(posed, plain, lambda each: _choice(each, device, call, None))


def _trained(
    problem: ConvProblem,
    main: Choice,
    gradients: list[Choice | None],
    call: Call,
    fused: list[Choice | None] | None = None,
) -> Training:
    to_input, to_weight = (
        None if choice is None or _is_own(choice) else _direction(choice, call) for choice in gradients
    )
    chosen = next((choice for choice in gradients if choice is not None), None)
    gradient = _output_of(chosen.candidate.problem, problem.direction) if chosen is not None else problem.output
    ready = FusedGradients(fused, call) if fused is not None else None
    return Training(problem, gradient, call.form, call.request, _direction(main, call), to_input, to_weight, ready)


def _direction(choice: Choice, call: Call) -> Runner:
    """A choice for one of the directions of a call that trains."""
    run = _main(choice, call) if choice.candidate.problem.direction is call.form.direction else _bound(choice, call)
    if not _proves(choice, call):
        return run
    return _proving(choice, run, _direction(_torchs(choice), call))


def _output_of(problem: ConvProblem, direction: Direction) -> TensorSpec:
    return problem.y if direction is Direction.FORWARD else problem.x


def _is_own(choice: Choice) -> bool:
    """Whether PyTorch's own function, called as its flags are now, is what was chosen."""
    precision = dict(choice.candidate.config).get("tf32")
    return choice.is_torch and (precision is None or (precision == "on") is flags.tf32_allowed())


def _tried(choice: Choice, call: Call) -> Choice:
    """The choice, or what may have been far better than PyTorch's own call, where that can be told in use."""
    if not _is_own(choice):
        return choice
    rival = session().rival(choice.candidate.problem, choice.device, call.request.policy or Policy())
    if rival is None or not _proves(rival, call):
        return choice
    session().last = rival
    return rival


def _proves(choice: Choice, call: Call) -> bool:
    """Whether a choice has yet to show that it is faster where it is used, which can be told on a CPU."""
    return choice.device.kind == "cpu" and _is_free(choice, call)


def _is_free(choice: Choice, call: Call) -> bool:
    """Whether PyTorch's own call may serve instead of a choice.

    What was asked for runs, and so does what was chosen for another reason than time, or where results of calls that
    are alike have to be the same bit for bit.
    """
    request = call.request
    if request.algorithm is not None or ambient.current() is not None:
        return False
    policy = request.policy or Policy()
    if policy.objective is not Objective.TIME or policy.arithmetic is not None:
        return False
    timed = choice.device_us is not None and choice.torch_device_us is not None
    return timed and not choice.is_torch and not (policy.deterministic or flags.deterministic())


def _worth_a_look(choice: Choice, *, adds_bias: bool = False) -> bool:
    """Whether a choice is surely faster than PyTorch's own call even with what it costs the host to find it, and to add
    a bias behind it.

    Eagerly a call takes as long as the slower of host and device; on a CPU it shows in use.
    """
    device, host, torch_device, torch_host = (
        choice.device_us, choice.host_us, choice.torch_device_us, choice.torch_host_us
    )  # fmt: skip
    if device is None or host is None or torch_device is None or torch_host is None:
        return True
    host_us, torch_host_us = min(host.high, _DOUBT * host.value), max(torch_host.low, torch_host.value / _DOUBT)
    most_us = (1 - TIE) * max(torch_device.value, torch_host_us)
    if capturing(choice.device):  # nothing can be measured inside a capture
        return True
    if device.value >= most_us:
        return False
    if max(device.value, host_us + LONG_LOOK_US) < (1 - TIE) * torch_device.value:
        return True
    # What a look takes is measured only where it decides.
    costs = host_costs(choice.device.kind)
    slowness = max(torch_host.value / (_LONGEST * costs.own_us), 1.0)
    host_us = host_us / slowness + costs.look_us + costs.bias_us * adds_bias
    return max(device.value, host_us) < (1 - TIE) * max(torch_device.value, torch_host_us / slowness)


def _proving(choice: Choice, ours: Runner, own: Runner) -> Proving:
    proving = Proving(ours, own)

    def told(gain_us: float) -> None:
        if not gain_us and session().last is choice:
            session().last = _torchs(choice)

    proving.when_settled(told)
    return proving


def wrapped(wrapper: Runner, run: Run | None) -> Run:
    """``wrapper``, which calls ``run``; one that tells of it, where it is not known yet what is to serve."""
    return Wrapped(wrapper, run) if isinstance(run, Wrapped | Earning | Proving | Training) else wrapper


def when_open(run: Run, call: Call, *, settled: Callable[[Run | None], None], earned: Callable[[], None]) -> None:
    """Where it is not known yet what is to serve calls like this one: call ``settled`` with it once it is, and
    ``earned`` when the next such call is to be decided anew.

    What is kept until then knows nothing of the call's tensors.
    """
    trial, own = run.trial if isinstance(run, Wrapped) else run, _torchs_own(call)
    if isinstance(trial, Earning):
        trial.when_earned(earned)
        trial = trial.run
    if isinstance(trial, Proving):
        trial.when_settled(lambda gain_us: settled(trial.ours if gain_us else own))
    elif isinstance(trial, Training):
        kind = call.x.device.type

        def trained(gain_us: float) -> None:
            with_node_us, without_us = node_host_us(kind)
            if gain_us <= with_node_us - without_us:
                settled(own)

        trial.when_settled(trained)


def _worth_a_node(choices: tuple[Choice, ...]) -> bool:
    """Whether the chosen candidates, behind a Python autograd node, are surely faster than PyTorch's own calls.

    Eagerly a step takes as long as the slower of host and device; on a CPU they are one.
    """
    ours_us = sum(choice.device_us.high if choice.device_us else inf for choice in choices)
    torchs_us = sum(choice.torch_device_us.low if choice.torch_device_us else 0.0 for choice in choices)
    kind = choices[0].device.kind
    with_node_us, without_us = node_host_us(kind)
    if kind == "cpu":
        return ours_us + with_node_us - without_us < (1 - TIE) * torchs_us
    host_us = with_node_us + sum(map(_more_host_us, choices))
    return max(ours_us, host_us) < (1 - TIE) * max(torchs_us, without_us)


def _more_host_us(choice: Choice) -> float:
    """What a choice costs the host beyond PyTorch's own call of the same direction."""
    if choice.host_us is None or choice.torch_host_us is None:
        return 0.0
    return max(choice.host_us.value - choice.torch_host_us.value, 0.0)


def _torchs_own(call: Call) -> Run | None:
    """PyTorch's own functions and gradient; None where the caller's arguments can go there as they are."""
    return torchs_own(call) if _has_more(call) else None


def _has_more(call: Call) -> bool:
    """Whether there is more to a call than ``F.conv2d`` takes."""
    return call.extra is not None or activation_named(call.request.activation) is not Activation.NONE


def own_runner(call: Call) -> Runner:
    """PyTorch's own functions, called as a candidate is."""
    if _has_more(call):
        return torchs_own(call)
    own, window = call.form.own, call.form.window(call.request)
    return lambda x, w, bias=None, _residual=None, _out=None: own(x, w, bias, *window)


def _torchs_own_instead(choice: Choice, call: Call) -> Run | None:
    """PyTorch's own functions; ``last_choice`` tells of them, and not of the choice that they stand in for."""
    if not choice.is_torch:
        session().last = _torchs(choice)
    return _torchs_own(call)


def _torchs(choice: Choice) -> Choice:
    """PyTorch's own call in the place of a choice."""
    own = torch_candidate(choice.candidate.problem, cpu=choice.device.kind == "cpu")
    return replace(choice, candidate=own, device_us=choice.torch_device_us, host_us=choice.torch_host_us)


def _main(choice: Choice, call: Call) -> Runner:
    """The choice for the call itself; a transposed convolution's bias and activation come behind it."""
    run = _bound(choice, call)
    return behind(run, call) if choice.candidate.problem.direction is Direction.BACKWARD_DATA else run


def _bound(choice: Choice, call: Call) -> Runner:
    """A choice bound to calls with operands like these; only a forward problem has a bias and a residual."""
    problem = choice.candidate.problem
    given = call.operands[:4] if problem.direction is Direction.FORWARD else (call.x, call.w, None, None)
    demanded = _is_demanded(problem.direction, call)
    return with_strides(bound(choice, given, call.request.policy or Policy(), demanded=demanded), problem, call)


def _is_demanded(direction: Direction, call: Call) -> bool:
    """Whether what computes a direction of a call was named, so that nothing else may."""
    if call.request.algorithm is not None and direction is call.form.direction:
        return True
    around = ambient.current()
    return around is not None and around.demanded(direction) is not None
