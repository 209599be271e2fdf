"""The weight's gradient in Triton without a GPU: what it serves, that it compiles, how it is launched, its results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.cases import listed
from backends.triton_interpreted.weight_gradient_cases import ALGORITHM, ALL_CASES, NAMES, all_tiles, gradient
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.backends.triton.parts.sums import sums_bytes
from convwright.backends.triton.weight_gradient.offers import (
    MOST_CONFIGURATIONS,
    PartedTile,
    algorithms,
    kernel_calls,
    packed_bytes,
    pitch,
    tiles,
)
from convwright.backends.triton.weight_gradient.plan import WeightGradientPlan
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.plan import Launchable
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BackendError, BadInput

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200 = profile("h200")
A100 = replace(H200, name="NVIDIA A100", architecture="sm_80", sm_count=108)
PRESENT = replace(H200, torch_name="cuda:1")
LAYER = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dir:backward_weight tag:nhwc")
SMALL = ConvProblem.parse("mb2ic64ih8oc64kh3ph1 dir:backward_weight tag:nhwc")


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    return [offer for offer in listed(ALGORITHM, problem, device) if isinstance(offer, Candidate)]


def in_dtype(problem: ConvProblem, dtype: DType) -> ConvProblem:
    return replace(problem, **{role: replace(getattr(problem, role), dtype=dtype) for role in "xwy"})


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic8ih9oc8kh3 tag:x=nchw,w=nchw,y=nhwc dt:fp16", "`input` (stride 1 along channels), got stride 81"),
        ("ic8ih9oc8kh3 tag:x=nhwc,w=nchw,y=nchw dt:fp16", "`gradient` (stride 1 along channels), got stride 49"),
        ("g4ic64ih9oc8kh3 tag:nhwc dt:fp16", "at least 8 input and 8 output channels, got 16 and 2"),
        ("g4ic8ih9oc64kh3 tag:nhwc dt:fp16", "at least 8 input and 8 output channels, got 2 and 16"),
        ("ic8ih9oc8kh3 tag:nhwc dt:fp64", "computes only fp16, bf16, fp32, got fp64"),
        ("mb0ic8ih9oc8kh3 tag:nhwc dt:fp16", "needs a batch of at least 1, got 0"),
        ("mb1ic1ih40000oc1kh1 tag:nhwc dt:fp16", "got 1,600,000,000"),
        ("ic8ih9oc8kh3 tag:nhwc dt:fp16 ep:accumulate", "does not fuse accumulate into backward_weight"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    (refusal,) = listed(ALGORITHM, ConvProblem.parse(f"{text} dir:backward_weight"), H200)
    assert isinstance(refusal, Refusal)
    assert refusal.id == "triton/weight-gradient"
    assert words in refusal.reason


@not_interpreted
def test_each_fp32_algorithm_refuses_by_its_own_name() -> None:
    offers = listed(ALGORITHM, ConvProblem.parse("g4ic8ih9oc8kh3 tag:nhwc dir:backward_weight"), H200)
    assert [offer.id for offer in offers] == [algorithm.id for algorithm in algorithms(DType.FP32)]


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16, DType.FP32])
def test_few_configurations_are_listed_always_the_same(dtype: DType, device: DeviceFacts) -> None:
    for problem in (LAYER, *(gradient(ALL_CASES[name], dtype) for name in NAMES)):
        problem = in_dtype(problem, dtype)
        found = offered(problem, device)
        assert [each.id for each in found] == [each.id for each in offered(problem, device)]
        assert len({each.id for each in found}) == len(found)
        for arithmetic in {algorithm.arithmetic for algorithm in algorithms(dtype)}:
            assert 2 <= sum(each.arithmetic is arithmetic for each in found) <= MOST_CONFIGURATIONS
        for each in found:
            tile = PartedTile.of(each)
            assert tile.config == each.config
            assert each.source is Source.RULE
            assert each.compiles
            assert each.deterministic
            packed = 8 * problem.k * pitch(problem) if each.algorithm.endswith("packed") else 0
            assert each.workspace_bytes == packed + (4 * tile.parts * problem.w.numel if tile.parts > 1 else 0)


@not_interpreted
def test_parts_fill_the_gpu_and_none_of_them_is_idle() -> None:
    pixels = 32 * 14 * 14
    for candidate in offered(LAYER):
        tile = PartedTile.of(candidate)
        steps = -(-pixels // tile.bk)
        assert tile.tiles(LAYER) * tile.parts >= 0.75 * (H200.sm_count or 0), candidate.id
        assert (tile.parts - 1) * tile.steps(pixels) < steps, candidate.id


@not_interpreted
def test_what_cannot_be_packed_says_so() -> None:
    problem = ConvProblem.parse("mb4ic16ih1024oc256kh1 dir:backward_weight tag:nhwc")
    refused = [each for each in listed(ALGORITHM, problem, H200) if isinstance(each, Refusal)]
    assert [each.id for each in refused] == ["triton/weight-gradient-3xtf32-packed"]
    assert "at most 2^30 numbers, got 2,147,483,648" in refused[0].reason


@not_interpreted
def test_long_sums_are_divided_so_that_cut_sums_do_not_drift() -> None:
    problem = ConvProblem.parse("mb64ic512ih112oc512kh1 dir:backward_weight tag:nhwc dt:fp16")
    assert all(PartedTile.of(candidate).parts * 2**15 >= 64 * 112 * 112 for candidate in offered(problem))


@not_interpreted
@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_some_take_no_workspace_where_others_have_sums_of_one_part_laid_by_a_kernel(dtype: DType) -> None:
    text = f"mb2ic512ih7oc512kh3ph1 tag:x=nhwc,w=nchw,y=nhwc dir:backward_weight dt:{dtype}"
    problem = ConvProblem.parse(text)
    for algorithm in algorithms(dtype):
        found = [candidate for candidate in offered(problem) if candidate.algorithm == algorithm.name]
        assert len(found) <= algorithm.configurations
        alone = [candidate for candidate in found if PartedTile.of(candidate).scattered]
        assert len(alone) == (not algorithm.packed)
        for candidate in found:
            sums_bytes = 0 if candidate in alone else 4 * problem.w.numel * PartedTile.of(candidate).parts
            packed = 8 * problem.k * pitch(problem) if algorithm.packed else 0
            assert candidate.workspace_bytes == packed + sums_bytes, candidate.id
            assert len(kernel_calls(candidate)) == 1 + algorithm.packed + (candidate not in alone), candidate.id


@not_interpreted
def test_an_id_tells_the_whole_configuration() -> None:
    ids = [each.id for each in offered(LAYER)]
    assert "triton/weight-gradient-3xtf32[bm=128,bn=128,bk=32,parts=7,warps=8,stages=3]" in ids


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_what_is_listed_compiles_and_fits_in_shared_memory(dtype: DType, device: DeviceFacts) -> None:
    for candidate in offered(in_dtype(LAYER, dtype), device)[:: 4 if device is H200 else 6]:
        for call in kernel_calls(candidate):
            metadata = call.compile(device.architecture).metadata
            assert metadata.shared <= shared_limit(device), candidate.id
            assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize(
    "text",
    ["g32mb32ic256ih56oc256kh3ph1 dt:fp16", "g3mb2ic60ih14oc72kh3ph1", "mb8ic64id8ih56oc64kd3kh3pd1ph1 dt:fp16"],
)
def test_what_is_listed_for_groups_and_volumes_compiles(text: str) -> None:
    for candidate in offered(ConvProblem.parse(f"{text} tag:nhwc dir:backward_weight"))[::7]:
        for call in kernel_calls(candidate):
            metadata = call.compile("sm_90").metadata
            assert metadata.shared <= shared_limit(H200), candidate.id
            assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


@not_interpreted
def test_groups_have_tiles_of_their_own_and_share_sums_and_packed_gradients() -> None:
    problem = ConvProblem.parse("g4mb2ic64ih8oc96kh3ph1 dir:backward_weight tag:nhwc")
    tile = PartedTile(64, 16, 32, 3, 4, 3)
    assert tile.tiles(problem) == 3 * 2 * 4  # of 144 taps and channels by 24 channels in each of 4 groups
    assert sums_bytes(problem, tile.parts) == 4 * 3 * problem.w.numel
    packed = next(algorithm for algorithm in algorithms(DType.FP32) if algorithm.packed)
    assert packed_bytes(problem, packed) == 2 * 4 * 96 * 128


@pytest.mark.slow
@not_interpreted
def test_the_bound_on_shared_memory_holds_and_warp_groups_multiply() -> None:
    for dtype in (DType.FP16, DType.FP32):
        problem = in_dtype(LAYER, dtype)
        for algorithm in algorithms(dtype):
            candidate = next(each for each in all_tiles(problem, 7) if each.algorithm == algorithm.name)
            compiled = kernel_calls(candidate)[-2].compile("sm_90")
            bound = tiles(algorithm)[0].shared_bytes(algorithm, dtype.nbytes)
            assert compiled.metadata.shared <= bound, candidate.id
            assert "wgmma.mma_async" in compiled.asm["ptx"], candidate.id
            assert "cp.async.cg.shared.global" in compiled.asm["ptx"], "16 bytes are loaded at once"


def built(parts: int) -> WeightGradientPlan:
    plan = BACKEND.build(all_tiles(SMALL, parts)[-1], PRESENT)
    assert isinstance(plan, WeightGradientPlan)
    assert isinstance(plan, Launchable)
    return plan


@not_interpreted
def test_a_launch_of_parts_is_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(2)
    x, dy, dw = (torch.empty(8) for _ in range(3))
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    at = workspace.data_ptr()
    plan(x, dy, out=dw, workspace=workspace)
    plan.launch(1024, 2048, 0, 0, 4096, at, 55)
    blocks = [call.blocks for call in kernel_calls(plan.candidate)]
    assert [launched.config[0] for launched in driver.launches] == blocks * 2
    assert [launched.config[7] for launched in driver.launches] == [1001, 1001, 55, 55]
    assert [launched.arguments for launched in driver.launches] == [
        [x.data_ptr(), dy.data_ptr(), at, 0, 0], [at, dw.data_ptr(), 0, 0],
        [1024, 2048, at, 0, 0], [at, 4096, 0, 0],
    ]  # fmt: skip
    with pytest.raises(BadInput, match=r"needs a workspace of 294,912 bytes, got none"):
        plan.launch(1024, 2048, 0, 0, 4096, 0, 55)


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("parts", [1, 2])
def test_a_packed_gradient_stands_ahead_of_the_sums(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    candidate = next(each for each in all_tiles(SMALL, parts)[::-1] if each.algorithm.endswith("packed"))
    plan = BACKEND.build(candidate, PRESENT)
    assert isinstance(plan, WeightGradientPlan)
    x, dy, dw = (torch.empty(8) for _ in range(3))
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    at, packed_bytes = workspace.data_ptr(), 2 * 4 * 64 * 128  # 128 pixels for each of 64 channels
    plan(x, dy, out=dw, workspace=workspace)
    sums = at + packed_bytes if parts > 1 else dw.data_ptr()
    expected = [[dy.data_ptr(), at, 0, 0], [x.data_ptr(), at, sums, 0, 0], [sums, dw.data_ptr(), 0, 0]]
    assert [launched.arguments for launched in driver.launches] == expected[: parts + 1]
    plan.launch(1024, 2048, 0, 0, 4096, at, 55)
    sums = at + packed_bytes if parts > 1 else 4096
    expected = [[2048, at, 0, 0], [1024, at, sums, 0, 0], [sums, 4096, 0, 0]]
    assert [launched.arguments for launched in driver.launches[parts + 1 :]] == expected[: parts + 1]


@not_interpreted
def test_a_launch_of_one_part_is_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(1)
    assert plan.workspace_bytes == 0
    plan.launch(1024, 2048, 0, 0, 4096, 0, 55)
    assert [launched.arguments for launched in driver.launches] == [[1024, 2048, 4096, 0, 0]]


@not_interpreted
@pytest.mark.parametrize("parts", [1, 2])
def test_a_plan_is_read_as_it_was_written(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(parts)
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, PRESENT, text)
    assert isinstance(again, WeightGradientPlan)
    assert again.text == text
    assert again.workspace_bytes == plan.workspace_bytes
    assert len(driver.loaded) == parts, "a kernel is loaded once"


@not_interpreted
def test_a_plan_of_other_kernels_than_it_needs_is_not_read() -> None:
    candidate = all_tiles(SMALL, 2)[-1]
    for text in ("", "{}", "[3]", "[]", '["{}", "{}"]'):
        with pytest.raises(BackendError, match=r"stored kernels? cannot be read"):
            BACKEND.read(candidate, PRESENT, text)


@pytest.mark.slow
@not_interpreted
def test_compiling_ahead_makes_what_building_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    FakeCudaDriver(monkeypatch)
    candidate = all_tiles(SMALL, 2)[-1]
    BACKEND.compile(candidate, PRESENT)
    made = {path.name for path in tmp_path.rglob("*.cubin")}
    assert made == {"weight_gradient.cubin", "sum_of_parts.cubin"}
    BACKEND.build(candidate, PRESENT)
    assert len(list(tmp_path.rglob("*.cubin"))) == 2


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_weight_gradient.py")
