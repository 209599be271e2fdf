"""Other sizes of images: what they check, count and print."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from convwright.core.dtype import Arithmetic, DType
from convwright.core.kinds.resize import Interpolation, ResizeProblem
from convwright.core.kinds.text import parse
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from kind_space import resize_problems


@given(resize_problems())
def test_its_text_is_read_back(problem: ResizeProblem) -> None:
    again = parse(problem.key)
    assert again == problem
    assert again.key == problem.key


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("resize nearest mb32ic64ih28 oh56", "resize nearest mb32ic64ih28iw28 oh56ow56 dt:fp32 tag:nchw"),
        ("resize linear ic8iw9 ow5 dt:half", "resize linear mb1ic8iw9 ow5 dt:fp16 tag:nchw"),
        (
            "resize linear ic8id4ih6 od8ow9 tag:x=nchw,y=nhwc align:corners scale:2",
            "resize linear mb1ic8id4ih6iw6 od8oh8ow9 dt:fp32 tag:x=nchw,y=nhwc align:corners",
        ),
        ("resize nearest ic8ih10 oh20 scale:2", "resize nearest mb1ic8ih10iw10 oh20ow20 dt:fp32 tag:nchw"),
        (
            "resize nearest 1x8x10x10 oh17ow20 scale:w=2.0,h=1.7",
            "resize nearest mb1ic8ih10iw10 oh17ow20 dt:fp32 tag:nchw",
        ),
        (
            "resize linear ic8ih10 oh17 scale:h=1.75",
            "resize linear mb1ic8ih10iw10 oh17ow17 dt:fp32 tag:nchw scale:h=1.75",
        ),
    ],
)
def test_what_is_left_out_is_inferred(text: str, full: str) -> None:
    assert parse(text).key == full


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resize", "is written like resize nearest mb32ic64ih28 oh56, nearest or linear, got 'resize'"),
        ("resize cubic ic8ih4 oh8", "nearest or linear"),
        ("resize nearest ic8 oh8", "a resize has 1 to 3 spatial dimensions, got 'ic8'"),
        ("resize nearest ic8ih4 ow8", "'oh' is missing in 'ow8'"),
        ("resize nearest ic8ih4 oc8", "'oc' in 'oc8' is no size; the sizes are oh, ow"),
        ("resize nearest ic8ih4 oh0", "at least one channel and one pixel"),
        ("resize nearest ic8ih4 oh8 align:corners", "corners are aligned where pixels are interpolated linearly"),
        ("resize linear ic8ih4 oh8 align:pixels", "`align` is written align:corners or left out, got 'pixels'"),
        ("resize linear ic8ih4 oh8 tag:x=nchw", "`tag` must name x and y once each"),
        ("resize linear ic8ih4 oh8 dt:int8", "both images of a resize are stored in one of fp64, fp32, fp16, bf16"),
        ("resize linear ic8ih4 oh8 scale:d=2", "scale is written like scale:h=1.7,w=1.7, of dimensions h, w"),
        ("resize linear ic8ih4 oh8 scale:two", "a scale is a number, got 'two'"),
        ("resize linear ic8ih4 oh8 scale:-2", "a scale is a positive number"),
        ("resize linear ic8ih4 oh8 ep:relu", "a resize's options are dt, tag, align and scale, got 'ep'"),
        ("resize linear ic8ih4 oh9 scale:1.5", "the last of 9 pixels lies beyond the 4 of the input"),
        ("resize linear ic8ih10 oh10 scale:1.05", "do not agree on 10 pixels that become 10 with scale 1.05"),
        ("resize nearest ic8ih5 oh10 scale:2.05", "do not agree on 5 pixels that become 10 with scale 2.05"),
        ("resize nearest ic8ih4 oh8 tag:x=nchw,y=0/0/0/0", "the output must not overlap itself"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse(text)
    assert words in str(raised.value)


def test_sizes_must_fit() -> None:
    x, y = TensorSpec((4, 8, 5), DType.FP32), TensorSpec((4, 8, 9), DType.FP32)
    assert ResizeProblem(x, y, Interpolation.LINEAR).sizes == ((5, 9),)
    for wrong in (replace(y, shape=(4, 7, 9), strides=()), replace(y, shape=(4, 8, 9, 9), strides=())):
        with pytest.raises(BadInput, match="keeps images and channels"):
            ResizeProblem(x, wrong, Interpolation.LINEAR)
    with pytest.raises(BadInput, match="nearest, linear, got 'cubic'"):
        ResizeProblem(x, y, "cubic")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="one for each of 1 dimensions"):
        ResizeProblem(x, y, Interpolation.LINEAR, scales=(1.8, 1.8))


def test_in_fp64_the_nearest_pixel_must_not_depend_on_rounding() -> None:
    text = "resize nearest ic1iw{} ow{} dt:fp64"
    refused = dict[tuple[int, int], str]()
    for size in range(1, 60):
        for out in range(1, 60):
            try:
                parse(text.format(size, out))
            except BadInput as error:
                refused[size, out] = str(error)
    assert 0 < len(refused) < 100
    for (size, out), said in refused.items():
        assert said == f"PyTorch's kernels do not agree on {size} pixels in fp64 that become {out}"
        assert parse(text.format(size, out).replace("fp64", "fp32")).dtype is DType.FP32


def test_steps_are_rounded_as_positions_are() -> None:
    assert ResizeProblem.parse("resize linear ic1iw3 ow9 dt:fp64").steps == (1 / 3,)
    assert ResizeProblem.parse("resize linear ic1iw3 ow9").steps == (11184811 / 2**25,)
    assert ResizeProblem.parse("resize linear ic1iw4 ow10 align:corners dt:bf16").steps == (11184811 / 2**25,)
    assert ResizeProblem.parse("resize linear ic1iw4 ow1 align:corners").steps == (0.0,)


def test_work_is_counted() -> None:
    nearest = ResizeProblem.parse("resize nearest mb2ic8ih4 oh8")
    assert (nearest.flops, nearest.reduction, nearest.bytes) == (0, 1, 4 * 2 * 8 * (16 + 64))
    linear = ResizeProblem.parse("resize linear mb2ic8ih100 oh10 dt:fp16")
    assert (linear.flops, linear.reduction, linear.bytes) == (9 * 1600, 4, 2 * 2 * 8 * (20 * 20 + 100))
    assert linear.error_bound(Arithmetic.FP32) == nearest.error_bound(Arithmetic.FP32)
