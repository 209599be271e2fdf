"""One way to compute one problem, and the reason why another way cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from convwright.core.dtype import Arithmetic
from convwright.core.record import Record

Config = tuple[tuple[str, int | str], ...]


def leaf_id(backend: str, algorithm: str, config: Config) -> str:
    """What a candidate that is no rewrite is called, whether or not there is one.

    >>> leaf_id("cudnn", "engine-48", (("k2", 1), ("k13", 2)))
    'cudnn/engine-48[k2=1,k13=2]'
    """
    settings = ",".join(f"{name}={value}" for name, value in config)
    return f"{backend}/{algorithm}" + (f"[{settings}]" if settings else "")


class Source(StrEnum):
    """Where the knowledge about a candidate comes from."""

    PLANNER = "planner"
    RULE = "rule"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Candidate(Record):
    """One way: a backend's algorithm in one configuration, or a rewrite around another candidate.

    What stands here is known before anything is built. ``workspace_bytes`` None means that only building tells, and
    ``workspace_is_bound`` that it may need less; ``saves_products`` that the algorithm may multiply less often than the
    problem says, as Winograd's and Fourier's do, and ``products`` how often it does, where that is known; ``tiled`` how
    many products a matrix kernel's tiles hold, idle ones too; ``rounds_sums`` that it may round sums of some of the
    products to fewer bits than ``arithmetic`` adds in, before it adds those up; ``compiles`` that building it takes
    tenths of a second, and ``links_us`` how long its first run may take a library that links or loads kernels, 0 where
    it is no matter. ``estimated_us`` is what its backend would guess that it takes, for an order among its own; None
    where it does not. ``compile_s`` is about how long a compiler takes; 0 where that is not known.

    >>> from convwright.core.problem import ConvProblem
    >>> problem = ConvProblem.parse("ic8ih9oc8kh3")
    >>> leaf = Candidate(problem, "triton", "implicit-gemm", (("bm", 64),), Arithmetic.TF32X3, 0, True, Source.RULE)
    >>> leaf.id
    'triton/implicit-gemm[bm=64]'
    """

    TOLD: ClassVar = ("id", "range_limited")

    problem: Any  # a Problem: whoever made the candidate knows of which kind
    backend: str
    algorithm: str
    config: Config
    arithmetic: Arithmetic
    workspace_bytes: int | None
    deterministic: bool | None
    source: Source
    inner: Candidate | None = None
    saves_products: bool = False
    products: int | None = None
    tiled: int | None = None
    rounds_sums: bool = False
    compiles: bool = False
    links_us: float = 0.0
    workspace_is_bound: bool = False
    estimated_us: float | None = field(default=None, compare=False)
    compile_s: float = field(default=0.0, compare=False)

    @property
    def id(self) -> str:
        if self.inner is not None:
            return f"{self.algorithm}({', '.join([*(str(value) for _, value in self.config), self.inner.id])})"
        return leaf_id(self.backend, self.algorithm, self.config)

    @property
    def family(self) -> str:
        """Its id without the configuration: candidates of one family differ in their configurations alone."""
        return self.id.partition("[")[0]

    @property
    def range_limited(self) -> bool:
        """Whether its arithmetic keeps fewer bits of a number that is far smaller than others."""
        return self.arithmetic.range_limited

    @property
    def leaf(self) -> Candidate:
        """The candidate that does the arithmetic, inside all rewrites."""
        return self if self.inner is None else self.inner.leaf

    @property
    def runs(self) -> int:
        """How often the leaf runs at each call: a rewrite that runs its inner candidate several times says so by its
        argument ``parts``."""
        return 1 if self.inner is None else int(dict(self.config).get("parts", 1)) * self.inner.runs

    @property
    def depth(self) -> int:
        """How many rewrites stand around the leaf."""
        return 0 if self.inner is None else 1 + self.inner.depth


@dataclass(frozen=True, slots=True)
class Refusal(Record):
    """An algorithm that cannot serve the problem, with the reason in words."""

    id: str
    reason: str


Offer = Candidate | Refusal
