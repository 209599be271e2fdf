"""The kernels that sum up taps first without a GPU: what they serve, that they compile, and their results."""

from __future__ import annotations

import re

import pytest

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.launching import launch
from convwright.backends.triton.sweep import sweep_of
from convwright.backends.triton.taps_first.offers import (
    ALGORITHM,
    MOST_TILES,
    NAME,
    Rows,
    Tile,
    best_tiles,
    candidate_of,
    kernel_calls,
)
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")
LAYER = "ic50ih512oc1kh3ph5dh4"


def offered(problem: ConvProblem) -> list[Candidate]:
    offers = TritonKernels().candidates(problem, H200, Policy())
    return [each for each in offers if isinstance(each, Candidate) and each.algorithm == ALGORITHM]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic64ih8oc4kh3", "needs at most 32 taps times output channels per group, got 36"),
        ("g2ic32ih8oc8kh3", "needs at most 32 taps times output channels per group, got 36"),
        ("ic7ih8oc1kh3", "needs at least 8 input channels per group, got 7"),
        ("ic1ih8oc7kh3ph1 dir:backward_data", "needs at least 8 input channels per group, got 7"),
        ("ic1ih8oc9kh3sh2ph1 dir:backward_data", "needs stride 1 for an input gradient, got (2, 2)"),
        ("mb8ic16oc32ih1kh3sh2ph1 dir:backward_data", "needs stride 1 for an input gradient, got (2, 2)"),
        ("ic9ih8oc1kh3 tag:nhwc", "needs stride 1 along the width of the operand that is read, got 9"),
        ("ic9ih8oc1kh3 dt:fp64", "computes only fp16, bf16, fp32, got fp64"),
        ("ic9iw9000oc1kw3dw2499", "needs a narrower row of taps, got 5001 columns"),
        ("mb0ic8ih8oc2kh3", "needs a batch of at least 1, got 0"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    offers = TritonKernels().candidates(ConvProblem.parse(text), H200, Policy())
    (refusal,) = (each for each in offers if each.id.startswith(NAME))
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


def test_few_candidates_are_listed_always_the_same() -> None:
    found = offered(ConvProblem.parse(f"{LAYER} ep:bias+relu"))
    assert [each.id for each in found] == [each.id for each in offered(ConvProblem.parse(f"{LAYER} ep:bias+relu"))]
    assert len({each.id for each in found}) == len(found) == MOST_TILES
    for each in found:
        assert (each.arithmetic, each.deterministic) == (Arithmetic.FP32, True)
        assert each.workspace_bytes == Tile.of(each).parts * 3 * 512 * 512 * 4  # for each row of taps
        assert Tile.of(each).config == each.config
    half = offered(ConvProblem.parse(f"{LAYER} dt:fp16"))
    assert {each.arithmetic for each in half} == {Arithmetic.FP16_ACC32}


def test_images_of_few_pixels_are_divided_along_their_channels() -> None:
    small, large = (sweep_of(ConvProblem.parse(text)) for text in ("mb4ic256ih64oc1kh3ph1", "ic50ih512oc1kh3ph1"))
    assert best_tiles(small, H200)[0].parts > 1
    assert best_tiles(large, H200)[0].parts == 1


@pytest.mark.parametrize(
    ("text", "block", "expected"),
    [
        ("ic8iw100oc1kw3pw1", 128, Rows(128, 100, 0)),
        ("ic8iw100oc1kw9pw20", 256, Rows(256, 132, 0)),
        ("ic8iw16oc1kw3pw1", 128, Rows(16, 16, 0)),
        # Of a wider row the columns ahead of a block's first output are read from a multiple of 16 on.
        ("ic8iw1000oc1kw3pw1", 128, Rows(128, 96, 16)),
        ("ic8iw100oc1kw9pw20", 128, Rows(128, 96, 32)),
        ("ic8iw1000oc1kw3", 128, Rows(128, 112, 0)),
        ("ic8iw1000oc1kw3sw2pw1", 256, Rows(256, 112, 16)),
    ],
)
def test_rows_of_a_block(text: str, block: int, expected: Rows) -> None:
    tile = Tile(block // 32, 1, 2, 1)
    assert tile.block == block
    assert Rows.of(tile, sweep_of(ConvProblem.parse(text))) == expected


COMPILED = [
    (f"{LAYER} ep:bias+relu", "sm_90", 2),
    (f"{LAYER} dt:fp16", "sm_90", 1),
    (f"{LAYER} dt:bf16 ep:silu", "sm_80", 1),
    ("mb4ic256ih64oc1kh3ph1", "sm_90", 1),
    ("mb2ic64id32ih64oc1kd3kh3pd1ph1", "sm_90", 1),
    ("ic3mb2oc64ih56kh3ph1 dir:backward_data", "sm_90", 1),
    ("g2ic2mb2oc64ih56kh5ph2 dir:backward_data ep:silu dt:fp16", "sm_90", 1),
    ("mb2ic64iw16000oc1kw25pw12", "sm_80", 1),
]


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(("text", "architecture", "count"), COMPILED)
def test_what_is_listed_compiles_without_spilling(text: str, architecture: str, count: int) -> None:
    for candidate in offered(ConvProblem.parse(text))[:count]:
        for call in kernel_calls(candidate):
            compiled = call.compile(architecture)
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
            assert ".local" not in compiled.asm["ptx"], candidate.id


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("text", "pixels", "expected"),
    [(LAYER, 4, "ld.global.v4.b32"), (f"{LAYER} dt:fp16", 8, "ld.global.v4.b32"), ("ic50ih511oc1kh3", 4, None)],
)
def test_neighbours_are_read_by_one_instruction(text: str, pixels: int, expected: str | None) -> None:
    sums, _ = kernel_calls(candidate_of(ConvProblem.parse(text), Tile(pixels, 4, 4, 1)))
    found = set(re.findall(r"ld\.global\.v[24]\.b32", sums.compile("sm_90").asm["ptx"]))
    assert found == ({expected} if expected else set())


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_taps_first.py")
