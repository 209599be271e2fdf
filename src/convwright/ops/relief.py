"""What serves in the place of a chosen candidate for which there is no memory, until there is again."""

from __future__ import annotations

import warnings
from dataclasses import replace

from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy, Weights
from convwright.errors import MemoryWarning
from convwright.measuring.machine import free_memory_bytes
from convwright.ops.runner import Operands, Runner, runner
from convwright.shortage import SHORTAGES, OutOfMemory, is_shortage, shortage
from convwright.tuning.session import Choice, capturing, session

# Memory is looked at again after twice as many calls each time, and in the end after so many. To ask for what cannot be
# had makes PyTorch give back all that it keeps ready, so that is done only where enough seems to be free.
_MOST_BETWEEN = 1024


class Relief:
    """Stands beside a candidate that is ``demanded`` by name, or free to be replaced; ``serving`` is what computes
    while memory is short. Nothing of a call's tensors is kept."""

    __slots__ = ("_calls", "_choice", "_demanded", "_next_look", "_policy", "_stand_in", "_told", "serving")

    def __init__(self, choice: Choice, policy: Policy, *, demanded: bool) -> None:
        self._choice, self._policy, self._demanded = choice, policy, demanded
        self._calls, self._next_look = 0, 1
        self._told = False
        self._stand_in: Choice | None = None
        self.serving: Runner = TorchPlan(torch_candidate(choice.candidate.problem))

    def lasts(self) -> bool:
        """Whether this call, too, is not the candidate's."""
        self._calls += 1
        if self._calls < self._next_look or not self._may_fit():
            return True
        if session().last is self._stand_in:
            session().last = self._choice
        return False

    def begin(self, error: BaseException, operands: Operands, needed_bytes: int) -> Runner:
        """Find what serves from now on, where ``error`` says that there is no memory; any other is raised again."""
        if not is_shortage(error) or self._choice.is_torch:
            raise error
        why = _why(self._choice.candidate, self._choice.device, needed_bytes, error)
        if self._demanded:
            raise OutOfMemory(why) from error
        smaller = session().smaller(self._choice, self._policy, needed_bytes - 1)
        if smaller is None:
            raise OutOfMemory(f"{why}; nothing that needs less is allowed") from error
        self._next_look = self._calls + min(self._calls + 1, _MOST_BETWEEN)
        self._stand_in = session().last = replace(smaller, note=why)
        self.serving = bound(smaller, operands, self._policy, demanded=False)
        if not self._told:
            self._told = True
            warnings.warn(f"{smaller.candidate.id} serves: {why}", MemoryWarning, stacklevel=2)
        return self.serving

    def _may_fit(self) -> bool:
        if capturing(self._choice.device):
            return False  # what a graph is captured with stays in it
        self._next_look = self._calls + min(self._calls + 1, _MOST_BETWEEN)
        free = free_memory_bytes(self._choice.device)
        return free is None or free >= self._choice.plan().workspace_bytes


def bound(choice: Choice, operands: Operands, policy: Policy, *, demanded: bool) -> Runner:
    """A choice bound to calls with operands like these, and what serves in its place where it has no memory."""
    own = TorchPlan(torch_candidate(choice.candidate.problem))
    relief = Relief(choice, policy, demanded=demanded)
    try:
        constant = policy.weights is Weights.CONSTANT
        return runner(choice.plan(), operands, own, weights_constant=constant, relief=relief)
    except SHORTAGES as error:
        return relief.begin(error, operands, choice.candidate.workspace_bytes or 0)


def short_of(candidate: Candidate, device: DeviceFacts, needed_bytes: int, error: BaseException) -> OutOfMemory:
    """The one error about a candidate that was asked for and has no memory."""
    return OutOfMemory(_why(candidate, device, needed_bytes, error))


def _why(candidate: Candidate, device: DeviceFacts, needed_bytes: int, error: BaseException) -> str:
    """In words, with the bytes that are wanted and, on a GPU, those that are free."""
    needed = f"{needed_bytes:,} bytes of workspace" if needed_bytes else "its weight packed"
    if device.kind != "cuda":
        return f"{candidate.id} needs {needed}, and ran {shortage(error)}"
    return (
        f"{candidate.id} ran out of memory: it needs {needed}, and {free_memory_bytes(device):,} bytes are free on "
        f"{device.torch_name}"
    )
