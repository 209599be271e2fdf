"""Convolutions of any kind, for tests in the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from backends.triton_interpreted.cases import Case


def drawn_case(draw: st.DrawFn, channels: Sequence[int], outputs: Sequence[int]) -> Case:
    """Of sizes, padding, strides and dilation of any kind, and some of these channels; some in wider buffers."""
    rank = draw(st.integers(1, 3))
    taps, dilation, stride = (tuple(draw(st.integers(1, 3)) for _ in range(rank)) for _ in range(3))
    padding = tuple((draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(rank))
    reach = [(tap - 1) * apart + 1 for tap, apart in zip(taps, dilation, strict=True)]
    least_sizes = [max(1, each - sum(sides)) for each, sides in zip(reach, padding, strict=True)]
    sizes = tuple(size + draw(st.integers(0, 6)) for size in least_sizes)
    c, slack = draw(st.sampled_from(channels)), draw(st.sampled_from([0, 8]))
    x, w = (draw(st.integers(1, 5)), c, *sizes), (draw(st.sampled_from(outputs)), c, *taps)
    return Case(x, w, stride, padding, dilation, flip=draw(st.booleans()), slack=slack)
