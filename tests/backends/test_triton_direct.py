"""The kernel for few channels without a GPU: what it serves, that it compiles, and its results."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.direct.offers import ALGORITHM, MOST_STRIPS, NAME, Strip, best_strips, kernel_calls
from convwright.backends.triton.launching import launch
from convwright.backends.triton.sweep import sweep_of
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")
LAYER = ConvProblem.parse("mb2ic50ih512oc1kh3ph5dh4 ep:bias+relu")


def offered(problem: ConvProblem) -> list[Candidate]:
    offers = TritonKernels().candidates(problem, H200, Policy())
    return [each for each in offers if isinstance(each, Candidate) and each.algorithm == ALGORITHM]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g2ic16ih9oc34kh3", "or more that sum at most 64 products, got 17 that sum 72"),
        ("ic8ih9oc2kh3 dt:fp64", "computes only fp16, bf16, fp32, got fp64"),
        ("ic8ih9oc17kh3", "at most 16 output channels per group, or more that sum at most 64 products, got 17"),
        ("ic8ih99oc1kh65kw1", "at most 64 taps in a column, got 65"),
        ("ic16ih9oc8kh3sh5 dir:backward_data", "a product of the strides of at most 16, got 25"),
        ("ic17ih9oc8kh3 dir:backward_data", "got 17 that sum 72"),
        ("ic17ih9oc17kh3sh2 dir:backward_data", "got 17 that sum 68"),
        ("ic8ih9oc2kh3 dir:backward_data ep:relu+accumulate", "does not fuse relu+accumulate into backward_data"),
        ("ic8ih9oc2kh3 ep:scale", "does not fuse scale"),
        ("ic8ih9oc2kh3 tag:nhwc", "stride 1 along the width of `input`, got 8"),
        ("g2ic18ih9oc4kh3 tag:nhwc", "at most 8 input channels per group with channels last, got 9"),
        (
            "g2ic8ih9oc4kh3 tag:x=nhwc,w=nchw,y=nchw",
            "or along the channels of both, got (648, 1, 72, 8) and (196, 49, 7, 1)",
        ),
        ("mb0ic8ih9oc2kh3", "needs a batch of at least 1, got 0"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    offers = TritonKernels().candidates(ConvProblem.parse(text), H200, Policy())
    (refusal,) = (each for each in offers if each.id.startswith(NAME))
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


def test_few_candidates_are_listed_always_the_same() -> None:
    found = offered(LAYER)
    assert [each.id for each in found] == [each.id for each in offered(LAYER)]
    assert len({each.id for each in found}) == len(found) == MOST_STRIPS
    for each in found:
        assert (each.arithmetic, each.workspace_bytes, each.deterministic) == (Arithmetic.FP32, 0, True)
        assert Strip.of(each).config == each.config
    half = offered(ConvProblem.parse("mb1ic50ih512oc1kh3ph5dh4 dt:fp16"))
    assert {each.arithmetic for each in half} == {Arithmetic.FP16_ACC32}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ic1ih9oc1kh3", (1, 1)),
        ("ic1ih19oc1kh3dh4", (5, 1)),
        ("ic1ih9oc1kh3sh2", (1, 2)),
        ("ic1ih19oc1kh3sh2dh3", (2, 1)),
        ("ic1ih19oc1kh3sh2dh3 dir:backward_data", (2, 1)),
        ("ic1ih19oc1kh3sh2dh2 dir:backward_data", (3, 1)),
    ],
)
def test_rows_of_a_strip_share_what_is_read(text: str, expected: tuple[int, int]) -> None:
    assert sweep_of(ConvProblem.parse(text)).spacing == expected


def test_small_images_have_many_blocks_and_large_ones_long_strips() -> None:
    small, large = (sweep_of(ConvProblem.parse(text)) for text in ("ic64ih16oc1kh3ph1", "mb8ic64ih1024oc1kh3ph1"))
    assert best_strips(small, H200)[0].rows < best_strips(large, H200)[0].rows
    assert best_strips(small, H200)[0].blocks(small) >= 16


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("mb16ic3oc64ih224kh3ph1 dir:backward_data", 576),
        ("mb16ic1oc32ih161iw700kh5kw20sh2sw2 dir:backward_data", 960),
        ("g32mb32ic32ih112oc32kh3ph1", 9),
    ],
)
def test_of_a_long_sum_one_of_the_first_few_strips_splits_it(text: str, longest: int) -> None:
    sweep = sweep_of(ConvProblem.parse(text))
    strips = best_strips(sweep, H200)
    assert sweep.longest_sum == longest
    assert len(strips) == len(set(strips)) == MOST_STRIPS
    assert any(strip.split > 3 for strip in strips[:4]) is (longest > 9)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        ("g32mb32ic32ih112oc32kh3ph1 dt:fp16", "sm_90"),
        ("g32mb32ic32ih112oc32kh3ph1 dt:fp16", "sm_80"),
        ("mb1ic50ih512oc1kh3ph5dh4 ep:bias+relu", "sm_90"),
        ("ic9ih64oc16kh3ph1 dt:fp16", "sm_90"),
        ("ic4iw500oc3kw7pw3sw2", "sm_80"),
        ("mb2ic32id16ih56oc4kd3kh3pd1ph1 ep:bias+relu", "sm_80"),
        ("g64mb2ic64id8ih28oc64kd3kh3pd1ph1 dt:fp16 tag:nhwc", "sm_90"),
        ("ic50ih512oc1kh3ph5dh4 dir:backward_data ep:relu", "sm_90"),
        ("g32mb32ic32ih112oc32kh3ph1 dir:backward_data ep:silu dt:fp16", "sm_80"),
        ("g32mb32ic32ih112oc32kh3sh2ph1 dir:backward_data", "sm_90"),
        ("g384mb8ic384ih28oc384kh31ph15", "sm_90"),
        ("g64mb2ic64id16ih28oc64kd3kh3sd2sh2pd1ph1 dir:backward_data dt:fp16", "sm_80"),
    ],
)
def test_what_is_listed_compiles_without_spilling(text: str, architecture: str) -> None:
    for candidate in offered(ConvProblem.parse(text))[:: 8 if architecture == "sm_90" else 16]:
        compiled = kernel_calls(candidate)[0].compile(architecture)
        assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
        assert ".local" not in compiled.asm["ptx"], candidate.id


def test_each_plane_of_a_volume_is_computed_like_an_image() -> None:
    volume = sweep_of(ConvProblem.parse("mb2ic8id6ih20oc2kd3kh3pd0ph1"))
    image = sweep_of(ConvProblem.parse("mb2ic8ih20oc2kh3ph1"))
    for strip in best_strips(volume, H200):
        assert strip.blocks(volume) == 4 * strip.blocks(image), strip


def test_a_kernel_is_told_how_operands_lie() -> None:
    wide = replace(LAYER, y=replace(LAYER.y, strides=(5 * 512 * 512, 512 * 512, 512, 1), alignment=4))
    call = kernel_calls(offered(wide)[0])[0]
    assert (call.constants["Y_N"], call.pointers["y"]) == (5 * 512 * 512, ("fp32", 4))


@pytest.mark.parametrize(
    ("window", "alignment"),
    [("pw5dw4", 4), ("pw4dw3", 16), ("pw4dw4", 4), ("pw4dw3sw2", 4), ("pw2dw3", 8), ("pw4dw1", 8), ("kw1pw0", 16)],
)
def test_columns_are_read_together_where_each_tap_reads_aligned(window: str, alignment: int) -> None:
    """``dw3`` stands for a dilation of 4: one column of three that are left out."""
    call = kernel_calls(offered(ConvProblem.parse(f"ic8ih64oc1kh3ph1{window}"))[0])[0]
    assert (call.pointers["x"], call.pointers["y"]) == (("fp32", alignment), ("fp32", alignment))


def wide_instructions(problem: ConvProblem) -> set[str]:
    """Of the first candidate: those that read or write several elements of memory at once."""
    ptx = kernel_calls(offered(problem)[0])[0].compile("sm_90").asm["ptx"]
    return set(re.findall(r"(?:ld|st)\.global\.v[24]\.b32", ptx))


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("mb8ic8ih512oc1kh3ph1pw4dw3", "ld.global.v4.b32", "st.global.v4.b32"),
        ("mb8ic8ih512oc1kh3ph1", None, None),
        ("g32mb32ic32ih112oc32kh3ph1 tag:nhwc", "ld.global.v4.b32", "st.global.v4.b32"),
        ("g32mb32ic32ih112oc32kh3ph1 tag:nhwc dt:fp16", "ld.global.v2.b32", "st.global.v2.b32"),
        ("g33mb32ic33ih112oc33kh3ph1 tag:nhwc", None, None),
        ("g32mb32ic32ih112oc32kh3sh2ph1 dir:backward_data", None, "st.global.v2.b32"),
    ],
)
def test_neighbours_are_read_and_written_by_one_instruction(text: str, reads: str | None, writes: str | None) -> None:
    found = wide_instructions(ConvProblem.parse(text))
    assert {each for each in found if each.startswith("ld")} == {reads} - {None}
    assert {each for each in found if each.startswith("st")} == {writes} - {None}


def test_channels_are_split_only_where_there_are_as_many() -> None:
    for channels in 1, 2, 3, 8, 64:
        for strip in best_strips(sweep_of(ConvProblem.parse(f"ic{channels}ih16oc2kh3ph1")), H200, count=99):
            assert strip.split <= max(channels, 1)


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_direct.py")
