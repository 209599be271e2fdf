"""Correct backends' estimates by a small regression on the store's findings for a device. Where a model of the device
was learned, it is used instead.

The logarithm of measured by estimated time is linear in a candidate's algorithm, its estimate, and the logarithms of
its settings. Ridge regression keeps rarely seen algorithms close to their estimate. On 48 unseen problems the best of
the top four kernels was 4.8 % slower than the best of all; by estimates alone 6.2 % (H100 and H200).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import exp, inf, log, log2, sqrt
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.predictor import Prediction, Predictor, expected_us
from convwright.errors import BadInput
from convwright.prediction.estimates import ERROR, ESTIMATES, around_leaf
from convwright.prediction.learned_times import LearnedTimes
from convwright.prediction.models import served
from convwright.store.store import Store

# The condition of a measurement that holds its backend's estimate.
ESTIMATE = "estimated_us"
# An algorithm with fewer findings is outside of the domain; with fewer in total nothing is learned.
_DOMAIN, _FEWEST = 8, 24
# At most so many of the newest findings are used. The fit is repeated after a quarter more.
_MOST, _MORE = 2000, 0.25
_RIDGE = 10.0
_SETTING = re.compile(r"(\w+)=(\d+)")


class _Seen(NamedTuple):
    """A finding: an algorithm, its configuration, and measured by estimated time."""

    algorithm: str
    settings: tuple[tuple[str, float], ...]
    estimated_us: float
    times: float


@dataclass(frozen=True, slots=True)
class Corrected:
    """A ``Predictor`` that corrects estimates by the findings of one device."""

    weights: Mapping[str, float]
    seen: Mapping[str, int]
    error: float

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        leaf = candidate.leaf
        if leaf.estimated_us is None:
            return None
        settings = tuple((name, float(value)) for name, value in leaf.config if isinstance(value, int))
        features = _features(_name(leaf.backend, leaf.algorithm), settings, leaf.estimated_us)
        times = exp(sum(self.weights.get(name, 0.0) * value for name, value in features))
        in_domain = self.seen.get(_name(leaf.backend, leaf.algorithm), 0) >= _DOMAIN
        time_us = around_leaf(candidate, device, times * leaf.estimated_us, self.error if in_domain else ERROR)
        return Prediction(time_us, in_domain)

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        return [self.predict(candidate, device) for candidate in candidates]


def predictor_for(store: Store, device: DeviceFacts) -> Predictor:
    """The learned model of a device if there is one, else estimates that the store's findings correct."""
    return _model_of(store, device) or _corrected(store, device)


def kernel_times(store: Store, device: DeviceFacts, kernels: Sequence[Candidate]) -> Sequence[float | None]:
    """Times that sort kernels, by the same means."""
    model = _model_of(store, device)
    if model is not None:
        return model.roughly_us(kernels, device)
    return expected_us(_corrected(store, device).predict_all(kernels, device))


def _model_of(store: Store, device: DeviceFacts) -> LearnedTimes | None:
    """The learned model of a device. Searches do without one that cannot be read."""
    if find_spec("numpy") is None:
        return None
    try:
        known = served(device, store.path)
    except BadInput:
        return None
    return known.predictor if isinstance(known.predictor, LearnedTimes) else None


def _corrected(store: Store, device: DeviceFacts) -> Predictor:
    """A predictor learned from the store's findings for a device; estimates alone if there are few."""
    known = _learnt.setdefault(store, {})
    last = known.get(device.key)
    if last is None or store.recorded - last.recorded > max(_FEWEST, _MORE * last.seen):
        seen = list(_findings(store, device.key))
        predictor = fitted(seen) if len(seen) >= _FEWEST else ESTIMATES
        last = known[device.key] = _Learnt(store.recorded, len(seen), predictor)
    return last.predictor


class _Learnt(NamedTuple):
    """A predictor, the number of findings it was learned from, and this process's count of records at that moment."""

    recorded: int
    seen: int
    predictor: Predictor


_learnt: WeakKeyDictionary[Store, dict[str, _Learnt]] = WeakKeyDictionary()


def _findings(store: Store, device_key: str) -> Iterator[_Seen]:
    for candidate_id, measurement in store.latest(device_key, _MOST, condition=ESTIMATE):
        estimated_us = _positive(dict(measurement.conditions).get(ESTIMATE, ""))
        time_us = measurement.device_us.value
        if estimated_us is None or time_us <= 0 or measurement.doubt is not None:
            continue
        name, _, settings = candidate_id.partition("[")
        numbers = tuple((key, float(value)) for key, value in _SETTING.findall(settings))
        yield _Seen(name, numbers, estimated_us, time_us / estimated_us)


def _positive(text: str) -> float | None:
    """A finite number above 0, or None, since anyone may import findings."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < inf else None


def seen_of(candidate: Candidate, time_us: float) -> _Seen | None:
    """A timed candidate as a row of the regression; None if its backend gives no estimate."""
    if candidate.inner is not None or candidate.estimated_us is None:
        return None
    numbers = tuple((name, float(value)) for name, value in candidate.config if isinstance(value, int))
    name = _name(candidate.backend, candidate.algorithm)
    return _Seen(name, numbers, candidate.estimated_us, time_us / candidate.estimated_us)


def fitted(seen: Sequence[_Seen]) -> Corrected:
    """Ridge regression of the logarithm of ``times``."""
    rows = [dict(_features(each.algorithm, each.settings, each.estimated_us)) for each in seen]
    names = list({name: None for row in rows for name in row})
    place = {name: index for index, name in enumerate(names)}
    lines = [[0.0] * len(names) for _ in rows]
    for line, row in zip(lines, rows, strict=True):
        for name, value in row.items():
            line[place[name]] = value
    known = torch.tensor(lines, dtype=torch.float64, device="cpu")
    wanted = torch.tensor([log(each.times) for each in seen], dtype=torch.float64, device="cpu")
    normal = known.T @ known + _RIDGE * torch.eye(len(names), dtype=torch.float64, device="cpu")
    weights = torch.linalg.solve(normal, known.T @ wanted)
    left = (wanted - known @ weights).square().mean()
    spread = exp(2 * sqrt(float(left)))
    return Corrected(dict(zip(names, weights.tolist(), strict=True)), Counter(each.algorithm for each in seen), spread)


def _name(backend: str, algorithm: str) -> str:
    return f"{backend}/{algorithm}"


def _features(algorithm: str, settings: Sequence[tuple[str, float]], estimated_us: float) -> list[tuple[str, float]]:
    """The features of a candidate's linear correction, by name."""
    family = algorithm.partition("-3x")[0]
    return [
        (algorithm, 1.0), (f"{family} estimate", log2(estimated_us)),
        *((f"{family} {name}", log2(value + 1)) for name, value in settings),
    ]  # fmt: skip
