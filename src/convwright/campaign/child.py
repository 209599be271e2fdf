"""The child process that lists, compiles and measures for a campaign: ``python -P -m convwright.campaign.child``.

It uses the protocol of ``convwright.tuning.workers``. The first task is ``begin``, which names the device.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any

from convwright.tuning.worker import TASKS as TUNING
from convwright.tuning.worker import Task, serve

if TYPE_CHECKING:
    from pathlib import Path

    from convwright.campaign.attempt import Attempt, Station
    from convwright.campaign.campaign import Campaign
    from convwright.campaign.drawn import Drawn
    from convwright.campaign.listed import Listed
    from convwright.core.candidate import Candidate
    from convwright.core.device import DeviceFacts
    from convwright.core.observation import Observation
    from convwright.core.policy import Policy
    from convwright.store.store import Store
    from convwright.store_url import StoreUrl

COMMAND = [sys.executable, "-P", "-m", "convwright.campaign.child"]


@dataclass(frozen=True, slots=True)
class Start:
    """The setting of a process: its device, PyTorch's threads, and the processors for it and its compilers (None for
    all). One that ``measures`` loads everything that candidates need to run."""

    device: str
    place: Path | StoreUrl | None
    threads: int | None = None
    cores: tuple[int, ...] | None = None
    measures: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The candidates of a problem to measure, and the policy."""

    policy: Policy
    listed: tuple[Listed, ...]


@dataclass(slots=True)
class _Here:
    facts: DeviceFacts
    store: Store
    station: Station | None = None


_state: list[_Here] = []


def _here() -> _Here:
    assert _state, "the first task is to begin"
    return _state[-1]


def begin(say: Any, start: Start) -> DeviceFacts:
    """Load what later tasks need, and return the device's facts."""
    if start.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, start.cores)  # before the compile queue counts processors
    import torch

    from convwright.measuring.hardware.machine import device_facts
    from convwright.store.store import Store
    from convwright.tuning import listing
    from convwright.tuning.trials.warm_up import warm_up

    if start.threads is not None:
        torch.set_num_threads(start.threads)
    facts = device_facts(start.device)
    store = Store.open(start.place)
    listing.load(facts)
    if start.measures and facts.present:
        with Store.open(None) as memory:
            warm_up(facts, memory)
    _state.append(_Here(facts, store))
    return facts


def forget() -> None:
    """Return to the state before the first task."""
    while _state:
        _state.pop().store.close()


def plan(say: Any, campaign: Campaign, drawn: Drawn) -> Plan:
    """The candidates of a problem. Starts to compile those that need it."""
    from convwright.campaign.listed import worth_measuring
    from convwright.core.policy import Policy
    from convwright.tuning.search import resolved

    here = _here()
    policy = resolved(Policy(), drawn.problem, here.facts)
    random = Random(f"{campaign.seed} {drawn.number} candidates")
    most = campaign.most_of(drawn.number)
    listed = worth_measuring(drawn.problem, here.facts, policy, most=most, random=random)
    kernels = _kernels(listed)
    if kernels:
        from convwright.tuning.compile_queue import Priority, compile_queue

        compile_queue().want(kernels, here.facts, Priority.NEXT, loads=False)
    return Plan(policy, tuple(listed))


def compiled(say: Any, planned: Plan, patience_s: float) -> Mapping[Candidate, str | None] | None:
    """The error of each kernel of a plan, "" if it is ready; None while some are still compiling. After ``patience_s``
    those are given up and have None as their error."""
    from convwright.tuning.compile_queue import compile_queue

    kernels, here, queue = _kernels(planned.listed), _here(), compile_queue()
    until_s = perf_counter() + patience_s
    if not queue.wait(lambda: all(queue.came(each, here.facts) is not None for each in kernels), until_s):
        if not patience_s:
            return None
        queue.drop(kernels, here.facts)
    return {kernel: said for kernel in kernels if (said := queue.came(kernel, here.facts)) != ""}


def _kernels(listed: Sequence[Listed]) -> list[Candidate]:
    from convwright.tuning.compile_queue import is_compiled_apart

    leaves = dict.fromkeys(each.candidate.leaf for each in listed)
    return [leaf for leaf in leaves if leaf.compiles and is_compiled_apart(leaf)]


def attempt(say: Any, asked: Attempt) -> Observation:
    """Measure one candidate. Operands are made once for all candidates of a problem."""
    import torch

    from convwright.campaign.attempt import Station
    from convwright.settings import Mode
    from convwright.tuning.trials.trial import Bench

    here = _here()
    if here.station is None or here.station.drawn != asked.drawn:
        here.station = None  # frees its operands for the next
        torch.cuda.empty_cache()  # libraries allocate from the driver, not from PyTorch
        bench = Bench(asked.drawn.problem, here.facts, Mode.QUICK, seed=asked.drawn.number)
        here.station = Station(asked.drawn, bench)
    return here.station.observe(asked, here.store)


TASKS: Mapping[str, Task] = {**TUNING, "begin": begin, "plan": plan, "compiled": compiled, "attempt": attempt}


if __name__ == "__main__":
    from convwright.campaign import child  # so that answers are pickled with that module's classes

    serve(child.TASKS)
