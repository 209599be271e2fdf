"""What a candidate may take, as far as it can be told before anything runs. It decides what is tried
and when, never what is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from operator import itemgetter

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval
from convwright.core.kinds.problem import Problem
from convwright.core.predictor import Prediction, Predictor
from convwright.tuning.chains import moved_bytes
from convwright.tuning.listing import spread

# The most promising first.
Rank = Callable[[Sequence[Candidate]], list[Candidate]]

# No core of a CPU multiplies and adds more in a microsecond: two vectors of 64 bytes a cycle, at 6.5 GHz. Of 16-bit
# numbers nothing is said: matrix units multiply those many times faster.
_MOST_FLOPS_PER_US = {Arithmetic.FP64: 2 * 2 * 8 * 6500, Arithmetic.FP32: 2 * 2 * 16 * 6500}
# Winograd's F(4x4, 3x3), which PyTorch's own call on a CPU may be computed by, saves as much.
_MOST_SAVED = 4
# So much of its time each configuration of an algorithm stands behind the one before.
_BEHIND = 1 / 6
# A kernel takes between so many times its estimate and as much less: 93 in a hundred did (H200, 1,513 configurations).
ERROR = 2.0
# In less time than this hardly anything is compiled, however short a search is.
_LEAST_WITHIN_US = 2e6
# What fits into a cache is moved faster than limits say, and what is beyond it in part.
_IN_CACHE = 3.0


def least_us(candidate: Candidate, device: DeviceFacts) -> float | None:
    """What the device needs at its peak for what is moved and multiplied; None where its rates are not known.

    Products that an algorithm may save are counted: how many it saves is not known, and what it pays for that neither.
    So are idle ones of tiles that are at least half empty, as where one output channel stands for sixteen.
    """
    leaf, bandwidth, peak = candidate.leaf, device.bandwidth_bytes_per_us, device.peak(candidate.arithmetic)
    if not bandwidth or not peak:
        return None
    problem: Problem = leaf.problem
    work_us = problem.flops * leaf.arithmetic.products * _times_idle(leaf) / peak
    return candidate.runs * max(work_us, problem.bytes / bandwidth) + moved_bytes(candidate) / bandwidth


def _times_idle(leaf: Candidate) -> int:
    """How many times the problem's products its tiles hold, as a power of two: which of two tiles that fit alike is
    faster, who offers them knows better."""
    products: int = leaf.problem.flops // 2
    return 1 if leaf.tiled is None or not products else 1 << max(leaf.tiled // products, 1).bit_length() - 1


def own_call_us(own: Candidate, device: DeviceFacts) -> float:
    """What PyTorch's own call takes on a CPU at the least, whichever CPU it is; 0 where nothing is known of that."""
    per_thread = _MOST_FLOPS_PER_US.get(own.arithmetic)
    if device.kind != "cpu" or per_thread is None or device.threads is None:
        return 0.0
    problem: Problem = own.problem
    return problem.flops / _MOST_SAVED / (per_thread * device.threads)


def moving_us(candidate: Candidate, device: DeviceFacts) -> float:
    """What the device needs at its peak bandwidth to move operands and to write a workspace once, whatever is saved of
    the products; 0 where that is not known."""
    bandwidth, leaf = device.bandwidth_bytes_per_us, candidate.leaf
    if not bandwidth:
        return 0.0
    scratch_bytes = 0 if candidate.workspace_is_bound else candidate.workspace_bytes or 0
    problem: Problem = leaf.problem
    return (problem.bytes + scratch_bytes) / bandwidth


def hopeless_us(candidate: Candidate, device: DeviceFacts, best_us: float) -> float | None:
    """What a candidate needs for all that it moves where that is longer than what was seen, whatever it saves of the
    products; None where it may still win."""
    bandwidth, least_us = device.bandwidth_bytes_per_us, moving_us(candidate, device)
    cached_us = device.cache_bytes / bandwidth if device.cache_bytes and bandwidth else 0.0
    return least_us if least_us > max(_IN_CACHE * best_us, cached_us) else None


class Estimates:
    """A ``Predictor`` that takes each backend's own estimate, and what the rewrites around the candidate move."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        leaf_us = candidate.leaf.estimated_us
        return None if leaf_us is None else Prediction(around_leaf(candidate, device, leaf_us, ERROR), in_domain=True)


ESTIMATES = Estimates()


def around_leaf(candidate: Candidate, device: DeviceFacts, leaf_us: float, error: float) -> Interval:
    """The time of a candidate whose leaf takes ``leaf_us``, by a factor of ``error`` more or less."""
    bandwidth = device.bandwidth_bytes_per_us
    moving = moved_bytes(candidate) / bandwidth if bandwidth else 0.0
    runs_us = candidate.runs * leaf_us
    return Interval(runs_us + moving, runs_us / error + moving, runs_us * error + moving)


def by_promise(
    listed: Sequence[Candidate],
    device: DeviceFacts,
    predictor: Predictor = ESTIMATES,
    within_us: float = inf,
) -> list[Candidate]:
    """By what they need at least; those that need the same in the order in which their backends believe in them, behind
    all others where their tiles are mostly idle. What is predicted has the places of its backend by its predicted time.

    What takes long to compile comes later, the more so the less time there is (``within_us``).
    """

    def need(candidate: Candidate) -> tuple[float, int, int]:
        return least_us(candidate, device) or 0.0, _times_idle(candidate.leaf), moved_bytes(candidate)

    def delay(candidate: Candidate) -> float:
        return 1 + candidate.leaf.compile_s * 1e6 / max(within_us, _LEAST_WITHIN_US)

    ordered, predicted = sorted(spread(listed), key=need), dict[str, list[tuple[float, Candidate]]]()
    for candidate in ordered:
        prediction = predictor.predict(candidate, device)
        if prediction is not None:
            predicted.setdefault(candidate.leaf.backend, []).append(
                (prediction.time_us.value * delay(candidate), candidate)
            )
    turns = {backend: iter(_by_prediction(group)) for backend, group in predicted.items()}
    known = {candidate for group in predicted.values() for _, candidate in group}
    return [next(turns[each.leaf.backend]) if each in known else each for each in ordered]


def _by_prediction(group: Sequence[tuple[float, Candidate]]) -> list[Candidate]:
    """The fastest first as far as can be told, but of one algorithm's configurations, which differ less than
    predictions err, each a little behind the one before."""
    ahead = Counter[str]()
    promised: list[tuple[float, Candidate]] = []
    for time_us, candidate in group:
        algorithm = candidate.id.partition("[")[0]
        promised.append((time_us * (1 + _BEHIND * ahead[algorithm]), candidate))
        ahead[algorithm] += 1
    return [candidate for _, candidate in sorted(promised, key=itemgetter(0))]
