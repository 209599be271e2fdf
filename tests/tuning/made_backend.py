"""Backends whose candidates take as long as a test says, in a time of their own, and compute right or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from convwright.core.candidate import Candidate, Offer, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.clock import WallClock
from tuning.fatal import RUINOUS

# What is said of a kernel that came too late for a call.
COMPILING = "is being compiled in the background, and will be tried at a later call"


class Time:
    """Passes only while something made is built or runs."""

    def __init__(self) -> None:
        self.now_us = 0.0

    def __call__(self) -> float:
        return self.now_us


@dataclass
class Way:
    """One candidate: what it takes, and what is wrong with it. ``later_us`` is what all but its first plan take."""

    time_us: float
    build_us: float = 0.0
    later_us: float | None = None
    wrong: bool = False
    prepare: bool = False
    links_us: float = 0.0
    arithmetic: Arithmetic = Arithmetic.FP32


@dataclass
class Made:
    """All that a test has said, and all that was built. ``disturb`` says what other work adds to a call that begins."""

    time: Time = field(default_factory=Time)
    disturb: Callable[[], float] = lambda: 0.0
    waited_us: float = 0.0
    own_us: float = 1000.0
    own_tf32_us: float | None = None
    quick: dict[str, Way] = field(default_factory=dict)
    near: dict[str, list[Way]] = field(default_factory=dict)
    compiled: dict[str, Way] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    compiler: Callable[[str], None] = lambda id_: None


MADE = Made()


def reset() -> Made:
    """Nothing is made any more."""
    MADE.__init__()  # type: ignore[misc]
    return MADE


class MadeClock(WallClock):
    """A clock of the timer in that time."""

    def now_us(self) -> float:
        return MADE.time()

    def time_us(self, call: Callable[[], object], n: int) -> float:
        begun_us = MADE.time()
        for _ in range(n):
            call()
        return MADE.time() - begun_us


class RightPlan:
    """A forward convolution in two dimensions, right and in no time."""

    workspace_bytes = 0
    writes_out = False

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate

    def prepare(self, weight: Tensor) -> Tensor:
        return weight

    def __call__(self, *operands: Any) -> Tensor:
        problem = self.candidate.problem
        x, w, bias, *_ = operands
        padding = problem.symmetric_padding or 0
        return F.conv2d(x, w, bias, problem.stride, padding, problem.dilation, problem.groups)


class MadePlan(RightPlan):
    def __init__(self, candidate: Candidate, way: Way) -> None:
        super().__init__(candidate)
        MADE.time.now_us += way.build_us
        again = candidate.id in MADE.built
        MADE.built.append(candidate.id)
        self._way, self._us = way, way.later_us if again and way.later_us is not None else way.time_us

    def __call__(self, *operands: Any) -> Tensor:
        waited_us = MADE.disturb()
        MADE.waited_us += waited_us
        MADE.time.now_us += self._us + waited_us
        right = super().__call__(*operands)
        return right + 1 if self._way.wrong else right


def offer(problem: ConvProblem, name: str) -> Candidate:
    backend, _, algorithm = name.partition("/")
    return Candidate(problem, backend, algorithm, (), Arithmetic.FP32, 0, True, Source.RULE)


def near(problem: ConvProblem, algorithm: str, number: int) -> Candidate:
    return replace(offer(problem, f"quick/{algorithm}"), config=(("n", number),))


class MadeTorch:
    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return "1"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        yield offer(problem, "torch/default")
        if MADE.own_tf32_us is not None:
            yield replace(offer(problem, "torch/default"), config=(("tf32", "on"),), arithmetic=Arithmetic.TF32)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        return MadePlan(candidate, Way(MADE.own_tf32_us if candidate.config and MADE.own_tf32_us else MADE.own_us))


class MadeQuick(MadeTorch):
    """What stands near one of its ways is not listed: configurations 0, 1, 2, …"""

    name = "quick"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        yield from (replace(offer(problem, f"quick/{name}"), links_us=way.links_us) for name, way in MADE.quick.items())

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        number = dict(candidate.config).get("n")
        ways = MADE.quick[candidate.algorithm] if number is None else MADE.near[candidate.algorithm][int(number)]
        return MadePlan(candidate, ways)

    def spelled(self, name: str, problem: ConvProblem) -> str:
        return name

    def configured(self, name: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Offer | None:
        algorithm, _, number = name.removeprefix("quick/").partition("[n=")
        return near(problem, algorithm, int(number.rstrip("]"))) if number else None

    def variants(self, candidate: Candidate, device: DeviceFacts, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
        for number in range(len(MADE.near.get(candidate.algorithm, ()))):
            yield near(candidate.problem, candidate.algorithm, number)


class MadeCompiled(MadeTorch):
    """What was compiled once is compiled; ``compiler`` is called before."""

    name = "compiled"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        for name, way in MADE.compiled.items():
            yield replace(offer(problem, f"compiled/{name}"), compiles=True, arithmetic=way.arithmetic)

    def load_compiler(self) -> None: ...

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None:
        """No other process knows what a test has said."""
        raise AssertionError

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        way = MADE.compiled[candidate.algorithm]
        if candidate.id not in MADE.built:
            MADE.compiler(candidate.id)
        return MadePlan(candidate, replace(way, build_us=0.0) if candidate.id in MADE.built else way)


class RuinousPlan(RightPlan):
    def __call__(self, *operands: Any) -> Tensor:
        RUINOUS[self.candidate.algorithm]()
        return super().__call__(*operands)


class Ruinous(MadeTorch):
    """Candidates that end the process in which they run."""

    name = "ruinous"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        yield from (offer(problem, f"ruinous/{name}") for name in RUINOUS)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        return RuinousPlan(candidate)


def ways(build_us: float = 0.0) -> dict[str, Way]:
    """Six kernels to compile, the last of which is the fastest."""
    return {f"kernel-{i}": Way(500.0 - 40 * i, build_us=build_us) for i in range(6)}
