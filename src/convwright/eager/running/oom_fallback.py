"""Replace a candidate that runs out of memory by PyTorch's own call, until memory is free again."""

from __future__ import annotations

import warnings
from dataclasses import replace

from torch import Tensor

from convwright import flags
from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy, Weights
from convwright.eager.latest import latest
from convwright.eager.running.runner import Operands, Runner, runner
from convwright.errors import MemoryWarning
from convwright.measuring.hardware.machine import free_memory_bytes
from convwright.shortage import SHORTAGES, OutOfMemory, is_shortage, shortage
from convwright.tuning import listing
from convwright.tuning.search import resolved
from convwright.tuning.session import Choice, capturing

# Calls between two checks of free memory double each time, up to this many. A failed allocation makes PyTorch release
# all cached memory, so the candidate is tried only if enough memory seems free.
_MOST_BETWEEN = 1024


class OomFallback:
    """The fallback of a candidate that is ``demanded`` by name, or may be replaced. ``serving`` computes while memory
    is short. It keeps none of a call's tensors."""

    __slots__ = ("_calls", "_choice", "_demanded", "_needed_bytes", "_next_look", "_policy", "_told", "serving")

    def __init__(self, choice: Choice, policy: Policy, *, demanded: bool) -> None:
        self._choice, self._policy, self._demanded = choice, policy, demanded
        self._calls, self._next_look, self._needed_bytes, self._told = 0, 1, 0, False
        self.serving: Runner = TorchPlan(torch_candidate(choice.candidate.problem))

    def lasts(self) -> bool:
        """Whether the fallback also serves this call."""
        self._calls += 1
        if self._calls < self._next_look or not self._may_fit():
            return True
        latest.choice = self._choice
        return False

    def begin(self, error: BaseException, needed_bytes: int | None) -> None:
        """Let PyTorch's own call serve from now on if ``error`` means out of memory; otherwise raise it.

        ``needed_bytes`` is None if the candidate could not be built, so that its need is unknown.
        """
        if not is_shortage(error) or self._choice.is_torch:
            raise error
        why = _why(self._choice.candidate, self._choice.device, needed_bytes, error)
        if self._demanded:
            raise OutOfMemory(why) from error
        if self._has_to_stay():
            raise OutOfMemory(f"{why}; no other candidate may run, because equal calls must give equal bits") from error
        if not self._own_is_allowed():
            raise OutOfMemory(f"{why}; the policy allows no candidate that needs less") from error
        self._needed_bytes = needed_bytes or 0
        self._next_look = self._calls + min(self._calls + 1, _MOST_BETWEEN)
        own = torch_candidate(self._choice.candidate.problem)
        latest.choice = replace(self._choice, candidate=own, device_us=self._choice.torch_device_us, note=why)
        if not (self._told or capturing(self._choice.device)):
            self._told = True
            warnings.warn(f"{own.id} serves: {why}", MemoryWarning, stacklevel=3)

    def candidates(self, operands: Operands) -> Runner:
        """The candidate itself, built and bound to calls with operands like these."""
        return runner(
            self._choice.plan(), operands, self.serving,
            weights_constant=self._policy.weights is Weights.CONSTANT,
            stays=self._demanded or self._has_to_stay() or self._policy.arithmetic is not None, fallback=self,
        )  # fmt: skip

    def until_built(self) -> Runner:
        """The fallback for a candidate that could not be built, and later the candidate."""
        self._calls = -1  # the call that failed is repeated
        candidates: Runner | None = None

        def run(
            first: Tensor,
            second: Tensor,
            bias: Tensor | None = None,
            residual: Tensor | None = None,
            out: Tensor | None = None,
        ) -> Tensor:
            nonlocal candidates
            if candidates is None and not self.lasts():
                try:
                    candidates = self.candidates((first, second, bias, residual))
                except SHORTAGES as error:
                    self.begin(error, self._choice.candidate.workspace_bytes or None)
            return (candidates or self.serving)(first, second, bias, residual, out)

        return run

    def _own_is_allowed(self) -> bool:
        candidate, device = self._choice.candidate, self._choice.device
        if candidate.problem.dtype.narrow:
            return False
        permitted = resolved(self._policy, candidate.problem, device)
        return listing.objection(torch_candidate(candidate.problem, cpu=device.kind == "cpu"), permitted) is None

    def _has_to_stay(self) -> bool:
        """Whether this call must run what the previous one ran, the candidate or its fallback."""
        return self._policy.deterministic or flags.deterministic()

    def _may_fit(self) -> bool:
        if self._has_to_stay() or capturing(self._choice.device):
            return False  # a captured graph keeps what it was captured with
        self._next_look = self._calls + min(self._calls + 1, _MOST_BETWEEN)
        free = free_memory_bytes(self._choice.device)
        return free is None or free >= self._needed_bytes


def bound(choice: Choice, operands: Operands, policy: Policy, *, demanded: bool) -> Runner:
    """A choice bound to calls with operands like these, with its fallback for lack of memory."""
    fallback = OomFallback(choice, policy, demanded=demanded)
    try:
        return fallback.candidates(operands)
    except SHORTAGES as error:
        fallback.begin(error, choice.candidate.workspace_bytes or None)
    return fallback.until_built()


def short_of(candidate: Candidate, device: DeviceFacts, needed_bytes: int, error: BaseException) -> OutOfMemory:
    """The error for a candidate that was asked for by name and has no memory."""
    return OutOfMemory(_why(candidate, device, needed_bytes, error))


def _why(candidate: Candidate, device: DeviceFacts, needed_bytes: int | None, error: BaseException) -> str:
    """The reason as a sentence, with the bytes needed and, on a GPU, the bytes free."""
    needed = f"{needed_bytes:,} bytes of workspace" if needed_bytes else "its weight packed"
    if needed_bytes is None:
        needed = "memory to be built"
    if device.kind != "cuda":
        return f"{candidate.id} needs {needed}, and ran {shortage(error)}"
    return (
        f"{candidate.id} ran out of memory: it needs {needed}, and {free_memory_bytes(device):,} bytes are free on "
        f"{device.torch_name}"
    )
