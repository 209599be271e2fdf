"""Measure the host overhead per call by kind of plan: once per machine, before any search or compiler runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from statistics import median
from timeit import Timer

import torch
from torch import Tensor

from convwright import strict_json, torch_api
from convwright.backends.registry import backend
from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.host_costs import HostCosts
from convwright.core.plan import Launches
from convwright.core.policy import Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.eager.asking.describe import problem_of
from convwright.eager.calls.call import CONV2D, Request
from convwright.eager.calls.slots import Slot
from convwright.eager.gradients.autograd import Training
from convwright.errors import ConvwrightError
from convwright.forking import in_child
from convwright.tuning import listing
from convwright.tuning.choose import Eager
from convwright.tuning.session import session

# On a CPU, another candidate replaces PyTorch's call only if it is surely faster by this share.
CPU_TIE = 0.10
_ROUNDS, _CALLS = 15, 20


def eager_rule(device: DeviceFacts, policy: Policy) -> Eager:
    """The rule that an eager call on ``device`` adds to device time."""
    if device.kind == "cpu":
        return Eager(CPU_TIE)
    costs = host_costs(device)
    packs = policy.weights is Weights.CHANGING
    return Eager(extra_us=lambda candidate: costs.extra_us(candidate, launches_of(candidate, packs=packs)))


def launches_of(candidate: Candidate, *, packs: bool) -> int:
    """The number of our own kernels that one call launches; 0 if a library launches them."""
    member = backend(candidate.leaf.backend, candidate.leaf.problem.kind)
    return member.launches(candidate.leaf, packs=packs) if isinstance(member, Launches) else 0


def host_costs(device: DeviceFacts) -> HostCosts:
    """The host costs: read from the store, or measured in 0.1 s and stored for later processes."""
    with _lock:  # concurrent measurements would disturb each other
        return _known(device)


_lock = threading.Lock()


def _begin_in_child() -> None:
    global _lock
    _lock = threading.Lock()


in_child(_begin_in_child)


def fact_name() -> str:
    """The name under which the store keeps host costs."""
    return f"host costs, version 2, torch {torch.__version__}"


@cache
def _known(device: DeviceFacts) -> HostCosts:
    store = session().store
    kept = store.fact(device.key, fact_name())
    if kept is not None:
        with suppress(TypeError, ValueError, AttributeError):  # written by another version
            return HostCosts.from_json(strict_json.loads(kept))
    costs = measured(device)
    store.record_fact(device.key, fact_name(), strict_json.dumps(costs.to_json()))
    return costs


def forget() -> None:
    """Drop the host costs; the next call reads or measures them again."""
    _known.cache_clear()


def measured(device: DeviceFacts) -> HostCosts:
    """Time tiny convolutions through our dispatch and PyTorch's, alternating: only host time matters for them."""
    with _undisturbed(torch.device(str(device.torch_name)).type):
        return _measured(device)


def _measured(device: DeviceFacts) -> HostCosts:
    # fp32, because cuDNN converts fp16 in NCHW with kernels of its own, which would count as PyTorch's overhead.
    x, w, y = (
        torch.zeros(shape, device=device.torch_name, dtype=torch.float32)
        for shape in ((1, 8, 8, 8), (8, 8, 3, 3), (1, 8, 6, 6))
    )
    problem = problem_of(x, w)
    runs: dict[str, Callable[[], object]] = {
        "own": lambda: CONV2D.own(x, w),
        "operator": lambda: torch.empty_like(y).copy_(y),
    }
    if device.kind == "cuda":
        runs |= {f"{n} launches": _dispatched(_launching(n, y, device), x, w) for n in (1, 2)}
        runs |= {name: _dispatched(plan, x, w) for name, plan in _cudnns(problem, device).items()}
    with torch.no_grad():
        us = _times_us(runs)
    with torch.enable_grad():
        us |= _times_us(_training_steps(problem, x, w))
    one = us.get("1 launches", us["own"])
    return HostCosts(
        own_us=us["own"],
        engine_us=us.get("engine", us["own"]),
        classic_us=us.get("classic", us["own"]),
        launch_us=one,
        next_launch_us=max(us.get("2 launches", one) - one, 0.0),
        operator_us=us["operator"],
        node_us=max(us["node"] - us["own step"], 0.0),
    )


def _dispatched(run: Callable[..., Tensor], x: Tensor, w: Tensor) -> Callable[[], Tensor]:
    """A call that makes the same checks as a layer's call, and then runs ``run``."""
    slot = Slot((x, w), Request(), run)

    def call() -> Tensor:
        looks = slot.matches(x, w), slot.flags == slot.state(), torch_api.function_modes()
        return run(x, w, None) if looks else CONV2D.own(x, w)

    return call


def _launching(count: int, y: Tensor, device: DeviceFacts) -> Callable[..., Tensor]:
    """A plan that launches ``count`` empty kernels."""
    from convwright.backends.triton.launching.empty_kernel import empty_kernel

    launch = empty_kernel(device)

    def run(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        out = torch.empty_like(y)
        addresses, stream = (x.data_ptr(), w.data_ptr(), out.data_ptr(), 0), launch.stream()
        for _ in range(count):
            launch.at(addresses, stream)
        return out

    return run


def _cudnns(problem: ConvProblem, device: DeviceFacts) -> dict[str, Callable[..., Tensor]]:
    """A plan of a cuDNN engine and one of a classic algorithm, if cuDNN offers them here."""
    made: dict[str, Callable[..., Tensor]] = {}
    for offer in backend("cudnn").candidates(problem, device, Policy()):
        if not isinstance(offer, Candidate) or offer.compiles or offer.workspace_bytes:
            continue
        kind = "engine" if offer.algorithm.startswith("engine-") else "classic"
        if kind not in made:
            with suppress(ConvwrightError):
                made[kind] = listing.build(offer, device)
    return made


def _training_steps(problem: ConvProblem, x: Tensor, w: Tensor) -> Mapping[str, Callable[[], object]]:
    """A training step through our autograd node and one through PyTorch's, both with PyTorch's kernels."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    torchs = TorchPlan(torch_candidate(problem))
    node = Training(problem, problem.y, Request(), torchs)
    with torch.no_grad():
        dy = torch.zeros_like(CONV2D.own(x, w))
    return {
        "node": lambda: torch.autograd.grad(node(x, w), (x, w), dy),
        "own step": lambda: torch.autograd.grad(CONV2D.own(x, w), (x, w), dy),
    }


def _times_us(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median host time of each call. Calls alternate, so a machine that slows down affects all of them."""
    timers = {name: Timer(run) for name, run in runs.items()}
    for timer in timers.values():
        timer.timeit(_CALLS)
    rounds = []
    for _ in range(_ROUNDS):
        rounds.append({name: timer.timeit(_CALLS) / _CALLS * 1e6 for name, timer in timers.items()})
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # otherwise the launch queue fills, and the host waits for the device
    return {name: median(each[name] for each in rounds) for name in runs}


@contextmanager
def _undisturbed(kind: str) -> Iterator[None]:
    """No casts, gradients on, and the caller's saved-tensor hooks off; checkpoints count tensors with such hooks."""
    with ExitStack() as around:
        around.enter_context(torch.inference_mode(False))
        around.enter_context(torch.autocast(kind, enabled=False))
        if torch_api.saved_tensors_hooks(True) is not None:
            around.enter_context(torch.autograd.graph.saved_tensors_hooks(_itself, _itself))
        yield


def _itself(tensor: Tensor) -> Tensor:
    return tensor
