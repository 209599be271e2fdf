"""The benchmark of placements by predicted times: what it says is lost."""

from __future__ import annotations

from random import Random

import placement_regret
import pytest
from placement_regret import CPU, H200, Instance, drawn, outcome

from convwright.core.finding import Interval
from convwright.errors import Refused
from convwright.placement import Estimate, Job, place

TIMES_MS = {("a", "h200"): 1.0, ("a", "cpu"): 3.0, ("b", "h200"): 1.0, ("b", "cpu"): 2.0}


def estimates(times_ms: dict[tuple[str, str], float]) -> list[Estimate]:
    return [
        Estimate(key, device, 1, Interval(1e3 * ms, 1e3 * ms, 1e3 * ms), 10**9)
        for (key, device), ms in times_ms.items()
    ]


def asked(deadline_s: float | None = None) -> Instance:
    """By measured times, job b belongs on the CPU: both end after 2 s."""
    jobs = (
        Job("a", "a", (1,), images=1000, deadline_s=deadline_s),
        Job("a too", "a", (1,), images=1000, deadline_s=deadline_s),
        Job("b", "b", (1,), images=1000, deadline_s=deadline_s),
    )
    return Instance(jobs, (H200, CPU))


def test_nothing_is_lost_by_true_times() -> None:
    found = outcome(asked(2.0), estimates(TIMES_MS), estimates(TIMES_MS))
    assert (found.makespan_s, found.best_s, found.regret) == pytest.approx((2.0, 2.0, 0.0))
    assert (found.late, found.refused, found.on_cpu, found.best_on_cpu) == (0, False, 1, 1)


def test_a_wrong_choice_takes_its_measured_time() -> None:
    wrong = estimates(TIMES_MS | {("a", "cpu"): 1.5})
    found = outcome(asked(2.5), wrong, estimates(TIMES_MS))
    assert (found.makespan_s, found.best_s, found.regret) == pytest.approx((3.0, 2.0, 0.5))
    assert (found.late, found.refused) == (1, False)


def test_deadlines_that_no_prediction_meets_are_left_out() -> None:
    slow = estimates({at: 2 * ms for at, ms in TIMES_MS.items()})
    found = outcome(asked(2.5), slow, estimates(TIMES_MS))
    assert (found.refused, found.late) == (True, 0)
    assert found.regret == pytest.approx(0.0)


@pytest.mark.parametrize("case", ["link", "fleet"])
def test_each_draw_needs_both_devices(case: str) -> None:
    networks = {"light": (0.2, 12.0), "heavy": (0.4, 60.0)}
    times_ms = {
        (key, device): ms for key, pair in networks.items() for device, ms in zip(("h200", "cpu"), pair, strict=True)
    }
    known = estimates(times_ms)
    draw = Random(0)
    for _ in range(2):
        found = drawn(case, draw, known)
        best = found.placed(known)
        assert {each.way.device for each in best.assigned} == {"h200", "cpu"}
        for device in found.devices:
            with pytest.raises(Refused):
                place(found.jobs, [device], [each for each in known if each.device == device.name], explain=False)


def test_a_summary_has_the_geometric_mean_and_the_worst() -> None:
    rows = [
        {"table": "placements", "case": "link", "regret": regret, "late": late, "refused": False,
         "regret_measured_cpu": regret / 21}
        for regret, late in ((0.0, 0), (0.21, 2))
    ]  # fmt: skip
    said = placement_regret.summary([*rows, {"table": "engines"}])
    assert said == (
        "link: 2 placements, regret 10.0% (geometric mean), 21.0% at most; 1 with a late job, 0 refused by "
        "predictions; with the CPU's times measured 0.5%"
    )
