"""Running a call until every choice for it is made."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from convwright.tuning.compile_queue import compile_queue

WARM_UP = 60


def settle(call: Callable[[], object], *, hurried: bool = False, calls: int = WARM_UP) -> float:
    """So many calls, three times, between which compilers are waited for; all processors compile where ``hurried``. How
    many seconds that took."""
    queue, begun_s = compile_queue(), perf_counter()
    usual = queue.in_background
    for again in range(3):
        for _ in range(calls):
            call()
        if again < 2:
            queue.in_background = queue.most if hurried else usual
            queue.wait_for_all()
            queue.in_background = usual
    return perf_counter() - begun_s
