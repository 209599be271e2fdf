"""Calls too long for a quick search earn a longer one.

Where PyTorch's own call takes so long that a quick search has no room for as many as a comparison needs, it serves
until calls like it have taken twice what a longer search will take. So what searches take is never more than half of
what the calls take that they are for, a program that makes few of them never waits for one, and where many layers are
due they come one after the other, with twice as long between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts
from convwright.ops.calls.call import Call
from convwright.ops.running.runner import Runner
from convwright.tuning.session import session

# A longer search has time for so many calls: three times what the shortest comparison takes, and no longer than this.
_CALLS, _MOST_US = 60, 1e7
_TIMES_EARNED = 2


class Earning:
    """``run``, and after so many calls of it ``then``, once no other longer search is near."""

    __slots__ = ("_then", "left", "run")

    def __init__(self, run: Runner, calls: int, then: Callable[[], None]) -> None:
        self.run, self.left = run, calls
        self._then = [then]

    def __call__(self, *operands: Tensor | None) -> Tensor:
        self.left -= 1
        if self.left <= 0 and self._then and not session().rests:
            told, self._then = self._then, []
            for then in told:
                then()
        return self.run(*operands)

    def when_earned(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the next call like these is to be decided anew."""
        self._then.append(then)


def earning(run: Runner, problems: Sequence[ConvProblem], call: Call) -> Earning | None:
    """``run``, counted, where a search for one of these problems was too short; None where none was."""
    device, policy, here = device_facts(call.x.device), call.request.policy or Policy(), session()
    took_us = {problem: here.too_long_us(problem, device, policy) for problem in problems}
    budgets_us = {problem: min(_CALLS * us, _MOST_US) for problem, us in took_us.items() if us is not None}
    if not budgets_us:
        return None
    each_us = sum(us for us in took_us.values() if us is not None)

    def search_longer() -> None:
        for problem, budget_us in budgets_us.items():
            here.search_longer(problem, device, policy, budget_us)

    return Earning(run, max(1, round(_TIMES_EARNED * sum(budgets_us.values()) / each_us)), search_longer)
