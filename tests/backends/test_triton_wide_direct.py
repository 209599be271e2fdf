"""The kernel whose threads compute patches without a GPU: what it serves, that it compiles, and its results."""

from __future__ import annotations

import re

import pytest

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.launching import launch
from convwright.backends.triton.sweep import sweep_of
from convwright.backends.triton.wide_direct.offers import ALGORITHM, NAME, kernel_calls
from convwright.backends.triton.wide_direct.patches import (
    MOST_PATCHES,
    Patch,
    Reading,
    best_patches,
    columns_at_once,
    groups_at_once,
    reading,
    turns,
)
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")
DEPTHWISE = "g32mb32ic32ih112oc32kh3ph1"


def offered(problem: ConvProblem) -> list[Candidate]:
    offers = TritonKernels().candidates(problem, H200, Policy())
    return [each for each in offers if isinstance(each, Candidate) and each.algorithm == ALGORITHM]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g2ic16ih8oc34kh3", "or more that sum at most 64 products, got 17 that sum 72"),
        ("g3ic3ih8oc3kh3 dt:fp64", "computes only fp16, bf16, fp32, got fp64"),
        ("g3ic3ih8oc3kh3sh2ph1 dir:backward_data", "got strides with product 4; `direct` supports them"),
        ("g3ic3ih3iw80oc3kh1kw65", "needs at most 64 taps in a row, got 65"),
        ("g3ic3ih8iw9oc3kh3ph1", "rows with even addresses and widths, got a width of 9"),
        ("g3ic6ih8oc3kh3 tag:nhwc", "needs one channel per group with channels last, got 2 to 1"),
        ("g3ic3ih8oc6kh3 tag:nhwc", "needs one channel per group with channels last, got 1 to 2"),
        ("mb0ic8ih8oc2kh3", "needs a batch of at least 1, got 0"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    offers = TritonKernels().candidates(ConvProblem.parse(text), H200, Policy())
    (refusal,) = (each for each in offers if each.id.startswith(NAME))
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


def test_few_candidates_are_listed_always_the_same() -> None:
    found = offered(ConvProblem.parse(f"{DEPTHWISE} ep:bias+relu"))
    assert [each.id for each in found] == [each.id for each in offered(ConvProblem.parse(f"{DEPTHWISE} ep:bias+relu"))]
    assert len({each.id for each in found}) == len(found) == MOST_PATCHES
    for each in found:
        assert (each.arithmetic, each.workspace_bytes, each.deterministic) == (Arithmetic.FP32, 0, True)
        assert Patch.of(each).config == each.config
    half = offered(ConvProblem.parse(f"{DEPTHWISE} dt:fp16"))
    assert {each.arithmetic for each in half} == {Arithmetic.FP16_ACC32}


@pytest.mark.parametrize(
    ("text", "splits", "packed", "kept"),
    [
        (DEPTHWISE, {1}, {None}, {None}),
        (f"{DEPTHWISE} tag:nhwc", {1}, {None, 1}, {None}),
        ("ic50ih512oc1kh3ph5dh4", {1, 2, 4, 8}, {None}, {None}),
        ("ic2ih512oc1kh3ph1", {1, 2}, {None}, {None}),
        ("mb8ic4ih128oc16kh3ph1", {1, 2, 4}, {None}, {None, 2}),
        ("mb32ic3ih224oc64kh3ph1", {1, 2, 4}, {None}, {None, 4}),
    ],
)
def test_ways_that_differ_are_all_among_them(
    text: str, splits: set[int], packed: set[int | None], kept: set[int | None]
) -> None:
    found = best_patches(sweep_of(ConvProblem.parse(text)), H200)
    assert len(found) == MOST_PATCHES
    assert {each.split for each in found} == splits
    assert {each.packed for each in found} == packed
    assert {each.kept for each in found} >= kept
    assert bool({each.kept for each in found} - {None}) == bool(kept - {None})


def test_one_that_is_compiled_sooner_stands_behind_what_keeps_its_input() -> None:
    first, second, *_ = best_patches(sweep_of(ConvProblem.parse("mb32ic3ih224oc64kh3ph1")), H200)
    assert first.kept
    assert not second.kept


def test_a_loop_over_rows_is_among_the_first_two() -> None:
    for dtype in ("fp16", "fp32"):
        patches = [Patch.of(candidate) for candidate in offered(ConvProblem.parse(f"{DEPTHWISE} dt:{dtype} tag:nhwc"))]
        assert any(patch.rolled for patch in patches[:2])
        assert not any(Patch.of(each).rolled for each in offered(ConvProblem.parse(f"{DEPTHWISE} dt:{dtype}")))


@pytest.mark.parametrize(
    ("text", "rows", "expected"),
    [
        ("g4ic4ih28oc4kh7ph3", 28, (3, 31)),  # nothing above the image is read, and nothing below
        ("g4ic4ih28oc4kh7ph3", 14, (0, 20)),
        ("g4ic4ih28oc4kh7", 22, (0, 28)),
        ("g4ic4ih11oc4kh3ph4", 17, (2, 17)),  # rows without any tap within the image are written too
        ("g4ic4ih3oc4kh9ph4", 3, (4, 8)),
        ("g4ic4ih14oc4kh5sh2ph2", 7, (1, 8)),
        ("g4ic4ih17oc4kh3ph2dh1", 9, (0, 11)),
    ],
)
def test_only_turns_that_read_something_are_taken(text: str, rows: int, expected: tuple[int, int]) -> None:
    patch = Patch(rows, 2, 1, vector=1, rolled=1)
    assert turns(patch, sweep_of(ConvProblem.parse(f"{text} tag:nhwc"))) == expected


def test_small_images_have_many_blocks_and_large_ones_large_patches() -> None:
    small, large = (sweep_of(ConvProblem.parse(text)) for text in ("ic1ih64oc1kh3ph1", "mb64ic1ih1024oc1kh3ph1"))
    first, second = (best_patches(sweep, H200)[0] for sweep in (small, large))
    assert first.rows * first.cols < second.rows * second.cols
    assert first.blocks(small) >= 16


@pytest.mark.parametrize(
    ("window", "cols", "at_once", "expected"),
    [
        # Three taps of two columns: one ahead of them, and one behind.
        ("kw3pw1", 2, 2, Reading(((-1, 1), (0, 2), (2, 1)), ((0, 1), (1, 2), (2, 3)))),
        ("kw3pw1", 4, 4, Reading(((-1, 1), (0, 4), (4, 1)), ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5)))),
        # What two of three neighbours are read for is read with the third, if it lies between.
        ("kw7pw3", 4, 4, None),
        # Every second column, and both are read at once.
        ("kw2sw2", 2, 4, Reading(((0, 4),), ((0, 2), (1, 3)))),
        # Taps that share nothing with each other: aligned ones are read at once.
        ("kw2pw4dw3", 4, 4, Reading(((-4, 4), (0, 4)), ((0, 1, 2, 3), (4, 5, 6, 7)))),
        ("kw1", 1, 1, Reading(((0, 1),), ((0,),))),
    ],
)
def test_a_row_is_read_in_pieces(window: str, cols: int, at_once: int, expected: Reading | None) -> None:
    track = sweep_of(ConvProblem.parse(f"g2ic2iw64oc2{window}")).tracks[2]
    found = reading(track, cols, at_once)
    if expected is not None:
        assert found == expected
    read = [first + place for first, width in found.pieces for place in range(width)]
    assert len(set(read)) == len(read)
    assert all(first % width == 0 for first, width in found.pieces)
    for tap, places in enumerate(found.places):
        wanted = [col * track.stride + tap * track.dilation - track.phases[0].before for col in range(cols)]
        assert [read[place] for place in places] == wanted


@pytest.mark.parametrize(
    ("text", "columns", "groups"),
    [
        ("g8ic8ih8iw16oc8kh3ph1", 4, None),
        ("g8ic8ih8iw16oc8kh3ph1 dt:fp16", 8, None),
        ("g8ic8ih8iw18oc8kh3ph1 dt:fp16", 2, None),
        ("g8ic8ih8iw16oc8kh3ph1 dt:fp16 tag:nhwc", None, 8),
        ("g6ic6ih8iw16oc6kh3ph1 dt:fp16 tag:nhwc", None, 2),
        ("g7ic7ih8iw16oc7kh3ph1 tag:nhwc", None, 1),
    ],
)
def test_as_many_are_read_at_once_as_lie_aligned(text: str, columns: int | None, groups: int | None) -> None:
    sweep = sweep_of(ConvProblem.parse(text))
    if columns is not None:
        assert columns_at_once(sweep.read) == columns_at_once(sweep.written) == columns
    if groups is not None:
        assert groups_at_once(sweep) == groups


# And how many of those listed, beside the best loop.
COMPILED = [
    (f"{DEPTHWISE} dt:fp16", "sm_90", 1),
    ("g32mb32ic32ih56oc32kh3ph1 dt:fp16 tag:nhwc", "sm_90", 1),
    ("g192mb32ic192ih28oc192kh7ph3", "sm_90", 1),
    ("mb1ic50ih512oc1kh3ph5dh4 ep:bias+relu", "sm_90", 2),
    ("g512mb16ic512iw2048oc512kw4pw3", "sm_80", 1),
    ("mb2ic4id16ih56oc3kd3kh3pd1ph1 ep:bias+silu", "sm_90", 2),
    ("g64mb2ic64id8ih28oc64kd3kh3pd1ph1 dt:fp16 tag:nhwc dir:backward_data", "sm_80", 1),
    ("g32mb32ic32ih112oc32kh3ph1 dir:backward_data ep:silu dt:fp16", "sm_90", 1),
    ("g384mb8ic384ih28oc384kh31ph15", "sm_90", 1),
    ("mb32ic3ih224oc32kh3sh2ph1 ep:bias+relu", "sm_90", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "architecture", "count"), COMPILED)
def test_what_is_listed_compiles_without_spilling(text: str, architecture: str, count: int) -> None:
    found = offered(ConvProblem.parse(text))
    loops = [candidate for candidate in found if Patch.of(candidate).rolled and architecture == "sm_90"]
    for candidate in found[::5][:count] + loops[:1]:
        compiled = kernel_calls(candidate)[0].compile(architecture)
        assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
        assert ".local" not in compiled.asm["ptx"], candidate.id
        # Nothing moves from one thread to another, but to add up parts of sums and to exchange weights.
        patch = Patch.of(candidate)
        assert compiled.metadata.shared == 0 or patch.split > 1 or (patch.rolled and not patch.packed), candidate.id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("g192mb32ic192ih28oc192kh7ph3", {"ld.global.v4.b32"}, {"st.global.v4.b32"}),
        (f"{DEPTHWISE} dt:fp16", {"ld.global.v4.b32"}, {"st.global.v4.b32"}),
        ("g8mb8ic8ih14oc8kh3ph1", {"ld.global.v2.b32"}, {"st.global.v2.b32"}),
        (f"{DEPTHWISE} tag:nhwc dt:fp16", set(), set()),
        ("g512mb16ic512iw2048oc512kw4pw3", {"ld.global.v4.b32"}, set()),  # 2051 columns are written one by one
    ],
)
def test_neighbours_are_read_and_written_by_one_instruction(text: str, reads: set[str], writes: set[str]) -> None:
    ptx = kernel_calls(offered(ConvProblem.parse(text))[0])[0].compile("sm_90").asm["ptx"]
    found = set(re.findall(r"(?:ld|st)\.global\.v[24]\.b32", ptx))
    assert {each for each in found if each.startswith("ld")} == reads
    assert {each for each in found if each.startswith("st")} == writes


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_wide_direct.py")
