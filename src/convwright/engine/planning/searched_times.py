"""Times from searches, or from the store's findings of earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from math import inf

import torch

from convwright import flags, strict_json
from convwright.backends import registry
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.engine.export.foreign import prepared
from convwright.engine.planning.alternates import alternates
from convwright.engine.planning.planes import Planes
from convwright.engine.planning.times import TimedCandidate, at_least, planning_policy
from convwright.errors import ConvwrightError, Refused
from convwright.graph.operations import Foreign
from convwright.measuring.timer import measure
from convwright.prediction.physics import least_us, own_call_us
from convwright.settings import Mode
from convwright.shortage import SHORTAGES
from convwright.store.store import Store
from convwright.tensors import empty
from convwright.tuning.find import find
from convwright.tuning.trials.doubt import doubt
from convwright.tuning.trials.search_input import Progress
from convwright.tuning.unmeasured import unmeasured
from convwright.tuning.upcoming import Upcoming

# How long an operator of PyTorch is timed.
_FOREIGN_US = 50_000.0


class SearchedTimes:
    """A ``TimeSource`` that searches for each problem as ``mode`` says. ``frugal`` also returns candidates with little
    workspace, and problems that ``planes`` excludes have none. ``rests_on`` is what the store knew of each problem when
    its candidates were taken, by key."""

    def __init__(
        self,
        device: DeviceFacts,
        policy: Policy,
        mode: Mode,
        store: Store,
        *,
        frugal: bool = False,
        planes: Planes = Planes.FREE,
    ) -> None:
        self.device, self._planes = device, planes
        self._frugal, self._policy, self._mode, self._store = frugal, planning_policy(policy), mode, store
        self.rests_on: dict[str, str] = {}

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        """Search for each problem, while kernels for the next ones compile."""
        with ExitStack() as stack:
            coming = Upcoming(problems, self.device, self._policy, mode=self._mode, store=self._store)
            upcoming = stack.enter_context(coming.compiling())
            for done, problem in enumerate(upcoming.in_turn()):
                progress("searching", done, len(problems))
                found = self._found(problem)
                self.rests_on[problem.key] = self._store.state(problem.key, self.device.key)
                yield problem, found

    def _found(self, problem: Problem) -> tuple[TimedCandidate, ...]:
        if self._planes.excludes(problem):
            return ()
        try:
            found = find(problem, self.device, self._policy, mode=self._mode, store=self._store)
        except ConvwrightError:  # nothing here computes the problem
            return ()
        if found.choice is not None:
            return alternates(found, self._store, frugal=self._frugal)
        # Other work disturbed the search. Use PyTorch's own call, with the device's lower bound as its time.
        try:
            candidate = unmeasured(found, None if found.baseline is None else found.baseline.candidate)
        except Refused:
            return ()
        return ((candidate, at_least(least_us(candidate, self.device) or own_call_us(candidate, self.device))),)

    def of_operator(self, operation: Foreign) -> Interval | None:
        """The time of PyTorch's operator. The least time to move its data if nothing may run, or if the operator takes
        only some matrices. None if it raises any other error."""
        moved = sum(spec.nbytes for spec in operation.operands.values())
        least = at_least(moved / (self.device.bandwidth_bytes_per_us or inf))
        if not self._mode.measures or not self.device.present:
            return least
        device = torch.device(str(self.device.torch_name))
        if (known := self._store.fact(self.device.key, fact := self._fact(operation))) is not None:
            with suppress(AttributeError, TypeError, ValueError):  # a damaged time is replaced
                time_us = Interval.from_json(strict_json.loads(known))
                if 0 < time_us.low <= time_us.value <= time_us.high:
                    return time_us
        try:
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                given, compute = [empty(spec, device).uniform_() for spec in operation.inputs], prepared(operation)
                timing = measure(lambda: compute(given)[0], device=device, budget_us=_FOREIGN_US)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return least
        except (*SHORTAGES, RuntimeError, NotImplementedError, ValueError):
            return None
        if doubt(timing, 0.0) is None:
            self._store.record_fact(self.device.key, fact, strict_json.dumps(timing.call_us.to_json()))
        return timing.call_us

    def _fact(self, operation: Foreign) -> str:
        """The name under which the store keeps the operator's time: it depends on shapes, layouts, versions and
        PyTorch's flags."""
        libraries = registry.backend("torch").fingerprint(self.device)
        subject = operation, libraries, flags.tf32_allowed(), flags.matmul_tf32_allowed()
        return f"time of {operation.target} {sha256(repr(subject).encode()).hexdigest()[:32]}"
