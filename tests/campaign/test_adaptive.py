"""Of many problems those are measured of which a predictor knows least."""

from __future__ import annotations

from collections.abc import Sequence

from convwright.campaign.adaptive import errors_by_origin, most_informative
from convwright.campaign.drawn import Drawn
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval, Measurement
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.core.predictor import Prediction
from convwright.core.problem import ConvProblem
from convwright.tuning import listing

CPU = DeviceFacts("a CPU", "cpu", "any", threads=1)


class Predictor:
    """Knows convolutions of 8 channels well, of 16 less, of 32 not at all well; others are out of its domain."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        problem = candidate.problem
        if problem.c == 64:
            return None
        width = {8: 1.1, 16: 2.0, 32: 10.0}.get(problem.c, 1.1)
        return Prediction(Interval(100.0, 100.0 / width, 100.0 * width), problem.c <= 32)

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        return [self.predict(candidate, device) for candidate in candidates]


def drawn(c: int, number: int, origin: str = "random") -> Drawn:
    return Drawn(ConvProblem.of((1, c, 8, 8), (c, c, 3, 3), padding=1), origin, number)


def test_what_is_unknown_comes_before_what_is_uncertain_before_what_is_known() -> None:
    pool = [drawn(c, number) for number, c in enumerate((8, 16, 32, 48, 64))]
    kept = [[each.number for each in most_informative(pool, Predictor(), CPU, count)] for count in range(1, 6)]
    assert kept == [[4], [3, 4], [2, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3, 4]]


def measured(each: Drawn, time_us: float) -> Observation:
    candidate = listing.candidates(listing.direct(each.problem, CPU, Policy()))[0]
    seen = Measurement(Interval(time_us, time_us, time_us), None, (), 0, 10, (("origin", each.origin),))
    return Observation(
        candidate, CPU.key, "1", Outcome.MEASURED, seen, None, (time_us,), Policy(), "campaign", None, 1.0
    )


def test_origins_of_which_predictions_were_off_come_first() -> None:
    earlier = [measured(drawn(8, 0, "networks:a"), 101.0), measured(drawn(8, 1, "networks:b"), 250.0)]
    off = errors_by_origin(Predictor(), CPU, earlier)
    assert off["networks:b"] > 0.9 > 0.1 > off["networks:a"]
    pool = [drawn(8, number, f"networks:{name}") for number, name in enumerate("ababa")]
    kept = most_informative(pool, Predictor(), CPU, 2, earlier)
    assert {each.origin for each in kept} == {"networks:b"}
