"""The input of one search: problem, policy, budget and means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from convwright import flags
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.finding import may_pass
from convwright.core.kinds.problem import Problem
from convwright.core.policy import DEFAULT_WORKSPACE_BYTES, Objective, Policy
from convwright.core.predictor import Predictor, expected_us
from convwright.errors import BadInput
from convwright.measuring.energy import counter_of
from convwright.measuring.hardware.machine import free_memory_bytes
from convwright.prediction.corrections import kernel_times
from convwright.rewrites import REWRITES
from convwright.settings import Mode, Trust
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import is_torch
from convwright.tuning.ranking import by_promise
from convwright.tuning.recall import Recall
from convwright.tuning.trials.search_input import NO_HOOKS, Progress

if TYPE_CHECKING:
    from convwright.tuning.kernels import SearchKernels


@dataclass(frozen=True, slots=True)
class Search:
    """The input of one search. If nobody limits the workspace, the policy's limit ``follows_memory``."""

    problem: Problem
    device: DeviceFacts
    policy: Policy
    mode: Mode
    store: Store
    budget: Budget
    trust: Trust = Trust.TRUST
    isolate: bool = False
    energy: bool = False
    tolerate_load: bool = False
    progress: Progress = NO_HOOKS.progress
    kernels: SearchKernels | None = None
    predictor: Predictor | None = None
    follows_memory: bool = False
    _listed: dict[tuple[Problem, Policy], list[Offer]] = field(default_factory=dict, repr=False, compare=False)

    def offers(self, problem: Problem) -> list[Offer]:
        """The offers for a problem, or for one inside a rewrite; each is asked for once per search."""
        asked = problem, self.policy
        if asked not in self._listed:
            self._listed[asked] = listing.direct(problem, self.device, self.policy)
        return self._listed[asked]

    def ranked(self, listed: Sequence[Candidate]) -> list[Candidate]:
        """Most promising first."""
        return by_promise(listed, self.device, self._kernel_times, self.budget.total_us or inf)

    def _kernel_times(self, kernels: Sequence[Candidate]) -> Sequence[float | None]:
        if self.predictor is None:
            return kernel_times(self.store, self.device, kernels)
        return expected_us(self.predictor.predict_all(kernels, self.device))

    @property
    def is_open(self) -> bool:
        """Whether a refusal so far may not hold another time."""
        refusals = (refusal for offers in self._listed.values() for refusal in listing.refusals(offers))
        return any(map(may_pass, refusals))

    @property
    def runs(self) -> bool:
        """Whether this search may run anything."""
        return self.mode.measures and self.device.present

    @property
    def wants_energy(self) -> bool:
        return self.energy or self.policy.objective is Objective.ENERGY

    def recall(self, *, rewrites: bool = True) -> Recall:
        own = (rewrite.name for rewrite in REWRITES if rewrite.kind == self.problem.kind)
        scope = ",".join(own) if rewrites else "direct"
        scope += " energy" * self.energy
        return Recall(
            self.problem, self.device, self.policy, self.store, scope,
            follows_memory=self.follows_memory, budget_us=self.budget.total_us,
        )  # fmt: skip


def check_objective(policy: Policy, device: DeviceFacts, mode: Mode, *, energy: bool) -> None:
    """Refuse energy where it cannot be measured: it needs a counter, and takes seconds."""
    if not energy and policy.objective is not Objective.ENERGY:
        return
    if mode is not Mode.FULL:
        raise BadInput(f"energy needs mode full, since it takes seconds per candidate, got mode {mode}")
    if counter_of(str(device.torch_name)).read_mj() is None:
        raise BadInput(
            f"energy cannot be measured here: {device.name} has no counter that this process may read; "
            "give another objective"
        )


def search_for(
    problem: Problem, device: DeviceFacts, policy: Policy, mode: Mode, store: Store, budget: Budget
) -> Search:
    """A search with the defaults that ``policy`` leaves open filled in."""
    follows_memory = policy.max_workspace_bytes is None
    known = resolved(policy, problem, device)
    return Search(problem, device, known, mode, store, budget, follows_memory=follows_memory)


def resolved(policy: Policy, problem: Problem, device: DeviceFacts) -> Policy:
    """``policy`` with PyTorch's current flags and the default workspace filled in."""
    workspace = policy.max_workspace_bytes
    if workspace is None:
        free = free_memory_bytes(device)
        workspace = min(DEFAULT_WORKSPACE_BYTES, free // 10) if free is not None else DEFAULT_WORKSPACE_BYTES
    return flags.completed(replace(policy, max_workspace_bytes=workspace), problem.dtype, device, kind=problem.kind)


def baseline_of(listed: Sequence[Candidate], policy: Policy) -> Candidate | None:
    """PyTorch's own call under its current flags."""
    own = [candidate for candidate in listed if is_torch(candidate)]
    return next((c for c in own if policy.arithmetic is None or c.arithmetic in policy.arithmetic), None)
