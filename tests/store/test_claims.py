"""Tasks are claimed by one worker at a time, and those of workers that are gone by another, in a file and on a server.

Seconds pass in the database alone: what a test wants to be old is made older there.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

from convwright.errors import BadInput, StoreError
from convwright.store.claims import Claims, device_lock
from convwright.store.store import Store
from forked import Program
from store.observed import DEVICE, observation

# Claims tasks one by one until there is none, and prints their names.
WORKER = """
import sys
from convwright.store.claims import Claims
from convwright.store.store import Store
place, worker = sys.argv[1:]
with Store.open(place) as store:
    claims = Claims(store, "resnets")
    claims.counts()
    print("ready", flush=True)
    sys.stdin.readline()
    while taken := claims.claim(worker, 2, 60.0):
        for name, body in taken:
            assert body == "body of " + name
            assert claims.finish(name, worker)
            print(name)
"""
HOLDER = """
import sys, time
from convwright.store.claims import device_lock
from convwright.store.store import Store
with Store.open(sys.argv[1]) as store, device_lock(store, "GPU-7"):
    print("held", flush=True)
    time.sleep(60)
"""


def first_word(process: Program) -> str:
    return process.stdout.readline().strip()


def execute(store: Store, sql: str, *values: Any) -> None:
    store.transaction(lambda connection: connection.execute(sql, values).rowcount)


def silent(store: Store, worker: str, age_s: float) -> None:
    """Let the worker's claims and its last heartbeat be older by so much."""
    execute(store, "UPDATE task SET since = since - ? WHERE worker = ?", age_s, worker)
    execute(store, "UPDATE worker SET beat = beat - ? WHERE name = ?", age_s, worker)


def counts(claims: Claims) -> dict[str, int]:
    return {state: count for state, count in claims.counts().items() if count}


def test_tasks_are_claimed_in_their_order_and_added_once(place: str) -> None:
    with Store.open(place) as store:
        claims, others = Claims(store, "resnets"), Claims(store, "others")
        assert claims.claim("a", 1, 60.0) == []
        assert claims.add({"b": "1", "a": "2"}) == 2
        assert claims.add({"c": "3", "a": "changed"}) == 1
        assert others.add({"a": "theirs"}) == 1
        assert claims.add({}) == 0
        assert claims.claim("w", 2, 60.0) == [("b", "1"), ("a", "2")]
        assert claims.claim("w", 2, 60.0) == [("c", "3")]
        assert claims.claim("w", 2, 60.0) == []
        assert counts(claims) == {"claimed": 3}
        assert others.counts() == {"open": 1, "claimed": 0, "done": 0, "failed": 0, "crashed": 0, "hung": 0}


def test_a_task_ends_once_and_with_its_observations(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        claims.add(dict.fromkeys("abcd", "{}"))
        claims.claim("w", 4, 60.0)
        assert claims.finish("a", "w", observations=[observation(1), observation(2)])
        assert claims.finish("a", "w", observations=[observation(1), observation(2)])  # the answer may have been lost
        assert not claims.finish("a", "w", "failed", observations=[observation(3)])
        assert not claims.finish("b", "another", observations=[observation(3)])
        assert store.observed(DEVICE) == 2
        for name, state in (("b", "failed"), ("c", "crashed"), ("d", "hung")):
            assert claims.finish(name, "w", state)
        assert counts(claims) == {"done": 1, "failed": 1, "crashed": 1, "hung": 1}
        assert claims.claim("w", 4, 0.0) == []


def test_what_cannot_be_is_refused(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        claims.add({"a": "{}"})
        with pytest.raises(
            BadInput, match=r"^a task's `state` must be one of done, failed, crashed, hung, got 'open'$"
        ):
            claims.finish("a", "w", "open")
        with pytest.raises(BadInput, match=r"^the campaign 'resnets' has no task 'b'$"):
            claims.finish("b", "w", observations=[observation(1)])
        with pytest.raises(BadInput, match=r"^`most` must be a whole number of at least 1, got 0$"):
            claims.claim("w", 0, 60.0)
        with pytest.raises(BadInput, match=r"^`stale_after_s` takes a finite number"):
            claims.claim("w", 1, -1.0)
        assert counts(claims) == {"open": 1}
        assert store.observed(DEVICE) == 0


def test_neither_end_nor_observations_count_where_one_fails(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        claims.add({"a": "{}"})
        claims.claim("w", 1, 60.0)
        execute(store, "ALTER TABLE observation RENAME TO hidden")
        with pytest.raises(StoreError, match="failed: "):
            claims.finish("a", "w", observations=[observation(1)])
        assert counts(claims) == {"claimed": 1}
        execute(store, "ALTER TABLE hidden RENAME TO observation")
        assert claims.finish("a", "w", observations=[observation(1)])
        assert (counts(claims), store.observed(DEVICE)) == ({"done": 1}, 1)


def test_a_claim_lasts_as_long_as_its_worker_is_heard_of(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        claims.add({"a": "{}", "b": "{}"})
        assert claims.claim("first", 1, 60.0) == [("a", "{}")]
        silent(store, "first", 100.0)
        assert claims.claim("second", 1, 60.0) == [("b", "{}")]  # what is open comes first
        claims.beat("first")
        assert claims.claim("second", 2, 60.0) == []
        silent(store, "first", 100.0)
        assert claims.claim("second", 2, 60.0) == [("a", "{}")]
        assert not claims.finish("a", "first", observations=[observation(1)])
        assert store.observed(DEVICE) == 0
        assert claims.finish("a", "second")


def test_a_new_claim_is_not_taken_from_a_worker_that_was_long_silent(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        claims.add({"a": "{}"})
        claims.beat("first")
        silent(store, "first", 100.0)
        assert claims.claim("first", 1, 60.0) == [("a", "{}")]
        assert claims.claim("second", 1, 60.0) == []


def test_a_task_that_ends_its_workers_is_tried_four_times(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        claims.add({"deadly": "{}"})
        for number in range(4):
            assert claims.claim(f"worker {number}", 1, 60.0) == [("deadly", "{}")]
            silent(store, f"worker {number}", 100.0)
        assert claims.claim("last", 1, 60.0) == []
        assert counts(claims) == {"crashed": 1}
        assert not claims.finish("deadly", "worker 3")


def test_two_workers_share_the_tasks_and_none_is_claimed_twice(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        names = [f"task {number}" for number in range(24)]
        claims.add({name: f"body of {name}" for name in names})
        workers = [Program(WORKER, place, worker) for worker in ("first", "second")]
        assert [first_word(process) for process in workers] == ["ready"] * 2
        for process in workers:
            process.stdin.write("go\n")
            process.stdin.flush()
        done = [process.communicate().splitlines() for process in workers]
        assert [process.returncode for process in workers] == [0, 0]
        assert sorted(done[0] + done[1]) == sorted(names)
        assert counts(claims) == {"done": 24}


def test_a_gpu_is_locked_until_its_process_ends(place: str) -> None:
    with Store.open(place) as store:
        process = Program(HOLDER, place)
        assert first_word(process) == "held"
        sentence = (
            f"another process that uses the store {store.place} measures on the device GPU-7: "
            "wait until it has ended, or choose another device"
        )
        with pytest.raises(StoreError) as raised, device_lock(store, "GPU-7"):
            pass
        assert str(raised.value) == sentence
        with device_lock(store, "GPU-8"):
            pass
        process.kill()
        process.communicate()
        for _ in range(100):  # the server hears of it a moment later
            with suppress(StoreError), device_lock(store, "GPU-7"):
                break
            time.sleep(0.02)
        with device_lock(store, "GPU-7"), pytest.raises(StoreError), device_lock(store, "GPU-7"):
            pass
        with device_lock(store, "GPU-7"):
            pass


def test_what_a_worker_gives_back_is_open_as_if_it_had_never_been_claimed(place: str) -> None:
    with Store.open(place) as store:
        claims = Claims(store, "resnets")
        claims.add({"a": "1", "b": "2", "c": "3"})
        claims.claim("first", 2, 60.0)
        claims.claim("second", 1, 60.0)
        assert claims.finish("a", "first")
        for _ in range(6):  # a task that ended so many workers would be given up
            assert claims.release("first") == 1
            assert claims.claim("first", 5, 60.0) == [("b", "2")]
        assert claims.release("first") == 1
        assert claims.release("first") == 0
        assert counts(claims) == {"open": 1, "claimed": 1, "done": 1}
