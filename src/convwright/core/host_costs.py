"""Host overhead per call: the cost of a plan beyond PyTorch's own call, and whether a faster device pays for it.

Host times are measured once per machine, by kind of plan, when nothing else runs (``eager/host_costs``). Times seen
during a search are not used: compilers running beside it inflated PyTorch's own call from 15 µs to 108 µs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Self

from convwright.core.candidate import Candidate
from convwright.core.record import Record

# Host time that a choice may add, as a share of the device time saved. A network takes the larger of its total host
# time and its total device time, so a host-bound network pays for every microsecond.
HOST_SHARE = 0.25
# PyTorch operators per call. A rewrite copies an operand and its result. The reference takes views and multiplies; with
# a workspace it copies more, and some of its algorithms multiply for each tap.
_OPERATORS_PER_REWRITE, _OPERATORS_OF_REFERENCE, _OPERATORS_WITH_WORKSPACE = 2, 3, 8
_BY_TAPS = ("direct", "kn2row")


@dataclass(frozen=True, slots=True)
class HostCosts(Record):
    """Microseconds of host time per call, including our dispatch.

    ``own_us`` is PyTorch's own call, ``engine_us`` a plan of a cuDNN engine, ``classic_us`` one of a classic algorithm,
    ``launch_us`` a plan that launches one kernel, ``next_launch_us`` each further launch, ``operator_us`` one PyTorch
    operator, as in a rewrite, and ``node_us`` the cost of our autograd node beyond PyTorch's own, forward and backward.
    On a CPU only ``own_us`` and ``node_us`` count.
    """

    own_us: float
    engine_us: float
    classic_us: float
    launch_us: float
    next_launch_us: float
    operator_us: float
    node_us: float

    def of(self, candidate: Candidate, launches: int) -> float:
        """Host time of one call of ``candidate``, whose leaf launches this many kernels of ours."""
        leaf = candidate.leaf
        us = self.launch_us + (launches - 1) * self.next_launch_us if launches else self._of_library(leaf)
        return us + (_operators(leaf) + _OPERATORS_PER_REWRITE * candidate.depth) * self.operator_us

    def _of_library(self, leaf: Candidate) -> float:
        if leaf.backend != "cudnn":
            return self.own_us
        return self.engine_us if leaf.algorithm.startswith("engine-") else self.classic_us

    def extra_us(self, candidate: Candidate, launches: int) -> float:
        """Host time of one call beyond PyTorch's own."""
        return self.of(candidate, launches) - self.own_us

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        return cls(**{name: float(value) for name, value in record.items()})


def _operators(leaf: Candidate) -> int:
    """PyTorch operators that the reference calls beyond the first."""
    if leaf.backend != "reference":
        return 0
    if leaf.algorithm in _BY_TAPS:
        return _OPERATORS_OF_REFERENCE + int(prod(leaf.problem.taps))
    return _OPERATORS_WITH_WORKSPACE if leaf.workspace_bytes else _OPERATORS_OF_REFERENCE


def objection_of_host(saved_us: float, extra_us: float) -> str | None:
    """Why an eager call should stay with PyTorch's own call, which takes ``saved_us`` more device time and ``extra_us``
    less host time; None if it should not.

    >>> objection_of_host(20.0, 5.0), objection_of_host(0.5, -3.0)
    (None, None)
    >>> objection_of_host(20.0, 5.1)
    'saves 20.0 µs on the device and adds 5.1 µs on the host: an eager call accepts a quarter of what it saves'
    """
    if extra_us <= max(HOST_SHARE * saved_us, 0.0):
        return None
    return (
        f"saves {saved_us:.1f} µs on the device and adds {extra_us:.1f} µs on the host: "
        "an eager call accepts a quarter of what it saves"
    )
