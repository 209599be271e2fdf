"""Choose the problems from which a predictor would learn most."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

from convwright.campaign.drawn import Drawn
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.observation import Observation
from convwright.core.policy import Policy
from convwright.core.predictor import Prediction, Predictor
from convwright.tuning import listing

# The weight of a candidate without a prediction, and of one outside the domain: more than any interval.
_UNKNOWN, _OUTSIDE = 20.0, 10.0
# If earlier predictions for an origin were off by a factor of two, its problems count as if their intervals were twice
# as wide; at most by this factor.
_MOST_OFF = 5.0


def most_informative(
    pool: Sequence[Drawn],
    predictor: Predictor,
    device: DeviceFacts,
    count: int,
    earlier: Sequence[Observation] = (),
) -> list[Drawn]:
    """The most informative problems of ``pool``, in its order: those whose candidates are outside the predictor's
    domain or have the widest intervals, and those of origins whose ``earlier`` predictions were worst."""
    off = errors_by_origin(predictor, device, earlier)
    scores = [_unknown(drawn, predictor, device) + min(off.get(drawn.origin, 0.0), _MOST_OFF) for drawn in pool]
    best = sorted(range(len(pool)), key=lambda place: -scores[place])[:count]
    return [pool[place] for place in sorted(best)]


def errors_by_origin(predictor: Predictor, device: DeviceFacts, earlier: Sequence[Observation]) -> dict[str, float]:
    """The error of predictions for each origin, as the mean of |log(measured / predicted)|."""
    found: dict[str, list[float]] = {}
    predictions = predictor.predict_all([each.candidate for each in earlier], device)
    for each, prediction in zip(earlier, predictions, strict=True):
        measured = each.measurement
        if prediction is None or measured is None or min(measured.device_us.value, prediction.time_us.value) <= 0:
            continue
        origin = dict(measured.conditions).get("origin", "")
        found.setdefault(origin, []).append(abs(log(measured.device_us.value / prediction.time_us.value)))
    return {origin: sum(errors) / len(errors) for origin, errors in found.items()}


def _unknown(drawn: Drawn, predictor: Predictor, device: DeviceFacts) -> float:
    """How little is known of a problem's candidates: the mean over the first of each backend."""
    policy = Policy()
    candidates = listing.candidates(listing.direct(drawn.problem, device, policy))
    first = listing.first_of_each(candidates, policy)
    return sum(map(_doubt, predictor.predict_all(first, device))) / len(first) if first else 0.0


def _doubt(prediction: Prediction | None) -> float:
    if prediction is None:
        return _UNKNOWN
    return (0.0 if prediction.in_domain else _OUTSIDE) + min(_width(prediction.time_us), _OUTSIDE)


def _width(interval: Interval) -> float:
    """The logarithm of the upper end divided by the lower."""
    return log(interval.high / interval.low) if 0 < interval.low <= interval.high < inf else inf
