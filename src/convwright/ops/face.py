"""The parts of the public face that are about knowing rather than computing."""

from __future__ import annotations

from math import inf

from torch import Tensor

from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import ConvProblem, IntOrTuple
from convwright.errors import BadInput
from convwright.measuring.machine import device_facts
from convwright.naming import is_above_0, one_of
from convwright.ops.describe import Padding, problem_of
from convwright.settings import Mode, Trust
from convwright.tuning import find as tuner
from convwright.tuning.contest import Progress
from convwright.tuning.find import Findings
from convwright.tuning.launches import check_launches, with_kernels
from convwright.tuning.session import Choice, session
from convwright.tuning.store import Store
from convwright.tuning.why import Reason
from convwright.tuning.why import why as reason_of
from convwright.uncompiled import uncompiled


@uncompiled()
def find(
    what: ConvProblem | str | Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    stride: IntOrTuple = 1,
    padding: Padding = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    activation: str | None = None,
    direction: Direction | str = Direction.FORWARD,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
    mode: Mode | str = Mode.FULL,
    budget_us: float | None = None,
    store: Store | None = None,
    trust: Trust | str | None = None,
    isolate: bool = False,
    energy: bool = False,
    kernels: bool = False,
    progress: Progress | None = None,
) -> Findings:
    """Every way of computing a convolution, ranked, with the reason why each won, lost or was refused.

    ``what`` is a problem, its text form, or an input tensor that is followed by its ``weight``. For a device that is
    elsewhere ("h200") nothing runs. ``mode`` "heuristic" runs nothing either, "quick" keeps to 200 ms, "full"
    measures every candidate; ``budget_us`` is the time for either. Findings are remembered in ``store``, by default the
    one of this process.

    ``trust`` "verify" times a winner from the store again before it is believed, "trust" does not; by default it is as
    ``CONVWRIGHT_TRUST`` says. ``isolate`` runs candidates in a process of their own, so that a crash of one is its
    failure. ``energy`` measures the energy of the best, in mode "full". ``kernels`` runs each measured candidate once
    more, when all is timed, and lists the kernels that it launches on a GPU. ``progress`` is called with what is being
    done, how much of it is done, and of how much.

    >>> from convwright.core.policy import Policy
    >>> found = find("ic4ih8oc4kh3", device="cpu", mode="heuristic", store=Store.open(None))
    >>> [verdict.finding.candidate.id for verdict in found.verdicts][:2]
    ['torch/default', 'reference/gemm']
    """
    wanted = one_of(Mode, "mode", mode, but=Mode.OFF)
    check_policy(policy)
    _check_budget(budget_us)
    if store is not None and not isinstance(store, Store):
        raise BadInput(f"`store` must be a Store or None, got {store!r}")
    if isinstance(what, Tensor):
        _check_operands(weight, bias)
        assert weight is not None
        problem = problem_of(
            what, weight, bias,
            stride=stride, padding=padding, dilation=dilation, groups=groups,
            activation=activation, direction=one_of(Direction, "direction", direction),
        )  # fmt: skip
        device = device or str(what.device)
    else:
        problem = ConvProblem.parse(what) if isinstance(what, str) else what
        if not isinstance(problem, ConvProblem):
            raise BadInput(f"find takes a problem, its text, or an input tensor and its weight, got {what!r}")
    facts = device_facts(device)
    if kernels:
        check_launches(facts, wanted)
    found = tuner.find(
        problem,
        facts,
        policy or Policy(),
        mode=wanted,
        store=store or session().store,
        budget_us=budget_us,
        trust=None if trust is None else one_of(Trust, "trust", trust),
        isolate=isolate,
        energy=energy,
        progress=progress,
    )
    return with_kernels(found, progress) if kernels else found


def why(problem: ConvProblem | str, algorithm: str, device: str | DeviceFacts | None = None) -> Reason:
    """Why ``algorithm`` cannot compute ``problem`` on ``device``, in cuDNN's own words where it is one of cuDNN's.

    ``algorithm`` is an id, with knobs or without: "cudnn/engine-48[k2=2,k13=2]", "cudnn/fft", "triton/implicit-gemm".
    One without a backend is cuDNN's. Its engines are asked whether or not cuDNN proposes them, on a device that is
    elsewhere as well; what its log says of the checks that failed is read in a process of its own, which takes a few
    seconds. Nothing runs.

    >>> reason = why("ic4ih8oc4kh3sh2", "reference/winograd", "cpu")
    >>> reason.serves, reason.sentence
    (False, "stride (2, 2): Winograd's tiles need stride 1 in every dimension")
    """
    posed = ConvProblem.parse(problem) if isinstance(problem, str) else problem
    if not isinstance(posed, ConvProblem):
        raise BadInput(f"why takes a problem or its text, got {problem!r}")
    if not isinstance(algorithm, str) or not algorithm:
        raise BadInput(f"why takes the id of an algorithm such as 'cudnn/engine-20', got {algorithm!r}")
    return reason_of(posed, algorithm, device_facts(device))


def _check_budget(given: object) -> None:
    if given is None or (is_above_0(given) and given != inf):
        return
    told = f"{given / 1e6:g} s" if isinstance(given, int | float) and not isinstance(given, bool) else repr(given)
    raise BadInput(f"the budget must be a time above 0, got {told}")


def _check_operands(weight: object, bias: object) -> None:
    if weight is None:
        raise BadInput("find takes a problem, its text, or an input tensor and its weight; the weight is missing")
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and not isinstance(given, Tensor):
            raise BadInput(f"`{name}` must be a tensor, got {given!r}")


@uncompiled()
def last_choice() -> Choice | None:
    """What was chosen at the latest first meeting of a problem in this process, or None."""
    return session().last
