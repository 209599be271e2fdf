"""Turn candidates on a device into rows of named numbers with a physical estimate, equally for learning and prediction.

A row has the problem's features, the least time for each part of the work, the tiles and their waves over the
multiprocessors, and words: the algorithm, its rewrites and its settings. ``vocabulary`` lists the words that occur
among candidates; a model stores them as names of its features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any, NamedTuple

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.kinds.problem import Problem
from convwright.errors import BadInput
from convwright.prediction.physics import moved_bytes
from convwright.prediction.problem_features import PROBLEM_FEATURES, ProblemFeatures, problem_features
from convwright.prediction.rates import Rates, rates_of

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

ALGORITHM, REWRITE, SETTING = "algorithm ", "rewrite ", "setting "
# The parts of a candidate's physical estimate, in µs.
PARTS = ("products µs", "operands µs", "scratch µs", "copies µs", "launches µs", "backend's estimate µs")
OF_PHYSICS = (
    "log physics", *(f"log {part}" for part in PARTS), "products to operands", "has an estimate",
    "estimate to roofline",
)  # fmt: skip
# Typical tile sides of libraries that do not report theirs.
_USUAL_TILES = (32, 128)
OF_TILES = (
    "has tiles", "log blocks", "log waves", "last wave idle", "tiles idle", "products held", "log steps", "log parts",
    *(f"{what} of {side}" for side in _USUAL_TILES for what in ("log waves", "log padding")),
)  # fmt: skip
_OF_CANDIDATE = (
    "runs", "rewrites", "saves products", "products each", "log workspace", "workspace unknown", "splits numbers",
    "on tensor cores",
)  # fmt: skip
_NUMBERS = (*PROBLEM_FEATURES, *OF_PHYSICS, *OF_TILES, *_OF_CANDIDATE)
# A model does not know an algorithm with fewer candidates than this.
_FEWEST = 8
_ON_TENSOR_CORES = frozenset(Arithmetic) - {Arithmetic.FP32, Arithmetic.FP64}
# The collected fields of a candidate, one per column.
_RUNS, _DEPTH, _FLOPS, _BYTES, _PEAK, _PRODUCTS, _WORKSPACE, _MOVED, _ESTIMATE, _TILED, _SAVES = range(11)
_BM, _BN, _BK, _IN_PARTS, _ROWS, _COLUMNS, _TERMS, _GROUPS, _TENSOR = range(11, 20)
_LEAST_US = _LEAST_WAVES = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """``rows`` has one row for each candidate and one column for each of ``names``. ``parts`` are the columns of
    ``PARTS``, in µs. ``known`` says whether the candidate's algorithm is among the names."""

    names: tuple[str, ...]
    rows: NDArray[float64]
    physics_us: NDArray[float64]
    parts: NDArray[float64]
    known: NDArray[bool_]

    def at(self, rows: NDArray[Any]) -> Features:
        """Those of some rows."""
        return Features(self.names, self.rows[rows], self.physics_us[rows], self.parts[rows], self.known[rows])


class _Collected(NamedTuple):
    numbers: list[tuple[float, ...]]
    problems: list[tuple[float, ...]]
    words: list[list[tuple[str, float]]]


def algorithm_of(candidate: Candidate) -> str:
    """The backend and the algorithm of a candidate's leaf, as in ids."""
    leaf = candidate.leaf
    return f"{leaf.backend}/{leaf.algorithm}"


def vocabulary(candidates: Iterable[Candidate], fewest: int = _FEWEST) -> tuple[str, ...]:
    """The feature names of such candidates: the common ones, and words that at least ``fewest`` candidates have."""
    seen = Counter(name for candidate in candidates for name, _ in _words(candidate))
    return (*_NUMBERS, *sorted(name for name, count in seen.items() if count >= fewest))


def algorithm_columns(names: Sequence[str]) -> tuple[int, ...]:
    """The columns, among features with these names, that name the algorithm."""
    return tuple(index for index, name in enumerate(names) if name.startswith(ALGORITHM))


def part_columns(names: Sequence[str]) -> tuple[int, ...]:
    """The columns, among features with these names, of the physical estimate and of each of ``PARTS``."""
    return tuple(names.index(name) for name in ("log physics", *(f"log {part}" for part in PARTS)))


def check_names(names: Sequence[str], path: str) -> None:
    """Refuse the feature names of a model from another version, whose rows were different."""
    words = (ALGORITHM, REWRITE, SETTING)
    numbers = tuple(name for name in names if not name.startswith(words))
    if numbers != _NUMBERS:
        odd = next((name for name in (*numbers, *_NUMBERS) if (name in numbers) != (name in _NUMBERS)), numbers[:1])
        raise BadInput(
            f"{path} was learned by another version, whose features differ ({odd}): learn it again with "
            "`convwright learn`"
        )


def features(candidates: Sequence[Candidate], device: DeviceFacts, names: Sequence[str] = _NUMBERS) -> Features:
    """The rows of ``candidates`` with the columns ``names``, as made by ``vocabulary``.

    >>> from convwright.core.candidate import Source
    >>> from convwright.core.problem import ConvProblem
    >>> from convwright.core.profiles import profile
    >>> problem, tile = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dt:fp16"), (("bm", 128),)
    >>> leaf = Candidate(problem, "triton", "implicit-gemm", tile, Arithmetic.FP16_ACC32, 0, True, Source.RULE)
    >>> found = features([leaf], profile("h200"))
    >>> found.rows.shape == (1, len(found.names)), found.parts.round(1).tolist()
    (True, [[6.3, 1.6, 0.0, 0.0, 2.0, 0.0]])
    """
    import numpy as np

    rates, collected = rates_of(device), _collected(candidates, device)
    raw = np.array(collected.numbers, dtype=np.float64).reshape(len(candidates), _TENSOR + 1)
    problems = np.array(collected.problems, dtype=np.float64).reshape(len(candidates), len(PROBLEM_FEATURES))
    parts, physics_us, of_physics = _physics(raw, rates)
    numbers = np.hstack([problems, of_physics, _tiles(raw, rates), _candidate(raw)])
    place = {name: index for index, name in enumerate(names)}
    rows = np.zeros((len(candidates), len(names)))
    for index, name in enumerate(_NUMBERS):
        if name in place:
            rows[:, place[name]] = numbers[:, index]
    known = np.zeros(len(candidates), dtype=np.bool_)
    for row, words in enumerate(collected.words):
        for name, value in words:
            if (column := place.get(name)) is not None:
                rows[row, column] = value
                known[row] |= name.startswith(ALGORITHM)
    return Features(tuple(names), rows, physics_us, parts, known)


def _collected(candidates: Sequence[Candidate], device: DeviceFacts) -> _Collected:
    rates = rates_of(device)
    peaks = {arithmetic: rates.peak(arithmetic) for arithmetic in Arithmetic}
    seen: dict[int, ProblemFeatures] = {}
    collected = _Collected([], [], [])
    for candidate in candidates:
        leaf = candidate.leaf
        problem: Problem = leaf.problem
        found = seen.get(id(problem))
        if found is None:
            found = seen[id(problem)] = problem_features(problem)
        collected.problems.append(found.numbers)
        collected.numbers.append(_numbers(candidate, leaf, found, peaks[leaf.arithmetic]))
        collected.words.append(list(_words(candidate)))
    return collected


def _numbers(candidate: Candidate, leaf: Candidate, problem: ProblemFeatures, peak: float) -> tuple[float, ...]:
    product, config = problem.product, dict(leaf.config)
    workspace = -1 if candidate.workspace_bytes is None or candidate.workspace_is_bound else candidate.workspace_bytes
    bm, bn, bk, in_parts = (_whole(config.get(name, 0)) for name in ("bm", "bn", "bk", "parts"))
    flops = problem.flops if leaf.products is None else 2 * leaf.products
    is_rewritten = candidate.inner is not None
    return (
        candidate.runs if is_rewritten else 1, candidate.depth if is_rewritten else 0, flops, problem.bytes, peak,
        leaf.arithmetic.products, workspace, moved_bytes(candidate) if is_rewritten else 0, leaf.estimated_us or 0.0,
        leaf.tiled or 0, leaf.saves_products, bm, bn, bk, in_parts, *product,
        leaf.arithmetic in _ON_TENSOR_CORES,
    )  # fmt: skip


def _whole(value: int | str) -> int:
    return value if isinstance(value, int) else 0


def _words(candidate: Candidate) -> Iterator[tuple[str, float]]:
    """A candidate's names and settings: numbers on a logarithmic scale, texts as words."""
    while candidate.inner is not None:
        yield f"{REWRITE}{candidate.algorithm}", 1.0
        candidate = candidate.inner
    yield f"{ALGORITHM}{candidate.backend}/{candidate.algorithm}", 1.0
    for name, value in candidate.config:
        if isinstance(value, int):
            yield f"{SETTING}{candidate.backend} {name}", log2(value + 2) if value >= 0 else 0.0
        else:
            yield f"{SETTING}{candidate.backend} {name}={value}", 1.0


def _physics(raw: NDArray[float64], rates: Rates) -> tuple[NDArray[float64], NDArray[float64], NDArray[float64]]:
    """The parts, the estimate, and the columns for the model from both.

    The estimate is the peak time for products or operands, whichever is longer, or the backend's estimate if there is
    one; plus scratch memory written and read, copies of rewrites, and launches.
    """
    import numpy as np

    runs = raw[:, _RUNS]
    held = np.maximum(1.0, _ratio(2 * raw[:, _TILED], raw[:, _FLOPS]))
    products_us = runs * raw[:, _FLOPS] * raw[:, _PRODUCTS] * held / raw[:, _PEAK]
    operands_us = runs * raw[:, _BYTES] / rates.bandwidth_bytes_per_us
    scratch_us = 2 * np.maximum(raw[:, _WORKSPACE], 0.0) / rates.bandwidth_bytes_per_us
    copies_us = raw[:, _MOVED] / rates.bandwidth_bytes_per_us
    launches_us = rates.launch_us * (runs + raw[:, _DEPTH] + (raw[:, _IN_PARTS] > 1))
    estimate_us = runs * raw[:, _ESTIMATE]
    roofline_us = np.maximum(products_us, operands_us) + launches_us + copies_us + scratch_us
    has_estimate = estimate_us > 0
    physics_us = np.where(has_estimate, estimate_us + copies_us + rates.launch_us * raw[:, _DEPTH], roofline_us)
    parts = np.column_stack([products_us, operands_us, scratch_us, copies_us, launches_us, estimate_us])
    shown = np.column_stack([
        np.log2(physics_us), np.log2(np.maximum(parts, _LEAST_US)),
        np.log2(np.maximum(products_us, _LEAST_US) / np.maximum(operands_us, _LEAST_US)),
        has_estimate, np.log2(np.where(has_estimate, physics_us / roofline_us, 1.0)),
    ])  # fmt: skip
    return parts, physics_us, shown


def _tiles(raw: NDArray[float64], rates: Rates) -> NDArray[float64]:
    """Tiles of a matrix product, if a candidate states their size, and their waves over all units."""
    import numpy as np

    has = (raw[:, _BM] > 0) & (raw[:, _BN] > 0)
    bm, bn, bk = (np.where(raw[:, each] > 0, raw[:, each], 1.0) for each in (_BM, _BN, _BK))
    in_parts = np.maximum(raw[:, _IN_PARTS], 1.0)
    down, across = np.ceil(raw[:, _ROWS] / bm), np.ceil(raw[:, _COLUMNS] / bn)
    blocks = np.where(has, down * across * raw[:, _GROUPS] * in_parts, 1.0)
    waves = blocks / rates.units
    idle = np.where(has, 1 - waves / np.maximum(np.ceil(waves), 1.0), 0.0)
    waste = np.where(has, 1 - raw[:, _ROWS] * raw[:, _COLUMNS] / np.maximum(down * bm * across * bn, 1.0), 0.0)
    steps = np.where(has & (raw[:, _BK] > 0), np.ceil(np.ceil(raw[:, _TERMS] / bk) / in_parts), 1.0)
    held = np.log2(np.maximum(1.0, _ratio(2 * raw[:, _TILED], raw[:, _FLOPS])))
    return np.column_stack([
        has, np.log2(np.maximum(blocks, 1.0)), np.where(has, np.log2(np.maximum(waves, 1e-3)), 0.0), idle, waste, held,
        np.log2(np.maximum(steps, 1.0)), np.log2(in_parts),
        *(column for side in _USUAL_TILES for column in _usual_tiles(raw, rates, side)),
    ])  # fmt: skip


def _usual_tiles(raw: NDArray[float64], rates: Rates, side: int) -> Iterator[NDArray[float64]]:
    """Waves of square tiles, and by how much whole tiles enlarge the product."""
    import numpy as np

    down, across = np.ceil(raw[:, _ROWS] / side), np.ceil(raw[:, _COLUMNS] / side)
    yield np.log2(np.maximum(down * across * raw[:, _GROUPS] / rates.units, _LEAST_WAVES))
    yield np.log2(np.maximum(_ratio(down * side * across * side, raw[:, _ROWS] * raw[:, _COLUMNS]), 1.0))


def _candidate(raw: NDArray[float64]) -> NDArray[float64]:
    import numpy as np

    workspace = np.log2(np.maximum(raw[:, _WORKSPACE], 0.0) + 1)
    return np.column_stack([
        np.log2(raw[:, _RUNS]), raw[:, _DEPTH], raw[:, _SAVES], raw[:, _PRODUCTS], workspace, raw[:, _WORKSPACE] < 0,
        raw[:, _PRODUCTS] > 1, raw[:, _TENSOR],
    ])  # fmt: skip


def _ratio(above: NDArray[float64], below: NDArray[float64]) -> NDArray[float64]:
    """The ratio; 1 where the divisor is 0."""
    import numpy as np

    ratio: NDArray[float64] = np.where(below > 0, above / np.where(below > 0, below, 1.0), 1.0)
    return ratio
