"""Other work on the machine, as far as it shows in this process."""

from __future__ import annotations

import os
from time import perf_counter

import torch

from convwright.measuring.disturbances.waiting import Waiting

# On a machine with nothing else to do the kernel's own threads interrupt a process a few times a second.
_SWITCHES_PER_S = 10.0
_FEWEST_SWITCHES = 5
# Where the system counts how long threads waited for a core, less than this share of the time is no disturbance.
_LEAST_WAITING = 0.05


class Background:
    """Counts from its making how often the system took a core away from this process."""

    def __init__(self) -> None:
        self._switches, self._begun_s, self._waiting = _involuntary_switches(), perf_counter(), Waiting()

    def causes(self) -> tuple[str, ...]:
        """What may have disturbed since then, in words."""
        return causes(
            waiting=self._waiting.whole_share(),
            switches=_involuntary_switches() - self._switches,
            seconds=perf_counter() - self._begun_s,
            cores=processors(),
            threads=torch.get_num_threads(),
            load=_load_average(),
        )


def causes(
    *, switches: int, seconds: float, cores: int, threads: int, load: float | None, waiting: float | None = None
) -> tuple[str, ...]:
    """What disturbs a process that lost its cores so many times in so many seconds, and waited for them for a share of
    the time, where that is known.

    >>> causes(switches=212, seconds=1.0, cores=2, threads=2, load=3.1)
    ('other work took the cores away 212 times (load average 3.1 on 2 cores)',)
    >>> causes(switches=212, seconds=1.0, cores=2, threads=2, load=3.1, waiting=0.71)
    ('other work had the cores for 71% of the time (load average 3.1 on 2 cores)',)
    """
    fewest = max(_FEWEST_SWITCHES, _SWITCHES_PER_S * seconds)
    if switches < fewest if waiting is None else waiting < _LEAST_WAITING:
        return ()
    if threads > cores:
        return (f"PyTorch's {threads} threads share {cores} cores, give `threads={cores}` or fewer",)
    average = "" if load is None else f"load average {load:.1f} on "
    did = f"took the cores away {switches} times" if waiting is None else f"had the cores for {waiting:.0%} of the time"
    return (f"other work {did} ({average}{cores} cores)",)


def _involuntary_switches() -> int:
    try:
        import resource
    except ImportError:  # Windows counts no such thing.
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def processors() -> int:
    """How many processors this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load_average() -> float | None:
    """The processes that wanted a core, on average over the last minute."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
