"""Estimates corrected by what the store knows about a device: a small regression on its own findings.

The logarithm of measured by estimated time is linear in a candidate's algorithm, its estimate, and the logarithms of
its settings. Ridge regression keeps what was seen seldom near the estimate. On 48 problems that it had not seen the
best of four kernels were 4.8 % behind the best of all, by estimates alone 6.2 % (H100 and H200).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, log2, sqrt
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.predictor import Prediction, Predictor
from convwright.prediction.estimates import ERROR, ESTIMATES, around_leaf
from convwright.store.store import Store

# A candidate's condition under which its estimate is kept with its time.
ESTIMATE = "estimated µs"
# So many findings of an algorithm make a domain, and of fewer in all nothing is learnt.
_DOMAIN, _FEWEST = 8, 24
# The latest that are learnt from, and by which share there have to be more until it is done again.
_MOST, _MORE = 2000, 1.25
_RIDGE = 10.0
_SETTING = re.compile(r"(\w+)=(\d+)")


class _Seen(NamedTuple):
    """A finding: which algorithm took how many times its estimate, in which configuration."""

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


def predictor_for(store: Store, device: DeviceFacts) -> Predictor:
    """Learnt from the store's findings of a device; estimates alone where there are few."""
    count, known = store.timed(device.key), _learnt.setdefault(store, {})
    before, predictor = known.get(device.key, (0, ESTIMATES))
    if count >= _FEWEST and count > _MORE * before:
        seen = list(_findings(store, device.key))
        predictor = fitted(seen) if len(seen) >= _FEWEST else ESTIMATES
        known[device.key] = count, predictor
    return predictor


# By device key: from how many findings it was learnt, and what.
_Learnt = dict[str, tuple[int, Predictor]]
_learnt: WeakKeyDictionary[Store, _Learnt] = WeakKeyDictionary()


def _findings(store: Store, device_key: str) -> Iterator[_Seen]:
    for candidate_id, measurement in store.latest(device_key, _MOST):
        estimate, time_us = dict(measurement.conditions).get(ESTIMATE), measurement.device_us.value
        if estimate is None or time_us <= 0:
            continue
        name, _, settings = candidate_id.partition("[")
        numbers = tuple((key, float(value)) for key, value in _SETTING.findall(settings))
        yield _Seen(name, numbers, float(estimate), time_us / float(estimate))


def fitted(seen: Sequence[_Seen]) -> Corrected:
    """Ridge regression of the logarithm of ``times``."""
    rows = [dict(_features(each.algorithm, each.settings, each.estimated_us)) for each in seen]
    names = list({name: None for row in rows for name in row})
    place = {name: index for index, name in enumerate(names)}
    known = torch.zeros(len(rows), len(names), dtype=torch.float64)
    for index, row in enumerate(rows):
        for name, value in row.items():
            known[index, place[name]] = value
    wanted = torch.tensor([log(each.times) for each in seen], dtype=torch.float64)
    normal = known.T @ known + _RIDGE * torch.eye(len(names), dtype=torch.float64)
    weights = torch.linalg.solve(normal, known.T @ wanted)
    left = (wanted - known @ weights).square().mean()
    spread = exp(2 * sqrt(float(left)))
    return Corrected(dict(zip(names, weights.tolist(), strict=True)), Counter(each.algorithm for each in seen), spread)


def _name(backend: str, algorithm: str) -> str:
    return f"{backend}/{algorithm}"


def _features(algorithm: str, settings: Sequence[tuple[str, float]], estimated_us: float) -> list[tuple[str, float]]:
    """What the correction of a candidate is linear in, by name."""
    family = algorithm.partition("-3x")[0]
    return [
        (algorithm, 1.0), (f"{family} estimate", log2(estimated_us)),
        *((f"{family} {name}", log2(value + 1)) for name, value in settings),
    ]  # fmt: skip
