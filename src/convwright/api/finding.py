"""The public functions that give information and compute no convolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from reprlib import repr as brief

from torch import Tensor, nn

from convwright.api.launches import check_launches, with_kernels
from convwright.api.posing import problem
from convwright.api.why import Reason
from convwright.api.why import why as reason_of
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import KINDS, parse
from convwright.core.policy import Objective, Policy, check_policy
from convwright.core.problem import IntOrTuple
from convwright.core.window import AnyPadding
from convwright.eager.latest import latest
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import is_above_0, one_of
from convwright.option_names import ActivationName, DirectionName, ModeName, TrustName
from convwright.settings import Mode, Trust
from convwright.store.store import Store
from convwright.tuning import find as tuner
from convwright.tuning.find import Findings
from convwright.tuning.session import Choice, using
from convwright.uncompiled import uncompiled
from convwright.wording.progress import Progress, progress_to


@uncompiled()
def find(
    what: Problem | str | Tensor | nn.Module,
    weight: Tensor | Sequence[int] | None = None,
    bias: Tensor | None = None,
    *,
    stride: IntOrTuple = 1,
    padding: AnyPadding = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    activation: ActivationName | None = None,
    residual: Tensor | None = None,
    flip: bool = False,
    direction: Direction | DirectionName | None = None,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
    mode: Mode | ModeName = Mode.FULL,
    budget_us: float | None = None,
    store: Store | Path | str | None = None,
    trust: Trust | TrustName | None = None,
    isolate: bool = False,
    energy: bool = False,
    kernels: bool = False,
    tolerate_load: bool = False,
    progress: bool | Progress | None = None,
) -> Findings:
    """Every way of computing a problem, ranked, with the reason why each won, lost or was refused.

    ``what`` and the arguments after it are those of ``problem``: a problem of any kind, its text, an input and its
    ``weight``, or an ``nn.Conv…`` and the shape of its input. For a device that is not in this machine ("h200"),
    ``find`` lists candidates and measures nothing.

    Args:
        mode: "full" measures every candidate. "quick" takes 200 ms once kernels are compiled, on a CPU up to 3 s if
            calls are long. "predict-top" runs the few candidates that may be the fastest by a model of the device.
            "predict" runs nothing and chooses by that model. "heuristic" runs nothing.
        budget_us: The time for a search, in place of the mode's.
        store: Where findings are read and stored: a ``Store``, its path or its URL. The default is the store of this
            process.
        trust: "verify" times a winner from the store again before it counts, "trust" does not. The default is
            ``CONVWRIGHT_TRUST``.
        isolate: Run candidates in a child process. A crash is then a failure of that candidate alone.
        energy: Also measure the energy of the best candidates, in mode "full".
        kernels: After the timing, run each measured candidate once more and list the kernels that it launches on a GPU.
        tolerate_load: Compare candidates on a busy machine as well, by ratios of rounds in which both ran. Unstable
            times are not stored.
        progress: True writes a line to stderr. A function is called with the amount done, the total and the name of
            the step.

    Arguments that say how to measure are errors if nothing is measured.

    >>> found = find("ic4ih8oc4kh3", device="cpu", mode="heuristic")
    >>> [verdict.finding.candidate.id for verdict in found.verdicts][:2]
    ['torch/default', 'reference/gemm']
    """
    wanted = one_of(Mode, "mode", mode, but=Mode.OFF)
    check_policy(policy)
    _check_budget(budget_us)
    tell = progress_to(progress)
    posed = problem(
        what, weight, bias,
        stride=stride, padding=padding, dilation=dilation, groups=groups, activation=activation, residual=residual,
        flip=flip, direction=direction,
    )  # fmt: skip
    trusted = None if trust is None else one_of(Trust, "trust", trust)
    facts = device_facts(_device_of(what) if device is None else device)
    if kernels:
        check_launches(facts, wanted)
    nothing = why_nothing_is_measured(facts, wanted)
    if nothing is not None:
        asked = {"`budget_us`": budget_us, "`isolate`": isolate, "`energy`": energy, "`tolerate_load`": tolerate_load}
        refuse_ignored(asked | {"`trust` 'verify'": trusted is Trust.VERIFY}, nothing)
    with using(store) as kept:
        found = tuner.find(
            posed, facts, policy or Policy(), mode=wanted, store=kept, budget_us=budget_us,
            trust=trusted, isolate=isolate, energy=energy, tolerate_load=tolerate_load,
            progress=lambda what, done, total: tell(done, total, what),
        )  # fmt: skip
    if nothing is not None and found.policy.objective is Objective.ENERGY and not _knows_energy(found):
        refuse_ignored({"objective energy": True}, f"{nothing}, and no energy is known from before")
    if kernels:
        found = with_kernels(found, tell)
    tell(1, 1, "")
    return found


def why_nothing_is_measured(device: DeviceFacts, mode: Mode) -> str | None:
    """Why a search only lists candidates; None if it measures."""
    if not device.present:
        return f"{device.name} is not in this machine: nothing is measured"
    return None if mode.measures else f"mode {mode} measures nothing"


def refuse_ignored(given: Mapping[str, object], why: str) -> None:
    """Refuse options that have no effect, by the names that the user knows."""
    for name, value in given.items():
        if value:
            raise BadInput(f"{why}, so that {name} would be ignored")


def why(problem: Problem | str, algorithm: str, device: str | DeviceFacts | None = None) -> Reason:
    """Why ``algorithm`` cannot compute ``problem`` on ``device``. For cuDNN's algorithms cuDNN's log gives the reason.

    ``algorithm`` is an id, with or without a configuration: "cudnn/engine-48[k2=2,k13=2]", "cudnn/fft",
    "triton/implicit-gemm". A name without a backend is one of cuDNN's on a GPU. On a CPU it is the first algorithm of
    that name that can run there. cuDNN's engines can be named even if cuDNN does not propose them, also for a GPU that
    is not in this machine. A child process reads cuDNN's log for the checks that failed, which takes a few seconds.
    The problem is not computed.

    >>> reason = why("ic4ih8oc4kh3sh2", "reference/winograd", "cpu")
    >>> reason.serves, reason.sentence
    (False, "stride (2, 2): Winograd's tiles need stride 1 in every dimension")
    """
    posed = parse(problem) if isinstance(problem, str) else problem
    if getattr(posed, "kind", None) not in KINDS:
        raise BadInput(f"why takes a problem or its text, got {brief(problem)}")
    if not isinstance(algorithm, str) or not algorithm:
        raise BadInput(f"why takes the id of an algorithm such as 'cudnn/engine-20', got {brief(algorithm)}")
    return reason_of(posed, algorithm, device_facts(device))


def _knows_energy(found: Findings) -> bool:
    measured = (verdict.finding.measurement for verdict in found.verdicts)
    return any(each is not None and each.energy_mj is not None for each in measured)


def _check_budget(given: object) -> None:
    if given is None or (is_above_0(given) and given != inf):
        return
    shown = f"{given / 1e6:g} s" if isinstance(given, int | float) and not isinstance(given, bool) else repr(given)
    raise BadInput(f"the budget must be a time above 0, got {shown}")


def _device_of(what: object) -> str | None:
    """The device of the operands; None if it is unknown."""
    tensor = what.weight if isinstance(what, nn.Module) else what
    return str(tensor.device) if isinstance(tensor, Tensor) and not tensor.is_meta else None


@uncompiled()
def last_choice() -> Choice | None:
    """The latest choice of this process; None if none was made yet.

    None means that calls ran PyTorch's own function without a choice. This is usual on a CPU, where calls never search:
    a call makes a choice if it names an algorithm, or after ``find`` or ``tune`` has measured something on this device.
    On a GPU the second call of a layer makes the choice. A repeated call makes no new choice.
    """
    return latest.choice
