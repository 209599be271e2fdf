"""Placements are the best ones, by trying all; what is said of them is true; and what cannot be is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf

import pytest

from convwright import strict_json
from convwright.core.finding import Interval
from convwright.errors import BadInput, Refused
from convwright.placement import Device, Estimate, Job, Placement, place
from convwright.placement.placement import Margin
from placement.instances import Given, brute_force, random_instance

KINDS = {"once": (False, True), "streams": (True, False), "both": (True, True)}
SUITED = [
    *(("once", objective) for objective in ("makespan", "energy", "cost")),
    *(("streams", objective) for objective in ("latency", "energy", "cost")),
    *(("both", objective) for objective in ("makespan", "latency", "energy", "cost")),
]


def suits(given: Given, objective: str) -> bool:
    streams = {job.is_stream for job in given[0]}
    return {"latency": True, "makespan": False}.get(objective, next(iter(streams))) in streams


def holds(found: Placement) -> None:
    """Runs follow one another, deadlines are met, and nothing is busier than it can be."""
    for one, other in zip(found.runs, found.runs[1:], strict=False):
        assert one.instance != other.instance or other.start_s == pytest.approx(one.end_s)
    for run in found.runs:
        assert run.end_s <= (found[run.job].job.deadline_s or inf) * (1 + 1e-6)
    assert all(part <= 1 + 1e-6 for _, part in found.utilisation)
    assert max((run.end_s for run in found.runs), default=0.0) == pytest.approx(found.makespan_s)


@pytest.mark.parametrize(("kind", "objective"), SUITED)
def test_placements_are_the_best_of_all(kind: str, objective: str) -> None:
    tried = refused = 0
    for seed in range(10):
        streams, once = KINDS[kind]
        given = random_instance(seed, streams=streams, once=once)
        if not suits(given, objective):
            continue
        best = brute_force(given, objective)
        if best == inf:
            refused += 1
            with pytest.raises(Refused, match=r"job 'j\d'"):
                place(*given, objective, explain=False)
            continue
        found = place(*given, objective, explain=False)
        assert found.value == pytest.approx(best, rel=2e-6), seed
        assert found.proven
        assert found.bound <= best * (1 + 1e-6)
        holds(found)
        tried += 1
    assert tried >= 4


@pytest.mark.parametrize(("kind", "first", "second"), [("once", "energy", "makespan"), ("both", "cost", "energy")])
def test_limits_of_other_objectives_are_kept(kind: str, first: str, second: str) -> None:
    for seed in range(20, 26):
        streams, once = KINDS[kind]
        given = random_instance(seed, streams=streams, once=once, tight=False)
        least, at = brute_force(given, second), place(*given, first, explain=False).figure
        free = at(second)  # type: ignore[arg-type]
        assert free is not None
        limit = {second: (least + free) / 2 * (1 + 1e-5)}
        best = brute_force(given, first, limit)
        assert place(*given, first, at_most=limit, explain=False).value == pytest.approx(best, rel=2e-6), seed
        with pytest.raises(Refused, match=rf"^no placement of 'j0' and .* more has {second} at most"):
            place(*given, first, at_most={second: least / 2}, explain=False)


def is_of(estimate: Estimate, found: Placement, job: str) -> bool:
    """Whether a job runs as an estimate says."""
    way = found[job].way
    return (estimate.key, estimate.device, estimate.batch) == (job, way.device, way.batch)


def as_it_stands(given: Given, found: Placement, margin: Margin, part: float, objective: str) -> float:
    """The objective where all jobs run as they do, and one takes so many times its margin as long."""
    estimates = []
    for each in given[2]:
        if is_of(each, found, margin.job):
            value = each.time_us.value * margin.factor * part
            estimates.append(replace(each, time_us=Interval(value, value, value)))
        elif any(is_of(each, found, job.name) for job in given[0]):
            estimates.append(each)
    return brute_force((*given[:2], estimates), objective)


@pytest.mark.parametrize(("kind", "objective"), [("once", "makespan"), ("once", "energy"), ("both", "latency")])
def test_margins_are_where_the_decision_changes(kind: str, objective: str) -> None:
    """Just below it, the placement as it stands is as good as the best without the chosen way; above it is not."""
    checked = 0
    for seed in range(30, 40):
        if checked >= 6:
            break
        streams, once = KINDS[kind]
        given = random_instance(seed, streams=streams, once=once)
        if not suits(given, objective) or brute_force(given, objective) == inf:
            continue
        found = place(*given, objective)
        assert found.margins is not None
        assert [margin.job for margin in found.margins] == [job.name for job in given[0]]
        for margin in found.margins:
            if not margin.then.endswith("is better") or margin.factor > 50:
                continue
            other = brute_force(
                (*given[:2], [each for each in given[2] if not is_of(each, found, margin.job)]), objective
            )
            assert as_it_stands(given, found, margin, 0.999, objective) <= other * (1 + 1e-5) or margin.factor == 1
            if objective != "makespan":  # whose other jobs may still move to another of the equal devices
                assert as_it_stands(given, found, margin, 1.001, objective) > other
            checked += 1
    assert checked >= 6


def time(value: float, spread: float = 0.0) -> Interval:
    return Interval(value * 1e6, value * 1e6 * (1 - spread), value * 1e6 * (1 + spread))


ONCE = Job("night", "net", (1,), images=10)
CAMERA = Job("cam", "net", (1,), rate_per_s=0.6)
FAST, SLOW = Device("fast", 100), Device("slow", 100)


def test_a_margin_and_what_to_measure_by_hand() -> None:
    """10 images of 1.0 s or 1.2 s: the decision changes where the first takes 1.2 times as long."""
    estimates = [Estimate("net", "fast", 1, time(1.0, 0.1), 10), Estimate("net", "slow", 1, time(1.2, 0.25), 10)]
    found = place([ONCE], [FAST, SLOW], estimates)
    assert found.margins is not None
    assert found.margins[0].factor == pytest.approx(1.2)
    assert found.margins[0].then == "device slow with batch 1 is better"
    assert found.measure_first is not None
    assert [(each.job, each.device) for each in found.measure_first] == [("night", "slow")]
    assert found.measure_first[0].gain == pytest.approx(1.0)
    assert found.binds is not None
    assert found.binds[0].what == "device fast/0, which finishes last"


def test_what_binds_is_what_the_objective_would_be_better_without() -> None:
    estimates = [
        Estimate("net", "fast", 1, time(1.0), 10, power_w=300.0),
        Estimate("net", "slow", 1, time(2.0), 10, power_w=100.0),
    ]
    found = place([ONCE], [replace(FAST, power_cap_w=200.0), SLOW], estimates)
    assert found.binds is not None
    assert [(each.what, each.value) for each in found.binds if each.value] == [
        ("the power cap of device 'fast'", pytest.approx(10.0))
    ]
    found = place([replace(ONCE, deadline_s=12.0)], [FAST, SLOW], estimates, "energy")
    assert found.binds is not None
    assert [(each.what, each.value) for each in found.binds] == [("the deadline of job 'night'", pytest.approx(2000.0))]


def test_a_stream_takes_as_many_devices_as_its_rate_needs() -> None:
    stream = Job("camera", "net", (8,), rate_per_s=24.0)
    found = place([stream], [Device("gpu", 100, count=4)], [Estimate("net", "gpu", 8, time(0.7), 10)], "latency")
    assert len(found["camera"].instances) == 3
    assert found["camera"].way.share == pytest.approx(0.7)
    assert found.latency_s == pytest.approx(0.7 + 7 * 3 / 24)
    assert sorted(part for _, part in found.utilisation) == pytest.approx([0.0, 0.7, 0.7, 0.7])


def test_links_cost_time() -> None:
    job = replace(ONCE, source="host", bytes_in=3, bytes_out=2)
    devices = [replace(FAST, links=(("host", 1.0),)), replace(SLOW, links=(("host", 50.0),))]
    estimates = [Estimate("net", "fast", 1, time(1.0), 10), Estimate("net", "slow", 1, time(2.0), 10)]
    found = place([job], devices, estimates)
    assert (found["night"].way.device, found.makespan_s) == ("slow", pytest.approx(21.0))


@pytest.mark.parametrize(
    ("jobs", "devices", "sentence"),
    [
        (
            [replace(ONCE, key="other")],
            [FAST],
            "job 'night' runs nowhere: there is no estimate of 'other' with batch 1 on any device; give one "
            "(`estimates=`, or a table [[estimate]]), or a model to predict it (`models=`, or [[model]])",
        ),
        (
            [ONCE],
            [replace(FAST, memory_bytes=5)],
            "job 'night' needs at least 10 bytes of memory, and the largest device has 5: take a smaller "
            "batch or a larger device",
        ),
        (
            [replace(ONCE, deadline_s=4.0)],
            [FAST],
            "job 'night' takes at least 10 s, and its deadline is 4 s: allow more time, or smaller batches",
        ),
        (
            [replace(CAMERA, rate_per_s=5.0)],
            [replace(FAST, count=3)],
            "job 'cam' has 5 images/s, and all devices of a kind together run at most 3/s: lower the rate, or add "
            "devices",
        ),
        ([replace(ONCE, source="host")], [FAST], "job 'night' runs nowhere: fast: has no link to 'host'"),
        (
            [ONCE],
            [replace(FAST, power_cap_w=100.0)],
            "job 'night' runs nowhere: fast: needs 200 W where the cap is 100 W",
        ),
        (
            [replace(ONCE, name=name, deadline_s=15.0) for name in "abc"],
            [replace(FAST, count=2)],
            "job 'c' does not fit together with the 2 jobs before it: their deadlines are too short for all of them",
        ),
        (
            [replace(CAMERA, name=name, rate_per_s=0.2) for name in "ab"],
            [replace(FAST, memory_bytes=15)],
            "job 'b' does not fit together with the job before it: there is too little memory for the models of "
            "all streams",
        ),
        (
            [replace(CAMERA, name=name) for name in "ab"],
            [FAST],
            "job 'b' does not fit together with the job before it: their rates are above what all devices together run",
        ),
        (
            [ONCE, CAMERA],
            [FAST],
            "job 'cam' does not fit together with the job before it: streams and one-off jobs do not share a device, "
            "and there are too few devices",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused_with_a_reason(jobs: list[Job], devices: list[Device], sentence: str) -> None:
    with pytest.raises(Refused, match=f"^{re.escape(sentence)}$"):
        place(jobs, devices, [Estimate("net", "fast", 1, time(1.0), 10, power_w=200.0)], "energy")


ESTIMATE = Estimate("net", "fast", 1, time(1.0), 10)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([], [FAST], []), "a placement needs at least one job, got none"),
        (([ONCE, ONCE], [FAST], []), "two jobs are named 'night'"),
        (([ONCE], [FAST, FAST], []), "two devices are named 'fast'"),
        (([ONCE], [SLOW], [ESTIMATE]), "the estimate of 'net' is on device 'fast', which is not given"),
        (([ONCE], [FAST], [ESTIMATE, ESTIMATE]), "two estimates are of 'net on fast with batch 1'"),
        (([ONCE], [FAST], [], "speed"), "objective must be one of makespan, energy, latency, cost, got 'speed'"),
        (([ONCE], [FAST], [], "cost"), "cost needs the price_per_hour of every device, and device 'fast' has none"),
        (
            ([ONCE], ["h200"], [ESTIMATE]),
            "`devices` must hold a Device with its memory, such as Device(\"h200\", 141 * 10**9), got 'h200'",
        ),
        (([ONCE], "h200", [ESTIMATE]), "`devices` must be a list of Device, got 'h200'"),
        ((ONCE, [FAST], [ESTIMATE]), f"`jobs` must be a list of Job, got {ONCE!r}"),
        (
            ([ONCE], [FAST], [FAST]),
            '`estimates` must hold an Estimate, such as Estimate("net", "h200", 8, '
            f"Interval(2000.0, 1900.0, 2100.0), 10**9), got {FAST!r}",
        ),
        (([ONCE], [FAST], [], "latency"), "latency needs a stream, and no job has a rate_per_s"),
    ],
)
def test_bad_questions(arguments: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^{re.escape(sentence)}$"):
        place(*arguments)  # type: ignore[arg-type]


OTHERWISE = {
    Job: {"name": "a", "key": "k"},
    Device: {"name": "a"},
    Estimate: {"key": "k", "device": "d", "batch": 1, "memory_bytes": 1},
}


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        (Job, {"batches": (1,)}, "job 'a' needs either `images` or `rate_per_s`, got neither"),
        (Job, {"batches": (0,), "images": 1}, "`batches` of job 'a' must be whole numbers above 0, got (0,)"),
        (Job, {"batches": (1,), "images": 0.5}, "`images` of job 'a' must be a whole number above 0, got 0.5"),
        (Job, {"batches": (1,), "rate_per_s": inf}, "`rate_per_s` of job 'a' takes a finite number above 0, got inf"),
        (Device, {"memory_bytes": 0}, "`memory_bytes` of device 'a' must be a whole number above 0, got 0"),
        (
            Device,
            {"memory_bytes": 1, "links": (("h", -1.0),)},
            "the link of device 'a' to 'h' takes a finite number above 0, got -1",
        ),
        (Estimate, {"time_us": 3.0}, "`time_us` of the estimate of 'k' on device 'd' must be an Interval, got 3.0"),
    ],
)
def test_bad_data(kind: type, fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^{re.escape(sentence)}$"):
        kind(**OTHERWISE[kind] | fields)


@pytest.mark.parametrize(
    ("device", "objective", "use"),
    [
        (FAST, "energy", "the objective energy"),
        (replace(FAST, power_cap_w=300.0), "makespan", "the device's power cap"),
    ],
)
def test_who_needs_an_unknown_power_is_said(device: Device, objective: str, use: str) -> None:
    with pytest.raises(Refused, match=f"fast: {use} needs its power, which is .*: give power_w in an estimate$"):
        place([ONCE], [device], [ESTIMATE], objective)  # type: ignore[arg-type]


def test_the_text_has_readable_units_and_each_figure_once() -> None:
    estimates = [Estimate("net", "fast", 1, time(1e-3), 10, 50.0), Estimate("net", "slow", 1, time(3e-3), 10, 20.0)]
    assert str(place([ONCE, replace(CAMERA, rate_per_s=300.0)], [FAST, SLOW], estimates)).splitlines() == [
        "night: fast/0, batch 1, from 0 s to 10 ms",
        "cam: slow/0, batch 1, latency 3 ms on a free device",
        "makespan: 10 ms, proven to be the least",
        "energy 64,800.5 J, mean latency 3 ms",
        "busy: fast/0 100%, slow/0 90%",
        "limited by device fast/0, which finishes last",
        "if night takes more than 3x its estimated time, device slow with batch 1 is better",
        "if cam takes more than 1.11x its estimated time, slow/0 is too slow for its streams",
    ]


def test_a_placement_goes_to_json_and_to_text() -> None:
    given = random_instance(0, streams=False, once=True, tight=False)
    found = place(*given, "energy")
    assert strict_json.loads(strict_json.dumps(found.to_json()))["objective"] == "energy"
    assert "energy: " in str(found)
    assert all(job.name in str(found) for job in given[0])
    assert found == place(*given, "energy")
