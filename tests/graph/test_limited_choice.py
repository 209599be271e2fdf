"""The joint choice within an amount of memory, held against all plans there are, on networks small enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice
from random import Random

import pytest

from convwright.graph.choice import ChoiceProblem, Footprint, JointChoice, Option, Place
from convwright.graph.limited_choice import Storage, least, need, within
from graph.test_joint_choice import can_be_ordered, covers, small_network

SEEDS = range(24)
# Networks that have more plans take long to solve.
_MOST_PLANS = 120


def with_memory(asked: ChoiceProblem, seed: int) -> tuple[ChoiceProblem, Storage]:
    """The problem with workspaces, outputs outside of the arena, and operands that may be written over; two values of
    the same size may lie in one buffer."""
    random = Random(seed)
    values = [f"v{place}" for place in range(-1, len(asked.nodes))]
    sizes = {value: 256 * random.randint(1, 6) for value in values}
    states = {state for option in asked.options for _, state in (*option.reads, *option.writes)}
    states |= {state for copy in asked.copies for state in (copy.source, copy.target)}
    buffers = {(value, state): f"{value}@{state}" for value in values[1:] for state in states}
    if random.random() < 0.3 and len(values) > 3:  # parts of a whole
        state, parts = random.choice(sorted(states)), random.sample(values[1:], 2)
        buffers |= {(value, state): f"whole@{state}" for value in parts}
    nbytes = {buffer: sizes.get(buffer.partition("@")[0], 1536) for buffer in buffers.values()}
    in_arena = {place for place, buffer in buffers.items() if buffer.startswith("whole")}

    def footprint(option: Option) -> Footprint:
        outside = random.random() < 0.3 and not in_arena.intersection(option.writes)
        own = buffers.get(option.writes[0])
        over = {
            place for place in option.reads
            if len(option.writes) == 1 and place in buffers and nbytes[buffers[place]] == nbytes[str(own)]
            and place not in in_arena and option.writes[0] not in in_arena and random.random() < 0.7
        }  # fmt: skip
        workspace = random.choice([0, 0, 256 * random.randint(1, 8)])
        return Footprint(workspace, outside, frozenset(over))

    options = tuple(replace(option, footprint=footprint(option)) for option in asked.options)
    outside = [random.random() < 0.2 and (copy.value, copy.target) not in in_arena for copy in asked.copies]
    copies = tuple(
        replace(copy, footprint=Footprint(outside=where)) for copy, where in zip(asked.copies, outside, strict=True)
    )
    turns = {node: place for place, node in enumerate(asked.nodes)}
    return replace(asked, options=options, copies=copies), Storage(buffers, nbytes, turns)


def all_plans(asked: ChoiceProblem) -> Iterator[JointChoice]:
    """Each exact cover, with each set of copies that brings what is read and wanted, one for each place."""
    for options in covers(frozenset(asked.nodes), asked.options):
        if not can_be_ordered(options):
            continue
        there = {*asked.given, *(place for option in options for place in option.writes)}
        needed = {*asked.wanted, *(place for option in options for place in option.reads)} - there
        possible = [copy for copy in asked.copies if (copy.value, copy.source) in there]
        for copies in combinations(possible, len(needed)):
            if {(copy.value, copy.target) for copy in copies} == needed:
                cost = sum(option.cost for option in options) + sum(copy.cost for copy in copies)
                yield JointChoice(options, copies, cost)


def bytes_alive(plan: JointChoice, asked: ChoiceProblem, storage: Storage) -> int:
    """The most in the arena and the most outside of it, found by running the plan moment by moment."""
    run: list[tuple[int, Sequence[Place], Sequence[Place], Footprint]] = [
        (storage.moment(option), option.reads, option.writes, option.footprint) for option in plan.options
    ]
    for copy in plan.copies:
        target = copy.value, copy.target
        moments = [moment - 1 for moment, reads, _, _ in run if target in reads]
        run.append((min(moments, default=storage.end), [(copy.value, copy.source)], [target], copy.footprint))
    run.append((storage.end, asked.wanted, (), Footprint()))
    used: dict[str, list[tuple[int, int, bool]]] = {}
    for moment, reads, writes, footprint in run:
        read = {storage.buffers.get(place) for place in reads}
        for place in reads:
            used.setdefault(storage.buffers.get(place, ""), []).append((moment, 1, False))
        for place in writes:
            if storage.buffers.get(place) not in read:
                used.setdefault(storage.buffers.get(place, ""), []).append((moment, 0, footprint.outside))
    peaks = [0, 0]
    for now in range(storage.end + 1):
        alive = [0, 0]
        for buffer, uses in used.items():
            made = sorted(use for use in uses if use[1] == 0)
            if buffer and made and made[0][0] <= now <= max(moment for moment, _, _ in uses):
                alive[made[0][2]] += storage.nbytes[buffer]
        for moment, _, writes, footprint in run:
            if moment == now:
                alive[0] += footprint.workspace_bytes
                dying = [
                    place for place in footprint.overwrites
                    if not footprint.outside and max(use[0] for use in used[storage.buffers[place]]) == now
                    and any(use[1] == 0 and use[0] < now for use in used[storage.buffers[place]])
                    and not min(use for use in used[storage.buffers[place]] if use[1] == 0)[2]
                ]  # fmt: skip
                alive[0] -= storage.nbytes[storage.buffers[writes[0]]] if dying else 0
        peaks = [max(pair) for pair in zip(peaks, alive, strict=True)]
    return sum(peaks)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_within_the_limit_is_cheaper_and_none_needs_less(seed: int) -> None:
    asked, storage = with_memory(small_network(seed), seed)
    every = list(islice(all_plans(asked), _MOST_PLANS + 1))
    if len(every) > _MOST_PLANS:
        pytest.skip("has too many plans")
    plans = [(bytes_alive(plan, asked, storage), plan.cost) for plan in every]
    smallest = least(asked, storage)
    if not plans:
        assert smallest is None
        return
    assert smallest is not None
    fewest = min(plans)[0]
    assert need(smallest, asked, storage).nbytes == bytes_alive(smallest, asked, storage) == fewest
    cheapest = within(asked, storage, fewest)
    assert cheapest is not None
    assert cheapest.cost == pytest.approx(min(plans)[1], abs=1e-3)
    assert within(asked, storage, fewest - 1) is None
    for limit in Random(seed).sample(sorted({nbytes for nbytes, _ in plans}), 1):
        found = within(asked, storage, limit)
        assert found is not None
        assert bytes_alive(found, asked, storage) <= limit
        assert found.cost == pytest.approx(min(cost for nbytes, cost in plans if nbytes <= limit), abs=1e-3)
