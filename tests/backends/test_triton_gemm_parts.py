"""The implicit GEMM in parts, and with more stages, without a GPU: offers, compiling, launches, and its results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.gemm_parts_cases import of_parts
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import algorithm_of, algorithms_of
from convwright.backends.triton.gemm.tiles import TILES, Tile
from convwright.backends.triton.implicit_gemm.offers import KERNEL, best_tiles, kernel_calls, tiles_of
from convwright.backends.triton.implicit_gemm.plan import ImplicitGemmPlan, PartedGemmPlan, plan_class
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.plan import Launchable
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout
from convwright.errors import BackendError, BadInput

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200 = profile("h200")
A100 = replace(H200, name="NVIDIA A100", architecture="sm_80", sm_count=108)
PRESENT = replace(H200, torch_name="cuda:1")
SMALL = ConvProblem.parse("mb1ic256ih14oc256kh3ph1 dt:fp16 tag:nhwc ep:residual+bias+relu")
FEW_TILES = (
    "mb1ic256ih14oc256kh3ph1", "mb1ic512ih7oc512kh3ph1", "mb1ic1024ih14oc256kh1", "mb1ic2048ih7oc512kh1",
    "mb1ic1024ih1oc1001kh1", "mb32ic1024ih1oc1001kh1", "mb1ic128ih28oc128kh3ph1",
)  # fmt: skip
MANY_TILES = ("mb32ic64ih56oc64kh3ph1", "mb32ic64ih56oc256kh1", "mb8ic3ih224oc64kh7sh2ph3")
# Fewer, smaller tiles would each need as many steps as a part has at least.
SHORT_SUMS = ("mb1ic64ih7oc64kh1", "mb1ic16ih14oc16kh3ph1")


def layer(text: str, dtype: str = "fp16", layout: str = "nhwc") -> ConvProblem:
    return ConvProblem.parse(f"{text} dt:{dtype} tag:{layout} ep:bias+relu")


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = BACKEND.candidates(problem, device, Policy())
    return [each for each in offers if isinstance(each, Candidate) and each.algorithm.startswith("implicit-gemm")]


def parted(candidates: list[Candidate]) -> list[Candidate]:
    return [each for each in candidates if Tile.of(each).in_parts]


@not_interpreted
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("text", FEW_TILES)
def test_where_tiles_are_few_some_are_offered_in_parts_and_as_many_whole(text: str, dtype: str) -> None:
    problem = layer(text, dtype)
    found = offered(problem)
    assert [each.id for each in found] == [each.id for each in offered(problem)]
    assert len({each.id for each in found}) == len(found)
    for algorithm in algorithms_of(KERNEL, problem.dtype):
        own = [each for each in found if each.algorithm == algorithm.name]
        assert len(own) == algorithm.tiles
        assert 1 <= len(parted(own)) <= len(own) // 2, algorithm.name
        whole = {Tile.of(each) for each in own if not Tile.of(each).in_parts}
        ranked = best_tiles(problem, algorithm.arithmetic, H200, split=algorithm.split, count=99)
        first = next(tile for tile in ranked if tile in TILES[algorithm.arithmetic])
        assert first in whole, "the best of those that compute their sums whole"


@not_interpreted
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("text", FEW_TILES)
def test_parts_fill_the_gpu_once_or_twice_and_each_has_steps(text: str, dtype: str) -> None:
    problem = layer(text, dtype)
    sms = H200.sm_count or 0
    for candidate in parted(offered(problem)):
        tile = Tile.of(candidate)
        parts, taps = tile.parts or 0, problem.taps[0] * problem.taps[1]
        each, steps = tile.steps_each(problem.c, taps), tile.steps(problem.c, taps)
        assert each >= 4, candidate.id
        assert (parts - 1) * each < steps <= parts * each, candidate.id
        assert tiles_of(tile, problem) * parts <= 2 * sms, candidate.id
        assert candidate.workspace_bytes == 4 * parts * problem.y.numel <= 2**26, candidate.id
        assert candidate.id.endswith(f",parts={parts}]")
        assert candidate.source is Source.RULE
        assert candidate.compiles
        assert candidate.deterministic


@not_interpreted
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("text", [*MANY_TILES, *SHORT_SUMS])
def test_none_are_offered_in_parts_where_tiles_are_many_or_sums_short(text: str, dtype: str) -> None:
    found = offered(layer(text, dtype))
    assert found
    assert not parted(found)
    assert all(each.workspace_bytes == 0 and "parts" not in each.id for each in found)


@not_interpreted
def test_sums_of_parts_stay_within_what_a_workspace_may_take() -> None:
    """Each of 3 multiprocessors might have 22 parts, whose sums would take 69 MB."""
    few = replace(H200, sm_count=6000)
    for candidate in offered(layer("mb1ic4096ih56oc256kh3ph1"), few):
        assert (candidate.workspace_bytes or 0) <= 2**26


def test_an_id_names_parts_only_where_there_are_some() -> None:
    tile = Tile(64, 64, 64, 4, 4)
    assert tile.config == (("bm", 64), ("bn", 64), ("bk", 64), ("warps", 4), ("stages", 4))
    assert replace(tile, parts=8).config == (*tile.config, ("parts", 8))
    (whole,) = of_parts(SMALL, 1, (tile,))
    (eight,) = of_parts(SMALL, 8, (tile,))
    assert eight.id == "triton/implicit-gemm[bm=64,bn=64,bk=64,warps=4,stages=4,parts=8]"
    assert Tile.of(eight) == replace(tile, parts=8)
    assert plan_class(eight) is PartedGemmPlan
    assert plan_class(whole) is ImplicitGemmPlan
    assert whole.workspace_bytes == 0


# More stages.


@not_interpreted
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
def test_a_tile_alone_on_its_multiprocessor_is_offered_with_more_stages(dtype: str, device: DeviceFacts) -> None:
    problem = layer("mb32ic1024ih7oc1001kh1", dtype)
    found = {Tile.of(each) for each in offered(problem, device) if not Tile.of(each).in_parts}
    deeper = [tile for tile in found if any(replace(tile, stages=fewer) in found for fewer in range(1, tile.stages))]
    assert deeper
    for tile in deeper:
        assert tile.stages <= 6
        assert tile.shared_bytes(problem.dtype.nbytes, split=False) <= shared_limit(device)
        assert tiles_of(tile, problem) <= (device.sm_count or 0)


@not_interpreted
def test_no_stages_are_added_where_other_blocks_wait() -> None:
    for text in MANY_TILES:
        known = set(TILES[Arithmetic.FP16_ACC32])
        assert {Tile.of(each) for each in offered(layer(text))} <= known


# Compiling.


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize(("dtype", "layout"), [("fp16", "nhwc"), ("fp32", "nhwc"), ("fp16", "nchw")])
def test_what_is_listed_compiles_and_fits_in_shared_memory(dtype: str, layout: str, device: DeviceFacts) -> None:
    problem = layer("mb1ic256ih14oc256kh3ph1", dtype, layout)
    known = {tile for tiles in TILES.values() for tile in tiles}
    added = [each for each in offered(problem, device) if Tile.of(each) not in known]
    for candidate in added[:: 2 if device is H200 and dtype == "fp16" else 4]:
        bound = Tile.of(candidate).shared_bytes(problem.dtype.nbytes, split=algorithm_of(candidate, KERNEL).split)
        product, *more = [call.compile(device.architecture) for call in kernel_calls(candidate)]
        assert product.metadata.shared <= bound <= shared_limit(device), candidate.id
        for compiled in (product, *more):
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
        assert all(".local" not in compiled.asm["ptx"] for compiled in more), candidate.id


@pytest.mark.slow
@not_interpreted
def test_the_bound_on_shared_memory_holds_with_six_stages() -> None:
    for tile, parts in ((Tile(128, 128, 64, 8, 6), 1), (Tile(64, 64, 64, 4, 6), 5)):
        (candidate,) = of_parts(layer("mb1ic256ih28oc256kh3ph1"), parts, (tile,))
        metadata = kernel_calls(candidate)[0].compile("sm_90").metadata
        assert metadata.shared <= tile.shared_bytes(2, split=False) <= shared_limit(H200), candidate.id


@not_interpreted
def test_sums_of_parts_are_written_and_read_by_16_bytes() -> None:
    (candidate,) = of_parts(SMALL, 8, (Tile(64, 64, 64, 4, 4),))
    product, total = (call.compile("sm_90").asm["ptx"] for call in kernel_calls(candidate))
    assert "wgmma.mma_async" in product
    assert "st.global.v4.b32" in product
    assert "ld.global.v4.b32" in total


@not_interpreted
def test_compiling_ahead_makes_what_building_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    FakeCudaDriver(monkeypatch)
    candidate = of_parts(SMALL, 3)[0]
    BACKEND.compile(candidate, PRESENT)
    made = {path.name for path in tmp_path.rglob("*.cubin")}
    assert made == {"implicit_gemm.cubin", "output_of_parts.cubin"}
    BACKEND.build(candidate, PRESENT)
    assert len(list(tmp_path.rglob("*.cubin"))) == 2


# Launches.


def built() -> PartedGemmPlan:
    plan = BACKEND.build(of_parts(SMALL, 3)[0], PRESENT)
    assert isinstance(plan, PartedGemmPlan)
    assert isinstance(plan, Launchable)
    return plan


@not_interpreted
def test_a_launch_of_parts_is_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built()
    x, w, bias, residual, y = (torch.empty(8) for _ in range(5))
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    at = workspace.data_ptr()
    plan(x, w, bias, residual, y, workspace)
    plan.launch(1024, 2048, 3072, 4096, 5120, at, 55)
    product, total = kernel_calls(plan.candidate)
    assert product.blocks == 3 * 13 * 8  # 196 pixels in tiles of 16, 256 channels in tiles of 32
    assert [launched.config[0] for launched in driver.launches] == [product.blocks, total.blocks] * 2
    assert [launched.config[7] for launched in driver.launches] == [1001, 1001, 55, 55]
    added, made = bias.data_ptr(), y.data_ptr()
    assert [launched.arguments for launched in driver.launches] == [
        [x.data_ptr(), w.data_ptr(), added, residual.data_ptr(), at, 0, 0],
        [at, added, residual.data_ptr(), made, 0, 0],
        [1024, 2048, 3072, 4096, at, 0, 0],
        [at, 3072, 4096, 5120, 0, 0],
    ]
    with pytest.raises(BadInput, match=r"needs a workspace of 602,112 bytes, got none"):
        plan.launch(1024, 2048, 3072, 4096, 5120, 0, 55)
    with pytest.raises(BadInput, match="got residual"):
        plan.launch(1024, 2048, 0, 4096, 5120, at, 55)


@not_interpreted
def test_a_plan_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built()
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, PRESENT, text)
    assert isinstance(again, PartedGemmPlan)
    assert again.text == text
    assert again.workspace_bytes == plan.workspace_bytes == 602_112
    assert len(driver.loaded) == 2, "a kernel is loaded once"


@not_interpreted
def test_a_plan_of_other_kernels_than_it_needs_is_not_read() -> None:
    for text in ("", "{}", "[3]", '["{}"]', '["{}", "{}"]'):
        with pytest.raises(BackendError, match=r"stored kernels? cannot be read"):
            BACKEND.read(of_parts(SMALL, 3)[0], PRESENT, text)


def test_the_product_of_a_part_knows_nothing_of_the_epilogue() -> None:
    """So that layers which differ in it alone share a compiled kernel."""
    planes = replace(SMALL, y=SMALL.y.dense(Layout.NCHW))
    product, total = kernel_calls(of_parts(planes, 3)[0])
    plain, _ = kernel_calls(of_parts(layer("mb1ic256ih14oc256kh3ph1"), 3)[0])
    assert product.constants == plain.constants
    assert product.pointers["y"] == ("fp32", 16)
    assert total.constants["Y_PLANES"]
    assert (total.constants["BIAS"], total.constants["RESIDUAL"], total.constants["ACTIVATION"]) == (True, True, "relu")


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_gemm_parts.py")
