"""Products with band matrices without a GPU: what they serve, that they compile, launches, and their results."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import convwright as cw
from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.banded_gemm_cases import ALGORITHM, SERVED, every_tile, offered
from backends.triton_interpreted.cases import listed
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.banded_gemm.offers import MOST_TILES, Tile, candidate_of, forward_of, together
from convwright.backends.triton.banded_gemm.plan import BandedGemmPlan
from convwright.backends.triton.launching import launch
from convwright.core.candidate import Refusal, Source
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200, A100 = profile("h200"), profile("a100")
PRESENT = replace(H200, torch_name="cuda:1")
LARGE = ConvProblem.parse("g128mb8ic128ih56oc128kh31ph15 dt:fp16 ep:bias+relu")
LAYERS = (
    "g96mb32ic96ih56oc96kh7ph3", "g128mb8ic128ih56oc128kh31ph15 ep:bias+relu", "g96mb16ic96ih55oc192kh51kw5ph25pw2",
    "g96mb16ic96ih56oc96kh5kw51ph2pw25", "g256mb16ic256iw4096oc256kw64pw63", "g64mb2ic64ih224oc64kh9ph4sh2",
)  # fmt: skip


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g32mb2ic32ih28oc32kh5ph2", "needs at least 36 taps, got 25"),
        ("g16mb2ic32ih28oc32kh7ph3", "needs one input channel per group, got 2"),
        ("g32mb2ic32ih28oc32kh7ph3 tag:nhwc", "needs stride 1 along the width of `input`, got 32"),
        ("g32mb2ic32id9ih9oc32kd7kh7pd3ph3", "needs 1 or 2 spatial dimensions, got 3"),
        ("g32mb0ic32ih28oc32kh7ph3", "needs a batch of at least 1, got 0"),
        ("g32mb2ic32ih28oc32kh7ph3 ep:accumulate", "does not fuse accumulate"),
        ("g32mb2ic32iw999oc32kw300", "supports only fewer taps"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    (offer,) = listed(ALGORITHM, ConvProblem.parse(f"{text} dt:fp16"), H200)
    assert isinstance(offer, Refusal)
    assert words in offer.reason


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g32mb2ic32ih28oc32kh7ph3", "computes only fp16, bf16, got fp32"),
        ("g32mb2ic32ih28oc64kh7ph3 dt:fp16 dir:backward_data", "one output channel per group for a gradient, got 2"),
        ("g32mb2ic32ih28oc32kh7ph3sh2 dt:fp16 dir:backward_data", "stride (2, 2): between the elements of dy"),
        ("g32mb2ic32ih28oc32kh7ph9 dt:fp16 dir:backward_data", "reaches further than the filter"),
        ("g32mb2ic32ih28oc32kh7ph3 dt:fp16 dir:backward_data ep:relu", "does not fuse relu"),
    ],
)
def test_other_dtypes_and_some_gradients_of_inputs_are_refused(text: str, words: str) -> None:
    (offer,) = listed(ALGORITHM, ConvProblem.parse(text), H200)
    assert isinstance(offer, Refusal)
    assert words in offer.reason


@not_interpreted
def test_gradients_of_weights_know_nothing_of_it() -> None:
    assert not listed(ALGORITHM, ConvProblem.parse("g32mb2ic32ih28oc32kh7ph3 dt:fp16 dir:backward_weight"), H200)


@not_interpreted
def test_the_gradient_of_an_input_is_a_convolution_with_the_mirrored_taps() -> None:
    problem = ConvProblem.parse("g8mb2ic8ih16iw20oc8kh7kw9ph2pw5 dt:fp16 dir:backward_data")
    forward = forward_of(problem)
    assert (forward.direction, forward.flip) == (Direction.FORWARD, True)
    assert forward.padding == ((4, 4), (3, 3))
    assert (forward.x, forward.y, forward.w) == (problem.y, problem.x, problem.w)
    assert forward_of(forward) is forward


@not_interpreted
@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16])
@pytest.mark.parametrize("text", LAYERS)
def test_few_tiles_are_listed_always_the_same(text: str, dtype: DType) -> None:
    problem = ConvProblem.parse(f"{text} dt:{dtype}")
    found = offered(problem, H200)
    assert [each.id for each in found] == [each.id for each in offered(problem, H200)]
    assert 3 <= len({each.id for each in found}) == len(found) <= MOST_TILES
    for each in found:
        tile = Tile.of(each)
        assert tile.config == each.config
        assert each.arithmetic is (Arithmetic.BF16_ACC32 if dtype is DType.BF16 else Arithmetic.FP16_ACC32)
        assert (each.workspace_bytes, each.deterministic, each.compiles) == (0, True, True)
        assert each.source is Source.RULE
        assert tile.bp * tile.bq <= tile.bn
        assert tile.bn == 64 or 2 * tile.bp * tile.bq > tile.bn


@pytest.mark.parametrize(
    ("text", "numbers", "zeros"),
    [
        ("g8mb2ic8ih16oc8kh7ph3", 8, 5),
        ("g8mb2ic8ih15iw28oc8kh7ph3", 4, 1),
        ("g8mb2ic8ih15iw14oc8kh7ph2", 2, 0),
        ("g8mb2ic8ih15oc8kh7ph3", 1, 0),
        ("g8mb1ic8iw64oc8kw40pw20", 8, 4),
    ],
)
def test_rows_are_read_from_where_many_numbers_can_be_read_at_once(text: str, numbers: int, zeros: int) -> None:
    problem = ConvProblem.parse(f"{text} dt:fp16")
    assert (together(problem), Tile(64, 64, 8, 8, 4, 1).before(problem)) == (numbers, zeros)


def test_a_block_as_wide_as_the_output_reads_whole_rows_and_no_zeros_beside_them() -> None:
    tile = Tile(bm=128, bn=128, bp=4, bq=32, warps=4, stages=3)
    narrow = ConvProblem.parse("g64mb8ic64ih28oc64kh31ph15 dt:fp16")
    assert (tile.columns(narrow), tile.before(narrow)) == (32, -15)
    assert (tile.columns(LARGE), tile.before(LARGE)) == (64, 1)  # two blocks side by side
    small = ConvProblem.parse("g64mb8ic64ih28oc64kh3kw19ph1pw9 dt:fp16")
    few = Tile(bm=128, bn=64, bp=8, bq=8, warps=4, stages=3)
    assert (few.columns(small), few.before(small)) == (32, 3)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        # Of 31 + 3 rows those above the image for the first, those below it for the last, both in the middle.
        ("g64mb128ic64ih28oc64kh31ph15", [19, 23, 27, 28, 27, 23, 19]),
        ("g64mb32ic64ih28oc64kh31ph15", [31, 27]),
        ("g64mb1ic64ih28oc64kh31ph15", [34]),
        ("g64mb128ic64ih98oc64kh31", [34] * 51),
        ("g64mb128ic64iw98oc64kw37", [1] * 2),
    ],
)
def test_rows_outside_the_image_are_left_out(text: str, steps: list[int]) -> None:
    tile = Tile(bm=128, bn=128, bp=4, bq=32, warps=4, stages=3)
    problem = ConvProblem.parse(f"{text} dt:fp16")
    assert tile.steps(problem) == steps
    assert tile.products(problem) == 64 * 128 * 128 * tile.columns(problem) * sum(steps)


def test_bands_hold_each_row_of_taps_for_each_row_of_a_tile() -> None:
    tile = Tile(bm=128, bn=128, bp=4, bq=32, warps=4, stages=3)
    assert (tile.rows(LARGE), tile.columns(LARGE)) == (34, 64)
    assert (tile.first(LARGE), tile.bands(LARGE)) == (3, 37)
    assert tile.packed_bytes(LARGE) == 128 * 37 * 32 * 64 * 2
    assert tile.blocks(LARGE) == 8 * 14 * 2


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize(("text", "architecture"), [*((each, "sm_90") for each in LAYERS), (LAYERS[1], "sm_80")])
def test_what_is_listed_compiles_without_spilling(text: str, architecture: str) -> None:
    device = H200 if architecture == "sm_90" else A100
    problem = ConvProblem.parse(f"{text} dt:fp16")
    for candidate in offered(problem, device)[::8]:
        products, laid = (call.compile(architecture) for call in kernel_calls(candidate))
        assert products.metadata.shared <= Tile.of(candidate).shared_bytes(problem), candidate.id
        for compiled in (products, laid):
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
            # Outputs that are written one by one have an address each, behind the sums.
            if together(problem) > 1:
                assert not re.findall(r"\bSTL\b", compiled.asm["sass"]), candidate.id
        if architecture == "sm_90":
            assert "wgmma.mma_async" in products.asm["ptx"], candidate.id


@not_interpreted
def test_a_single_row_is_no_loop_with_stages() -> None:
    """Which would take three times the shared memory, and leave a multiprocessor two blocks of seven."""
    problem, tile = ConvProblem.parse("g256mb16ic256iw4096oc256kw64pw63 dt:fp16"), Tile(64, 64, 1, 64, 4, 3)
    products, _ = kernel_calls(candidate_of(problem, tile))
    assert products.compile("sm_90").metadata.shared <= replace(tile, stages=1).shared_bytes(problem)


@pytest.mark.slow
@not_interpreted
def test_a_launch_multiplies_by_bands_that_are_laid_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    candidate = offered(LARGE, H200)[0]
    plan = BACKEND.build(candidate, PRESENT)
    assert isinstance(plan, BandedGemmPlan)
    x, bias, y = (torch.empty(8, dtype=torch.float16) for _ in range(3))
    packed = plan.prepare(torch.empty(128, 1, 31, 31, dtype=torch.float16))
    assert packed.numel() == Tile.of(candidate).packed_bytes(LARGE)
    assert plan(x, packed, bias, out=y) is y
    plan.launch(1024, 2048, 512, 0, 4096, 0, 55)
    laid, multiplied, again = driver.launches
    products, bands = kernel_calls(candidate)
    assert [each.config[0] for each in driver.launches] == [bands.blocks, products.blocks, products.blocks]
    assert laid.arguments[1] == packed.data_ptr()
    assert multiplied.arguments[:5] == [x.data_ptr(), packed.data_ptr(), bias.data_ptr(), 0, y.data_ptr()]
    assert again.arguments[:5] == [1024, 2048, 512, 0, 4096]


def test_what_lies_with_channels_last_reaches_it_by_a_rewrite() -> None:
    for direction in ("forward", "backward_data"):
        text = f"g32mb2ic32ih28oc32kh13ph6 dt:fp16 tag:nhwc dir:{direction}"
        found = cw.find(text, device="h200", mode="heuristic")
        assert any("relayout(nchw, triton/banded-gemm" in each.finding.candidate.id for each in found.verdicts)


@pytest.mark.parametrize("name", SERVED)
def test_every_tile_of_each_case_is_filled_by_more_than_half(name: str) -> None:
    problem = SERVED[name].problem(DType.FP16, Layout.NCHW, Layout.NCHW)
    tiles = [Tile.of(each) for each in every_tile(problem)]
    assert tiles
    for tile in tiles:
        assert tile.columns(problem) >= tile.bq


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_banded_gemm.py")
