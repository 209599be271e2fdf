"""Text → problem → text: stable for every problem; benchdnn's forms; what is malformed is refused in one sentence."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput
from problem_space import directions, problems


@st.composite
def any_problem(draw: st.DrawFn) -> ConvProblem:
    problem = draw(problems(dtype=draw(st.sampled_from(DType)), activations=tuple(Activation)))
    aligned = st.sampled_from([1, 2, 4, 8, 16])
    return replace(
        problem,
        x=replace(problem.x, alignment=draw(aligned)),
        w=replace(problem.w, alignment=draw(aligned)),
        y=replace(problem.y, alignment=draw(aligned)),
    )


@st.composite
def large_problems(draw: st.DrawFn) -> ConvProblem:
    """Sizes, strides and paddings far apart, on operands whose strides follow no layout."""
    rank = draw(st.integers(1, 3))

    def per_axis(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    groups, taps, dilation = draw(st.integers(1, 64)), per_axis(1, 99), per_axis(1, 40)
    padding = tuple(zip(per_axis(0, 300), per_axis(0, 300), strict=True))
    reaches = [(size - 1) * step + 1 - sum(sides) for size, step, sides in zip(taps, dilation, padding, strict=True)]
    sizes = tuple(max(1, reach) + extra for reach, extra in zip(reaches, per_axis(0, 9999), strict=True))
    x = (draw(st.integers(0, 512)), groups * draw(st.integers(1, 99)), *sizes)
    w = (groups * draw(st.integers(1, 99)), x[1] // groups, *taps)
    anyhow = st.lists(st.integers(0, 10**7), min_size=rank + 2, max_size=rank + 2).map(tuple)
    dtype, layout = draw(st.sampled_from(DType)), draw(st.sampled_from([Layout.NCHW, Layout.NHWC]))
    direction = draw(directions(dtype))
    return ConvProblem.of_specs(
        written(TensorSpec(x, dtype, draw(anyhow)), direction is Direction.BACKWARD_DATA),
        written(TensorSpec(w, dtype, draw(st.just(()) | anyhow)), direction is Direction.BACKWARD_WEIGHT),
        stride=per_axis(1, 17),
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        direction=direction,
        flip=draw(st.booleans()),
    )


def written(spec: TensorSpec, is_written: bool) -> TensorSpec:
    """What is written must not overlap itself."""
    return spec.dense(Layout.NCHW) if is_written and spec.overlaps_itself else spec


@given(large_problems())
def test_sizes_and_strides_of_any_magnitude_come_back(problem: ConvProblem) -> None:
    assert ConvProblem.parse(problem.key) == problem


@settings(max_examples=50)
@given(any_problem(), st.randoms(use_true_random=False))
def test_options_may_stand_in_any_order(problem: ConvProblem, random: Random) -> None:
    sizes, *options = problem.key.split()
    random.shuffle(options)
    assert ConvProblem.parse(" ".join([sizes, *options])) == problem


@given(any_problem())
def test_the_key_gives_the_problem_back(problem: ConvProblem) -> None:
    again = ConvProblem.parse(problem.key)
    assert again == problem
    assert again.key == problem.key == str(problem)
    assert "\n" not in problem.key


@settings(max_examples=50)
@given(any_problem(), any_problem())
def test_different_problems_have_different_keys(one: ConvProblem, other: ConvProblem) -> None:
    assert (one == other) == (one.key == other.key)


# As oneDNN's benchdnn writes them: omitted parts are inferred, dh counts from 0, mb is 1.
COMPACT = [
    ("g32mb1ic32ih112oc32oh112kh3ph1", ConvProblem.of((1, 32, 112, 112), (32, 1, 3, 3), padding=1, groups=32)),
    ("mb32ic256ih14oc256kh3ph1", ConvProblem.of((32, 256, 14, 14), (256, 256, 3, 3), padding=1)),
    ("ic3ih227oc96oh55kh11sh4", ConvProblem.of((1, 3, 227, 227), (96, 3, 11, 11), stride=4)),
    ("ic3ih224oc64oh112kh7sh2ph3", ConvProblem.of((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)),
    ("ic16ih20oc8kh3dh1ph2", ConvProblem.of((1, 16, 20, 20), (8, 16, 3, 3), padding=2, dilation=2)),
    ("ic16ih20oc8kh3dh0", ConvProblem.of((1, 16, 20, 20), (8, 16, 3, 3))),
    ("ic4ih9iw7oc4kh3kw1ph0pw2", ConvProblem.of((1, 4, 9, 7), (4, 4, 3, 1), padding=(0, 2))),
    ("ic4iw9oc4kw3", ConvProblem.of((1, 4, 9), (4, 4, 3))),
    ("ic4id5ih6iw7oc4kd1kh2kw3", ConvProblem.of((1, 4, 5, 6, 7), (4, 4, 1, 2, 3))),
    ("ic4id5oc4kd3pd1", ConvProblem.of((1, 4, 5, 5, 5), (4, 4, 3, 3, 3), padding=1)),
    ("ic4oh9oc4kh3ph1", ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), padding=1)),
    ("ic4ih9oh9oc4kh3", ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), padding=1)),
    ("mb2ic4ih9oc4kh3 dt:fp16 tag:nhwc", ConvProblem.of((2, 4, 9, 9), (4, 4, 3, 3), dtype="fp16", layout="nhwc")),
    ("mb2ic4ih9oc4kh3 ep:bias+relu", ConvProblem.of((2, 4, 9, 9), (4, 4, 3, 3), epilogue="bias+relu")),
    ("mb2ic4ih9oc4kh3 dir:backward_weight", ConvProblem.of((2, 4, 9, 9), (4, 4, 3, 3), direction="backward_weight")),
    ("ic4ih9oc4kh3 dt:int8", ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), dtype="int8")),
    ("ic4ih9oc4kh3 dt:s8:s8:f32", ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), dtype="int8", out_dtype="fp32")),
    ("ic4ih9oc4kh3 dt:s8:s8:s8", ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), dtype="int8", out_dtype="int8")),
    ("ic4ih9oc4kh3 dt:e5m2:e5m2:bf16", ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), dtype="fp8_e5m2", out_dtype="bf16")),
    ("ic4ih9oc4kh3 dt:fp16:fp16:fp16", ConvProblem.of((1, 4, 9, 9), (4, 4, 3, 3), dtype="fp16")),
    ("mb2ic4ih9oc4kh3 flip:1", ConvProblem.of((2, 4, 9, 9), (4, 4, 3, 3), flip=True)),
]


@pytest.mark.parametrize(("text", "problem"), COMPACT, ids=[text for text, _ in COMPACT])
def test_compact_forms(text: str, problem: ConvProblem) -> None:
    assert ConvProblem.parse(text) == problem


def test_the_output_size_may_tell_of_uneven_padding() -> None:
    problem = ConvProblem.parse("ic4ih6oh3oc4kh3sh2ph0")
    assert problem.padding == ((0, 1), (0, 1))
    assert problem.y.shape == (1, 4, 3, 3)


def test_a_slice_stands_in_the_key_with_its_strides_and_alignment() -> None:
    x = TensorSpec((2, 4, 5), DType.FP32, (40, 5, 1), alignment=4)
    w = TensorSpec((3, 4, 2), DType.FP32)
    problem = ConvProblem.of_specs(x, w, stride=(1,), padding=((0, 1),), dilation=(1,), layout=Layout.NHWC)
    assert problem.key == "g1mb2ic4oc3iw5ow5kw2sw1pw0dw0 dt:fp32 dir:forward tag:x=40/5/1@4,w=nchw,y=nhwc ep:none"
    assert ConvProblem.parse(problem.key) == problem


def test_keys_are_stable_across_versions() -> None:
    """The store is keyed by this text: a change of it forgets what every user has measured."""
    problem = ConvProblem.of(
        (2, 6, 9, 8), (4, 3, 3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, dtype="bf16",
        direction=Direction.BACKWARD_DATA, flip=True,
    )  # fmt: skip
    assert problem.key == (
        "g2mb2ic6oc4ih9iw8oh5ow6kh3kw2sh2sw1ph1pw0dh0dw1 dt:bf16 dir:backward_data tag:nchw ep:none flip:1"
    )


MALFORMED = [
    ("", "empty"),
    ("hello world", "hello"),
    ("mb32ic256ih14oc256kh3ph1x", "ph1x"),
    ("mb32 ic256", "'ic256'"),
    ("32x256", "'32x256'"),
    ("ic4ih9oc4kh-3", "kh-3"),
    ("ic4ih9oc4kh3zz1", "'zz'"),
    ("ic4ic4ih9oc4kh3", "'ic' stands twice"),
    ("ic2iw8oc2kw3sh2", "'sh' in 'ic2iw8oc2kw3sh2' belongs to no dimension that it has; is sw meant?"),
    ("ic2ih8oc2kh3pd1", "'pd' in 'ic2ih8oc2kh3pd1' belongs to no dimension that it has; is ph or pw meant?"),
    ("ic4oc4", "ic4oc4"),
    ("ic4ih9oc4", "kh"),
    ("ic4oc4kh3", "ih"),
    ("ih9oc4kh3", "'ic'"),
    ("ic4ih9kh3", "'oc'"),
    ("g3ic4ih9oc3kh3", "(=4)"),
    ("g0ic4ih9oc4kh3", "`g` must be at least 1, got 0"),
    ("ic4ih9oh1oc4kh3ph1", "oh1"),
    ("ic4ih9oc4kh3sh0", "0"),
    ("ic4ih2oc4kh3", "3 elements"),
    ("ic4ih9oc4kh3 dt:int4", "'int4'"),
    ("ic4ih9oc4kh3 dt:int8:int8", "dt:int8:int8:fp32"),
    ("ic4ih9oc4kh3 dt:int8:int8:fp32:fp32", "dt:int8:int8:fp32"),
    ("ic4ih9oc4kh3 dt:int8:fp32", "dt:int8:int8:fp32"),
    ("ic4ih9oc4kh3 dt:fp16:int8:fp16", "`input` and `weight` must have the same dtype, got fp16 and int8"),
    ("ic4ih9oc4kh3 dt:fp8_e4m3:fp8_e5m2:fp32", "the same dtype, got fp8_e4m3 and fp8_e5m2"),
    ("ic4ih9oc4kh3 dt:fp16:fp16:fp32", "the output of fp16 operands must be fp16, got fp32"),
    ("ic4ih9oc4kh3 dt:int8:int8:fp64", "the output of int8 operands must be fp32 or fp16 or bf16 or int8, got fp64"),
    ("ic4ih9oc4kh3 dt:fp8_e5m2:fp8_e5m2:fp8_e5m2", "must be fp32 or fp16 or bf16, got fp8_e5m2"),
    ("ic4ih9oc4kh3 dt:int8 dir:backward_data", "int8 is computed in the forward direction only, got backward_data"),
    ("ic4ih9oc4kh3 dt", "'dt'"),
    ("ic4ih9oc4kh3 dt:", "'dt:'"),
    ("ic4ih9oc4kh3 dir:sideways", "'sideways'"),
    ("ic4ih9oc4kh3 tag:hwcn", "'hwcn'"),
    ("ic4ih9oc4kh3 tag:x=nchw", "x=nchw"),
    ("ic4ih9oc4kh3 tag:x=1/2,w=nchw,y=nchw", "(1, 2)"),
    ("ic4ih9oc4kh3 tag:x=1/2/a/4,w=nchw,y=nchw", "a"),
    ("ic4ih9oc4kh3 tag:nchw@four", "four"),
    ("ic4ih9oc4kh3 tag:strided", "strided"),
    ("ic4ih9oc4kh3 tag:nchw@", "''"),
    ("ic4ih9oc4kh3 tag:nchw@3", "got 3"),
    ("ic4ih9oc4kh3 tag:nchw@\u00b2", "alignment"),
    ("ic4ih9oc4kh3 tag:x=nhwc,x=nchw,w=nchw,y=nchw", "once each"),
    ("ic4ih\u0663oc4kh3", "mb32ic256ih14oc256kh3ph1"),
    ("ic16ih-4oc32kh3", "'ih-4' in 'ic16ih-4oc32kh3' is no size"),
    ("IC8IH8OC8KH3", "'IC8' in 'IC8IH8OC8KH3' is no size with its number: sizes are in lower case"),
    ("ic8ih9Oc8kh3", "'Oc8' in 'ic8ih9Oc8kh3' is no size with its number: sizes"),
    ("ic8ih9oc8kh", "'kh' in 'ic8ih9oc8kh' is no size"),
    ("ic8ih9.5oc8kh3", "'.5' in 'ic8ih9.5oc8kh3' is no size"),
    ("8ic8ih9oc8kh3", "'8' in '8ic8ih9oc8kh3' is no size"),
    ("ic" + "9" * 5000 + "ih9oc4kh3", "at most 18 digits"),
    ("ic4ih0oc4kh3", "`ih` must be at least 1, got 0"),
    ("ic4ih9oc4kh0", "`kh` must be at least 1, got 0"),
    ("ic4ih9oc4kh3 rw:-1", "rw"),
    ("ic4ih9oc4kh3 rd:1", "'rd'"),
    ("ic4ih9oc4kh3 ep:tanh", "'tanh'"),
    ("ic4ih9oc4kh3 ep:residual dir:backward_data", "residual"),
    ("ic4ih9oc4kh3 rh:one", "one"),
    ("ic4ih9oc4kh3 flip:yes", "yes"),
    ("ic4ih9oc4kh3 dt:fp16 dt:fp32", "dt"),
    ("ic4ih9oc4kh3 colour:red", "'colour'"),
]


def test_the_padding_behind_may_stand_alone() -> None:
    problem = ConvProblem.parse("ic4ih9iw8oc4kh3 rh:1 rw:2")
    assert (problem.padding, problem.y.shape) == (((0, 1), (0, 2)), (1, 4, 8, 8))


@pytest.mark.parametrize(("text", "word"), MALFORMED, ids=[text or "empty" for text, _ in MALFORMED])
def test_what_is_malformed_is_refused_in_one_sentence(text: str, word: str) -> None:
    with pytest.raises(BadInput) as refused:
        ConvProblem.parse(text)
    assert word in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text(alphabet="gmbicohkpsdw0123456789 :=,/@-nrt", max_size=40))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    problem = parsed_or_refused(text)
    assert problem is None or ConvProblem.parse(problem.key) == problem


def parsed_or_refused(text: str) -> ConvProblem | None:
    with suppress(BadInput):
        return ConvProblem.parse(text)
    return None


@pytest.mark.parametrize("given", [5, None, b"ic8ih9oc8kh3"])
def test_only_text_is_read(given: Any) -> None:
    with pytest.raises(BadInput, match=r"a problem's text must be a str, .* got") as said:
        ConvProblem.parse(given)
    assert str(said.value).endswith(repr(given))
