"""Where buffers lie: what lives at the same time never overlaps."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from convwright.core.memory_plan import ALIGNMENT_BYTES, Buffer, aligned, plan_memory


@st.composite
def buffer_lists(draw: st.DrawFn) -> list[Buffer]:
    count = draw(st.integers(0, 12))
    made = []
    for i in range(count):
        first = draw(st.integers(0, 10))
        made.append(Buffer(f"b{i}", draw(st.integers(0, 3000)), first, first + draw(st.integers(0, 5))))
    return made


@given(buffer_lists())
def test_no_two_live_buffers_overlap(buffers: list[Buffer]) -> None:
    plan = plan_memory(buffers)
    for a, b in combinations(buffers, 2):
        if a.first <= b.last and b.first <= a.last and a.nbytes and b.nbytes:
            start_a, start_b = plan.offsets[a.name], plan.offsets[b.name]
            assert start_a + a.nbytes <= start_b or start_b + b.nbytes <= start_a


@given(buffer_lists())
def test_every_buffer_lies_aligned_inside_the_arena(buffers: list[Buffer]) -> None:
    plan = plan_memory(buffers)
    assert set(plan.offsets) == {buffer.name for buffer in buffers}
    for buffer in buffers:
        assert plan.offsets[buffer.name] % ALIGNMENT_BYTES == 0
        assert 0 <= plan.offsets[buffer.name] <= plan.nbytes - buffer.nbytes


@given(buffer_lists())
def test_the_arena_is_between_the_most_that_lives_at_once_and_the_sum(buffers: list[Buffer]) -> None:
    plan = plan_memory(buffers)
    assert plan.nbytes <= sum(aligned(buffer.nbytes) for buffer in buffers)
    for step in range(16):
        assert plan.nbytes >= sum(buffer.nbytes for buffer in buffers if buffer.first <= step <= buffer.last)


def test_buffers_that_never_meet_share_memory() -> None:
    plan = plan_memory([Buffer("a", 1000, 0, 1), Buffer("b", 900, 2, 3), Buffer("c", 10, 1, 2)])
    assert plan.offsets["a"] == plan.offsets["b"] == 0
    assert plan.offsets["c"] == 1024
    assert plan.nbytes == 1024 + 256


def test_nothing_takes_nothing() -> None:
    assert plan_memory([]).nbytes == 0
