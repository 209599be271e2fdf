"""A candidate: one way to compute a problem; and a refusal: the reason why another way cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from convwright.core.dtype import Arithmetic
from convwright.core.record import Record

Config = tuple[tuple[str, int | str], ...]


def leaf_id(backend: str, algorithm: str, config: Config) -> str:
    """The id of a candidate that is not a rewrite, whether or not it exists.

    >>> leaf_id("cudnn", "engine-48", (("k2", 1), ("k13", 2)))
    'cudnn/engine-48[k2=1,k13=2]'
    """
    settings = ",".join(f"{name}={value}" for name, value in config)
    return f"{backend}/{algorithm}" + (f"[{settings}]" if settings else "")


class Source(StrEnum):
    """The origin of what is known about a candidate."""

    PLANNER = "planner"
    RULE = "rule"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Candidate(Record):
    """One way: a backend's algorithm in one configuration, or a rewrite around another candidate.

    All fields are known before anything is built:

    * ``workspace_bytes``: None if only building shows it. ``workspace_is_bound``: it may need less.
    * ``saves_products``: it may multiply less often than the problem says, like Winograd's and Fourier's algorithms.
      ``products``: how often it multiplies, if known. ``tiled``: the products in a matrix kernel's tiles, with idle
      ones.
    * ``rounds_sums``: it may round partial sums to fewer bits than ``arithmetic`` adds in.
    * ``compiles``: building it takes tenths of a second. ``compile_s``: about how long its compiler takes, 0 if
    unknown.
    * ``links_us``: how long a library may link or load kernels in the first run, 0 if negligible.
    * ``estimated_us``: its backend's estimate of its time, for an order among its own candidates; None without one.

    >>> from convwright.core.problem import ConvProblem
    >>> problem = ConvProblem.parse("ic8ih9oc8kh3")
    >>> leaf = Candidate(problem, "triton", "implicit-gemm", (("bm", 64),), Arithmetic.TF32X3, 0, True, Source.RULE)
    >>> leaf.id
    'triton/implicit-gemm[bm=64]'
    """

    _PROPERTIES: ClassVar = ("id", "range_limited")

    problem: Any  # a Problem; the maker of the candidate knows its kind
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
        """The id without the configuration. Candidates of one family differ only in their configurations."""
        return self.id.partition("[")[0]

    @property
    def range_limited(self) -> bool:
        """Whether its arithmetic loses bits of numbers that are far smaller than their neighbours."""
        return self.arithmetic.range_limited

    @property
    def leaf(self) -> Candidate:
        """The innermost candidate, which does the arithmetic."""
        return self if self.inner is None else self.inner.leaf

    @property
    def runs(self) -> int:
        """How often the leaf runs in one call: the product of the ``parts`` arguments of its rewrites."""
        return 1 if self.inner is None else int(dict(self.config).get("parts", 1)) * self.inner.runs

    @property
    def depth(self) -> int:
        """The number of rewrites around the leaf."""
        return 0 if self.inner is None else 1 + self.inner.depth


@dataclass(frozen=True, slots=True)
class Refusal(Record):
    """An algorithm that cannot serve the problem, with the reason as a sentence."""

    id: str
    reason: str


Offer = Candidate | Refusal
