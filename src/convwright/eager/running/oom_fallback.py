"""PyTorch's own call in the place of a chosen candidate for which there is no memory, until there is again."""

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

# Memory is looked at again after twice as many calls each time, and in the end after so many. To ask for what cannot be
# had makes PyTorch give back all that it keeps ready, so that is done only where enough seems to be free.
_MOST_BETWEEN = 1024


class OomFallback:
    """Stands beside a candidate that is ``demanded`` by name, or free to be replaced. ``serving`` computes while memory
    is short. Nothing of a call's tensors is kept."""

    __slots__ = ("_calls", "_choice", "_demanded", "_needed_bytes", "_next_look", "_policy", "_told", "serving")

    def __init__(self, choice: Choice, policy: Policy, *, demanded: bool) -> None:
        self._choice, self._policy, self._demanded = choice, policy, demanded
        self._calls, self._next_look, self._needed_bytes, self._told = 0, 1, 0, False
        self.serving: Runner = TorchPlan(torch_candidate(choice.candidate.problem))

    def lasts(self) -> bool:
        """Whether this call, too, is not the candidate's."""
        self._calls += 1
        if self._calls < self._next_look or not self._may_fit():
            return True
        latest.choice = self._choice
        return False

    def begin(self, error: BaseException, needed_bytes: int | None) -> None:
        """Let PyTorch's own call serve from now on, where ``error`` says that there is no memory; any other is raised.

        Without ``needed_bytes`` the candidate could not be built, and nobody knows what for.
        """
        if not is_shortage(error) or self._choice.is_torch:
            raise error
        why = _why(self._choice.candidate, self._choice.device, needed_bytes, error)
        if self._demanded:
            raise OutOfMemory(why) from error
        if self._has_to_stay():
            raise OutOfMemory(f"{why}; nothing else may serve where equal calls have to give equal bits") from error
        if not self._own_is_allowed():
            raise OutOfMemory(f"{why}; nothing that needs less is allowed") from error
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
        """What serves in the place of a candidate that could not be built, and then the candidate."""
        self._calls = -1  # the call for which it could not be built is still to come
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
        """Whether a call has to be computed as the one before it, by the candidate or by what serves in its place."""
        return self._policy.deterministic or flags.deterministic()

    def _may_fit(self) -> bool:
        if self._has_to_stay() or capturing(self._choice.device):
            return False  # what a graph is captured with stays in it
        self._next_look = self._calls + min(self._calls + 1, _MOST_BETWEEN)
        free = free_memory_bytes(self._choice.device)
        return free is None or free >= self._needed_bytes


def bound(choice: Choice, operands: Operands, policy: Policy, *, demanded: bool) -> Runner:
    """A choice bound to calls with operands like these, and what serves in its place where it has no memory."""
    fallback = OomFallback(choice, policy, demanded=demanded)
    try:
        return fallback.candidates(operands)
    except SHORTAGES as error:
        fallback.begin(error, choice.candidate.workspace_bytes or None)
    return fallback.until_built()


def short_of(candidate: Candidate, device: DeviceFacts, needed_bytes: int, error: BaseException) -> OutOfMemory:
    """The one error about a candidate that was asked for and has no memory."""
    return OutOfMemory(_why(candidate, device, needed_bytes, error))


def _why(candidate: Candidate, device: DeviceFacts, needed_bytes: int | None, error: BaseException) -> str:
    """In words, with the bytes that are wanted and, on a GPU, those that are free."""
    needed = f"{needed_bytes:,} bytes of workspace" if needed_bytes else "its weight packed"
    if needed_bytes is None:
        needed = "memory to be built"
    if device.kind != "cuda":
        return f"{candidate.id} needs {needed}, and ran {shortage(error)}"
    return (
        f"{candidate.id} ran out of memory: it needs {needed}, and {free_memory_bytes(device):,} bytes are free on "
        f"{device.torch_name}"
    )
