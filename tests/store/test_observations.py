"""Observations are added and never changed, in a file and on a server alike."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from convwright.errors import BadInput
from convwright.store.store import Store
from convwright.store.upkeep import Merged
from forked import Program
from store.observed import DEVICE, observation

# Adds observations of the given numbers, so many at a time, and says how many were new.
WRITER = """
import sys
from convwright.store.store import Store
from store.observed import observation
place, first, last, step = sys.argv[1], *map(int, sys.argv[2:])
with Store.open(place) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    new = 0
    for begin in range(first, last, step):
        new += store.observe(observation(number) for number in range(begin, min(begin + step, last)))
        if begin == first + step:
            print("some", flush=True)
    print(new)
"""


def writer(place: str, first: int, last: int, step: int) -> Program:
    return Program(WRITER, place, *map(str, (first, last, step)))


def numbers(store: Store) -> list[int]:
    return [int(known.created - 1e9) for known in store.observations()]


def test_they_come_back_once_however_often_they_are_added(place: str) -> None:
    made = [observation(number) for number in range(3)]
    with Store.open(place) as store:
        assert store.observe(made) == 3
        assert store.observe([*made, observation(3), observation(3)]) == 1
        assert store.observe([]) == 0
    with Store.open(place) as store:
        assert list(store.observations()) == [*made, observation(3)]
        assert (store.observed(DEVICE), store.observed("A100"), store.skipped) == (4, 0, 0)


def test_columns_say_what_the_body_says(place: str) -> None:
    with Store.open(place) as store:
        store.observe([observation(1), observation(2, failure="no kernel\x1b[2J\nat all")])
        sql = (
            "SELECT problem, kind, device, candidate, fingerprint, outcome, time_us, low_us, high_us, workspace_bytes, "
            "mode, arithmetic, max_workspace_bytes, deterministic, budget_us, created FROM observation ORDER BY created"
        )
        measured, failed = store.transaction(lambda connection: connection.execute(sql).fetchall())
        reasons = [known.reason for known in store.observations()]
    problem = observation(1).candidate.problem
    rest = ("campaign", "fp32,tf32", 1 << 20, 0, 1e6)
    what = (problem.key, "conv", DEVICE, "cudnn/gemm[knob=1]", "cudnn 9.19", "measured")
    assert tuple(measured) == (*what, 3.0, 2.5, float("inf"), 4096, *rest, 1e9 + 1)
    assert tuple(failed)[5:] == ("failed", None, None, None, None, *rest, 1e9 + 2)
    assert reasons == [None, "no kernel\\x1b[2J\nat all"]


def test_they_can_be_asked_for_by_what_they_are(place: str) -> None:
    with Store.open(place) as store:
        store.observe(observation(number, mode="quick" if number % 2 else "full") for number in range(6))
        store.observe([observation(6, device="A100"), observation(7, text='pointwise "relu(a + b)" mb1ic8ih9')])
        assert [int(each.created - 1e9) for each in store.observations(mode="quick", kind="conv")] == [1, 3, 5]
        assert [each.device for each in store.observations("A100")] == ["A100"]
        assert [each.candidate.problem.kind for each in store.observations(kind="pointwise")] == ["pointwise"]
        assert [int(each.created - 1e9) for each in store.observations(DEVICE, after=1e9 + 4)] == [5, 7]
        assert not list(store.observations(kind="copy"))


def test_many_are_read_as_they_are_needed_while_others_are_added(place: str) -> None:
    """Many of them were made at the same moment, where one page ends and the next begins."""
    with Store.open(place) as store, Store.open(place) as other:
        at_once = [observation(300, text=f"ic8ih{size}oc8kh3") for size in range(9, 309)]
        assert store.observe([*map(observation, range(200)), *at_once]) == 500
        read = store.observations()
        first = [next(read) for _ in range(260)]
        assert other.observe([observation(301), observation(5, device="A100")]) == 2
        rest = list(read)
    assert len({*first, *rest}) == len(first) + len(rest) == 501
    assert rest[-1] == observation(301)


def test_what_cannot_be_read_is_left_out_and_counted(place: str) -> None:
    with Store.open(place) as store:
        store.observe(map(observation, range(6)))
        for number, body in enumerate(("no JSON", "[]", '{"schema": "convwright observation 9"}', "{}")):
            sql = "UPDATE observation SET body = ? WHERE created = ?"
            values = (body, 1e9 + number)
            store.transaction(lambda connection, sql=sql, values=values: connection.execute(sql, values).rowcount)
        assert numbers(store) == [4, 5]
        assert store.skipped == 4


def test_two_processes_add_at_once_and_none_is_lost_or_double(place: str) -> None:
    Store.open(place).close()
    both = [writer(place, 0, 200, 20), writer(place, 100, 300, 25)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    said = [process.communicate("go\n").split() for process in both]
    assert sum(int(words[-1]) for words in said) == 300
    with Store.open(place) as store:
        assert numbers(store) == list(range(300))


def test_a_killed_client_leaves_whole_additions(place: str) -> None:
    process = writer(place, 0, 1_000_000, 50)
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "some\n"
    process.kill()
    process.communicate()
    with Store.open(place) as store:
        count = len(numbers(store))
        assert count >= 100
        assert count % 50 == 0
        assert store.observe(map(observation, range(count + 50))) in (0, 50)  # the server may have had one more
        assert numbers(store) == list(range(count + 50))


def test_export_and_import_carry_them(place: str, tmp_path: Path) -> None:
    file = tmp_path / "findings.jsonl"
    made = [*map(observation, range(3)), observation(3, failure="it said\n\tno\x07")]
    with Store.open(place) as store, Store.open(None) as other:
        store.record("problem", DEVICE, "torch/default", "1", None, "failed")
        store.observe(made)
        assert store.export(file) == 5
        assert other.load(file) == Merged(findings=1, searches=0, older=0, observations=4)
        assert list(other.observations()) == list(store.observations())
        assert other.load(file) == Merged(findings=0, searches=0, older=5)
        assert store.load(file) == Merged(findings=0, searches=0, older=5)
        assert store.observe(made) == 0


def changed(**changes: object) -> str:
    file = io.StringIO()
    with Store.open(None) as store:
        store.observe([observation(1)])
        store.export(file)
    schema, line = file.getvalue().splitlines()
    return f"{schema}\n{json.dumps({**json.loads(line), **changes})}\n"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": "convwright observation 2"}, "an observation must have the schema 'convwright observation 1'"),
        ({"more": 1}, "an observation must hold what 'convwright observation 1' holds, and nothing else"),
        ({"outcome": "failed"}, "`measurement` and `outcome` must agree, got the outcome failed"),
        ({"measurement": None}, "`measurement` and `outcome` must agree, got the outcome measured"),
        ({"measurement": {"device_us": None}}, "a measurement has a time"),
        ({"created": -1.0}, "`created` must be seconds since 1970, got -1"),
        ({"candidate": {}}, "this is no record of 'convwright observation 1'"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(changes: dict[str, object], why: str) -> None:
    with Store.open(None) as store:
        with pytest.raises(BadInput) as raised:
            store.load(io.StringIO(changed(**changes)))
        assert str(raised.value).startswith("line 2 of the file is not a line of exported findings: ")
        assert why in str(raised.value)
        assert "\n" not in str(raised.value)
        assert store.observed(DEVICE) == 0


def test_old_ones_can_be_pruned_and_all_cleared(place: str) -> None:
    with Store.open(place) as store:
        store.observe(map(observation, range(4)))
        (summary,) = store.summary().devices
        assert (summary.device, summary.findings, summary.observations) == (DEVICE, 0, 4)
        assert store.prune(0.0) == 0
        with pytest.raises(BadInput, match="`older_than_s` takes a finite number"):
            store.prune_observations(-1.0)
        assert store.observed(DEVICE) == 4
        assert store.prune_observations(time.time() - observation(2).created + 0.5) == 2
        assert numbers(store) == [2, 3]
        store.clear()
        assert store.observed(DEVICE) == 0
