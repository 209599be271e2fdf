"""Orders of steps: held against all that there are, on few steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.graph.step_order import Task, best_order

Case = tuple[list[Task], dict[str, int], set[str]]


def network(seed: int, count: int) -> Case:
    """Tasks that each write a buffer and read some before it; some also add to a buffer of another's, some may write
    over what they read, and some buffers are kept."""
    random = Random(seed)
    tasks, sizes = list[Task](), {f"b{number}": random.randint(0, 9) for number in range(count)}
    for number in range(count):
        after = sorted(random.sample(range(number), min(number, random.randint(0, 3))))
        read = frozenset(f"b{other}" for other in after)
        own = f"b{number}" if random.random() < 0.9 or not after else f"b{after[0]}"
        over = frozenset(buffer for buffer in read if sizes[buffer] == sizes[own] and buffer != own)
        tasks.append(Task(tuple(after), read | {own}, random.choice([0, 0, random.randint(0, 9)]), over))
    return tasks, sizes, {f"b{number}" for number in range(count) if random.random() < 0.2}


def every_order(tasks: Sequence[Task], done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if len(done) == len(tasks):
        yield done
    for number, task in enumerate(tasks):
        if number not in done and set(task.after) <= set(done):
            yield from every_order(tasks, (*done, number))


def peak(order: Sequence[int], case: Case) -> int:
    """The most bytes that live at once, buffer by buffer."""
    tasks, sizes, kept = case
    steps = {
        buffer: [step for step, number in enumerate(order) if buffer in tasks[number].uses]
        for buffer in {buffer for task in tasks for buffer in task.uses}
    }
    most = 0
    for step, number in enumerate(order):
        task = tasks[number]
        alive = {b for b, uses in steps.items() if min(uses) <= step and (b in kept or max(uses) >= step)}
        ended = [sizes[b] for b in task.overwrites - kept if max(steps[b]) == step and min(steps[b]) < step]
        most = max(most, sum(sizes[b] for b in alive) + task.workspace_bytes - max(ended, default=0))
    return most


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_no_order_keeps_less_alive(seed: int, count: int) -> None:
    case = network(seed, count)
    found = best_order(*case)
    assert sorted(found) == list(range(count))
    assert found in set(every_order(case[0]))
    assert peak(found, case) == min(peak(order, case) for order in every_order(case[0]))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 20))
def test_a_search_that_ends_early_leaves_an_order_that_is_no_worse(seed: int, patience: int) -> None:
    case = network(seed, 12)
    found = best_order(*case, patience=patience)
    assert all(set(case[0][number].after) <= set(found[:place]) for place, number in enumerate(found))
    assert peak(found, case) <= peak(range(12), case)


def test_the_given_order_stays_where_none_is_better() -> None:
    tasks = [Task((), frozenset("a")), Task((), frozenset("b")), Task((1, 0), frozenset("abc"))]
    assert best_order(tasks, {"a": 1, "b": 1, "c": 1}) == (0, 1, 2)


@pytest.mark.parametrize(("branches", "least"), [(1, 8), (2, 12), (12, 22)])
def test_hundreds_of_steps_are_ordered_soon(branches: int, least: int) -> None:
    """Branches side by side, each of which narrows at its end: one after the other is best."""
    tasks, sizes, ends = [Task((), frozenset({"x"}))], {"x": 4}, []
    for layer in range(300 // branches):
        for branch in range(branches):
            name = f"{branch} {layer}"
            before = 0 if layer == 0 else len(tasks) - branches
            read = "x" if layer == 0 else f"{branch} {layer - 1}"
            tasks.append(Task((before,), frozenset({read, name})))
            sizes[name] = 1 if layer == 300 // branches - 1 else 4
            ends += [(len(tasks) - 1, name)] if sizes[name] == 1 else []
    tasks.append(Task(tuple(number for number, _ in ends), frozenset({"y", *(name for _, name in ends)})))
    sizes["y"] = 1
    begin = perf_counter()
    found = best_order(tasks, sizes)
    assert perf_counter() - begin < 3  # at most 0.3 s where nothing else runs
    assert peak(found, (tasks, sizes, set())) == least
