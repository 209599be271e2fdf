"""Pooling: what it checks, counts and prints."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from convwright.core.dtype import Arithmetic, DType
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling, output_shape
from convwright.core.kinds.text import parse
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from kind_space import pool_problems


@given(pool_problems())
def test_its_text_is_read_back(problem: PoolProblem) -> None:
    again = parse(problem.key)
    assert again == problem
    assert again.key == problem.key


@pytest.mark.parametrize(
    ("text", "full"),
    [
        (
            "pool max mb32ic64ih112 kh3sh2ph1",
            "pool max mb32ic64ih112iw112 kh3kw3sh2sw2ph1pw1dh0dw0 dt:fp32 tag:nchw",
        ),
        ("pool avg ic8iw9 kw3 dt:float16", "pool avg mb1ic8iw9 kw3sw3pw0dw0 dt:fp16 tag:nchw"),
        ("pool max ic8id9ih8 kd3kw2dw1 tag:nhwc", "pool max mb1ic8id9ih8iw8 kd3kh3kw2sd3sh3sw2pd0ph0pw0dd0dh0dw1 "
                                                  "dt:fp32 tag:nhwc"),
        ("pool max 2x8x9x9 kh2 tag:x=nchw,y=nhwc", "pool max mb2ic8ih9iw9 kh2kw2sh2sw2ph0pw0dh0dw0 dt:fp32 "
                                                   "tag:x=nchw,y=nhwc"),
        ("pool avg ic8iw9 kw2pw1 ceil:1 include_pad:0", "pool avg mb1ic8iw9 kw2sw2pw1dw0 dt:fp32 tag:nchw "
                                                        "include_pad:0"),
        ("pool avg ic8iw9 kw2 divisor:3 ceil:1", "pool avg mb1ic8iw9 kw2sw2pw0dw0 dt:fp32 tag:nchw ceil:1 divisor:3"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_inferred(text: str, full: str) -> None:
    assert parse(text).key == full


@pytest.mark.parametrize(
    "words",
    ["ceil:1", "include_pad:0", "include_pad:1", "ceil:0"],
)
def test_problems_that_compute_the_same_are_equal(words: str) -> None:
    for text in ("pool avg ic8ih8 kh2", "pool max ic8ih8 kh2", "pool avg ic8ih9 kh3sh2ph1 divisor:5"):
        assert parse(f"{text} {words}") == parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool", "is written like pool max mb32ic64ih112 kh3sh2ph1, got 'pool'"),
        ("pool max ic8ih8", "is written like pool max mb32ic64ih112 kh3sh2ph1"),
        ("pool min ic8ih8 kh2", "the pooling must be one of max, avg, got 'min'"),
        ("pool max ic8 kh2", "has one to three sizes such as ih112 beside its channels, got 'ic8'"),
        ("pool max ic8ih8 kd2", "'kd' in 'kd2' is no size; the sizes are kh, kw, sh, sw, ph, pw, dh, dw"),
        ("pool max ic8ih8 kw2", "the window's size 'kh' is missing in 'kw2'"),
        ("pool max ic8ih8 kh2sw0", "`sw` must be at least 1, got 0"),
        ("pool max ic8ih8 kh2ph2", "padding of a pool must be at most half of the window, got 2 for 2 elements"),
        ("pool max ic8ih8 kh3dh1ph2", "at most half of the window, got 2 for 3 elements"),
        ("pool max ic8ih8 kh9", "a window that reaches 9 elements does not fit in 8 with padding 0"),
        ("pool max ic0ih8 kh2", "needs at least one channel and one element of each size, got (1, 0, 8, 8)"),
        ("pool avg ic8ih8 kh3dh1", "an average has no dilation, got (2, 2)"),
        ("pool avg ic8ih8 kh3 divisor:0", "the divisor of an average must be at least 1, got 0"),
        ("pool max ic8ih8 kh3 divisor:2", "a maximum is not divided, got the divisor 2"),
        ("pool max ic8ih8 kh3 ceil:2", "ceil must be 0 or 1, got '2'"),
        ("pool max ic8ih8 kh3 tag:x=nchw", "`tag` must name x and y once each"),
        ("pool max ic8ih8 kh3 tag:x=nchw,y=0/0/0/0", "the output must not overlap itself"),
        ("pool max ic8ih8 kh3 dt:int8", "are both stored in one of fp64, fp32, fp16, bf16, got int8 and int8"),
        ("pool max ic8ih8 kh3 ep:relu", "a pool's options are dt, tag, ceil, include_pad and divisor, got 'ep'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse(text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_sizes_must_fit() -> None:
    problem = PoolProblem.of("max", (2, 8, 9, 9), 3, stride=2, padding=1)
    assert problem.y.shape == (2, 8, 5, 5)
    with pytest.raises(BadInput, match=r"makes \(2, 8, 5, 5\) of \(2, 8, 9, 9\), got an output of \(2, 8, 9, 9\)"):
        replace(problem, y=problem.x)
    with pytest.raises(BadInput, match="`stride` of a pool has 2 entries"):
        replace(problem, stride=(2,))
    with pytest.raises(BadInput, match="`taps` of a pool must be at least 1"):
        replace(problem, taps=(0, 3))
    with pytest.raises(BadInput, match="has 3 to 5 dimensions"):
        replace(problem, x=TensorSpec((9, 9), DType.FP32))
    with pytest.raises(BadInput, match="both stored in one of"):
        replace(problem, y=TensorSpec(problem.y.shape, DType.FP16))
    with pytest.raises(BadInput, match="`window` must be an int or 2 ints"):
        PoolProblem.of("max", (2, 8, 9, 9), (3, 3, 3))
    with pytest.raises(BadInput, match="`stride` and `dilation` of a pool must be at least 1"):
        PoolProblem.of("max", (2, 8, 9, 9), 3, stride=0)
    with pytest.raises(BadInput, match="pooling must be one of max, avg"):
        PoolProblem.of("sum", (2, 8, 9, 9), 3)


def test_the_last_window_begins_in_the_image() -> None:
    window = (2,), (2,), (1,), (1,)
    assert output_shape((1, 1, 5), *window, ceil=True) == output_shape((1, 1, 5), *window) == (1, 1, 3)
    assert output_shape((1, 1, 4), *window, ceil=True) == output_shape((1, 1, 4), *window) == (1, 1, 3)
    assert output_shape((1, 1, 6), (3,), (2,), (0,), (1,), ceil=True) == (1, 1, 3)


def test_it_counts_what_lies_in_the_image() -> None:
    problem = PoolProblem.of(Pooling.AVG, (2, 3, 4), 3, stride=2, padding=1, dtype="fp16")
    assert problem.flops == 2 * 3 * (2 + 3)
    assert problem.bytes == 2 * 3 * 4 * 2 + 2 * 3 * 2 * 2
    assert PoolProblem.of("max", (2, 3, 5), 1, stride=3).bytes == 2 * 3 * (2 + 2) * 4
    assert (problem.reduction, problem.rank, [*problem.operands]) == (3, 1, ["x", "y"])


def test_a_maximum_is_exact() -> None:
    assert PoolProblem.of("max", (1, 1, 8, 8), 2).error_bound(Arithmetic.FP32) == 0
    few, many = (PoolProblem.of("avg", (1, 1, 64, 64), window) for window in (2, 64))
    assert 1 < few.error_bound(Arithmetic.FP32) < 10 < many.error_bound(Arithmetic.FP32)
    assert PoolProblem.of("avg", (1, 1, 8, 8), 2, dtype="fp16").error_bound(Arithmetic.FP32) < 1.01
