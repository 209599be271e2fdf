"""Other work on the machine, as far as this process can notice it."""

from __future__ import annotations

import os
from time import perf_counter

import torch

from convwright.measuring.disturbances.waiting import Waiting

# Even on an idle machine the kernel's threads interrupt a process a few times a second.
_SWITCHES_PER_S = 10.0
_FEWEST_SWITCHES = 5
# A smaller share of time spent waiting for a core is no disturbance.
_LEAST_WAITING = 0.05


class Background:
    """Counts how often the system took a core away from this process since its creation."""

    def __init__(self) -> None:
        self._switches, self._begun_s, self._waiting = _involuntary_switches(), perf_counter(), Waiting()

    def causes(self) -> tuple[str, ...]:
        """Possible disturbances since then, as sentences."""
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
    """What disturbs a process that lost its cores ``switches`` times in ``seconds`` and, if known, waited for them for
    a share of the time.

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
    except ImportError:  # Windows does not count this
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def processors() -> int:
    """The number of processors that this process may use; in a container fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load_average() -> float | None:
    """The mean number of processes that wanted a core during the last minute."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
