"""The kernel for few weights without a GPU: what it serves, that it compiles, how it is launched, and its results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.few_weights_cases import FEW, LAYOUTS, MIXED, all_patches, offered
from backends.triton_interpreted.weight_gradient_cases import gradient
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.few_weights.offers import (
    MOST_PATCHES,
    NAME,
    Patch,
    best_patches,
    blocks,
    kernel_calls,
    spacings,
)
from convwright.backends.triton.few_weights.plan import FewWeightsPlan
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.backends.triton.parts.sums import sum_cycles
from convwright.core.candidate import Refusal, Source
from convwright.core.dtype import Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND, H200 = TritonKernels(), profile("h200")
PRESENT = replace(H200, torch_name="cuda:1")
DEPTHWISE = ConvProblem.parse("g32mb32ic32ih112oc32kh3ph1 dir:backward_weight")
SMALL = ConvProblem.parse("g4mb2ic4ih9oc4kh3ph1 dir:backward_weight")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g2ic8ih9oc34kh3", "at most 16 output channels per group, got 17"),
        ("g8ic8ih9oc8kh3 dt:fp64", "computes only fp16, bf16, fp32, got fp64"),
        ("ic8ih29oc16kh7", "at most 400 weights per plane of an input channel, got 784"),
        ("mb0g8ic8ih9oc8kh3", "needs a batch of at least 1, got 0"),
        ("g8ic8ih9oc8kh3 ep:accumulate", "does not fuse accumulate into backward_weight"),
        ("mb1ic1ih40000oc1kh1", "got 1,600,000,000"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    offers = BACKEND.candidates(ConvProblem.parse(f"{text} dir:backward_weight"), H200, Policy())
    (refusal,) = (each for each in offers if each.id.startswith(NAME))
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16, DType.FP32])
@pytest.mark.parametrize("name", FEW)
def test_few_configurations_are_listed_always_the_same(name: str, dtype: DType) -> None:
    arithmetics = {
        DType.FP16: Arithmetic.FP16_ACC32, DType.BF16: Arithmetic.BF16_ACC32, DType.FP32: Arithmetic.FP32
    }  # fmt: skip
    for layouts in (*LAYOUTS, *MIXED):
        problem = gradient(FEW[name], dtype, Layout.NCHW, *layouts)
        found = offered(problem, H200)
        assert [each.id for each in found] == [each.id for each in offered(problem, H200)]
        assert 1 <= len({each.id for each in found}) == len(found) <= MOST_PATCHES
        for each in found:
            patch = Patch.of(each)
            assert patch.config == each.config
            assert each.workspace_bytes == (4 * patch.parts * problem.w.numel if patch.parts > 1 else 0)
            assert (each.arithmetic, each.deterministic) == (arithmetics[dtype], True)
            assert (each.source, each.compiles) == (Source.RULE, True)


@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
def test_parts_fill_the_gpu_and_none_of_them_is_idle(tag: str) -> None:
    for text in "g32mb32ic32ih112oc32kh3ph1", "g192mb32ic192ih28oc192kh7ph3", "mb1ic50ih512oc1kh3ph5dh4":
        problem = ConvProblem.parse(f"{text} dir:backward_weight tag:{tag}")
        for patch in best_patches(problem, H200):
            assert blocks(problem, patch) * patch.warps >= 4 * (H200.sm_count or 0), patch
            assert (patch.parts - 1) * patch.steps(problem) * patch.together < patch.patches(problem), patch


def test_lanes_lie_along_what_is_contiguous() -> None:
    planes = best_patches(DEPTHWISE, H200)
    assert {patch.channels for patch in planes} == {1}
    last = best_patches(DEPTHWISE.in_layout(Layout.NHWC), H200)
    assert {patch.channels for patch in last} <= {32, 64}


def test_channels_that_share_a_gradient_are_summed_together() -> None:
    problem = ConvProblem.parse("mb1ic50ih512oc1kh3ph5dh4 dir:backward_weight")
    assert best_patches(problem, H200)[0].inputs == 2
    assert best_patches(DEPTHWISE, H200)[0].inputs == 1
    groups = ConvProblem.parse("g16mb32ic64ih28oc64kh3ph1 dir:backward_weight")
    assert best_patches(groups, H200)[0].outputs == 4


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("ic1ih9oc1kh3", (1, 1), (1, 1)),
        ("ic1ih19oc1kh3dh4", (5, 1), (5, 1)),
        ("ic1ih9oc1kh3sh2sw1", (1, 2), (1, 1)),
        ("ic1ih19oc1kh3sh2dh3dw0sw2", (2, 1), (1, 2)),
    ],
)
def test_pixels_of_a_patch_share_what_is_read(text: str, rows: tuple[int, int], columns: tuple[int, int]) -> None:
    problem = ConvProblem.parse(f"{text} dir:backward_weight")
    assert spacings(problem, Patch(2, 4, 1, 32, 1)) == (rows, columns)
    assert spacings(problem, Patch(1, 1, 1, 32, 1)) == ((1, 1), (1, 1)), "a single one shares nothing"


@pytest.mark.parametrize(
    ("filter_size", "kept", "others"), [(3, (3, 3), set()), (7, (7, 4), {(7, 7)}), (31, (8, 4), {(8, 8)})]
)
def test_of_many_taps_a_thread_may_keep_half(
    filter_size: int, kept: tuple[int, int], others: set[tuple[int, int]]
) -> None:
    text = f"g192mb32ic192ih28oc192kh{filter_size}ph{filter_size // 2} tag:nhwc dt:fp16 dir:backward_weight"
    problem = ConvProblem.parse(text)
    patches = [Patch.of(each) for each in offered(problem, H200)]
    assert {kept} <= {patch.taps(problem) for patch in patches} <= {kept, *others}
    for patch in patches:
        rows, columns = patch.taps(problem)
        assert patch.tap_blocks(problem) == -(-filter_size // rows) * -(-filter_size // columns)


def test_adding_parts_costs_more_the_more_there_are() -> None:
    costs = [sum_cycles(DEPTHWISE, parts, H200) for parts in (1, 2, 40, 1000)]
    assert costs == sorted(set(costs))
    assert costs[0] == 0


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("text", "architecture", "every"),
    [
        ("g32mb32ic32ih112oc32kh3ph1", "sm_90", 4),
        ("g32mb32ic32ih112oc32kh3ph1 tag:nhwc dt:fp16", "sm_90", 4),
        ("g32mb32ic32ih112oc32kh3ph1 tag:nhwc dt:bf16", "sm_80", 8),
        ("g192mb32ic192ih28oc192kh7ph3", "sm_90", 8),
        ("g192mb32ic192ih28oc192kh7ph3 tag:nhwc dt:fp16", "sm_90", 8),
        ("g16mb32ic64ih28oc64kh3ph1 tag:nhwc", "sm_90", 4),
        ("mb1ic50ih512oc1kh3ph5dh4", "sm_90", 8),
        ("g64mb2ic64id8ih28oc64kd3kh3pd1ph1 dt:fp16", "sm_90", 8),
        ("g32mb32ic32ih112oc32kh3ph1 ep:bias+silu", "sm_90", 8),
        ("g32mb4ic32ih29oc32kh5ph2sh2 ep:bias+silu tag:nhwc", "sm_90", 4),
        ("mb2ic50ih61oc1kh3ph5dh4 ep:bias", "sm_80", 8),
        ("g64mb8ic64ih28oc64kh31ph15", "sm_90", 8),
    ],
)
def test_what_is_listed_compiles_without_spilling(text: str, architecture: str, every: int) -> None:
    problem = ConvProblem.parse(f"{text} dir:backward_weight")
    for candidate in offered(problem, H200)[:: 2 * every]:
        for call in kernel_calls(candidate):
            compiled = call.compile(architecture)
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
            assert ".local" not in compiled.asm["ptx"], candidate.id
            assert compiled.metadata.shared <= shared_limit(H200)
        first = kernel_calls(candidate)[0].compile(architecture)
        assert first.metadata.shared <= max(Patch.of(candidate).shared_bytes(problem), 16), candidate.id


def test_each_plane_of_taps_is_computed_like_one_of_an_image() -> None:
    volume = ConvProblem.parse("g8mb2ic8id6ih20oc8kd3kh3ph1 dir:backward_weight")
    image = ConvProblem.parse("g8mb8ic8ih20oc8kh3ph1 dir:backward_weight")  # as many planes of the output
    for patch in best_patches(volume, H200):
        assert blocks(volume, patch) == 3 * blocks(image, patch), patch


def test_a_thread_reads_two_neighbouring_channels_of_fp16_at_once() -> None:
    problem = ConvProblem.parse("g64mb32ic64ih56oc64kh3ph1 dir:backward_weight tag:nhwc dt:fp16")
    patch = next(patch for patch in best_patches(problem, H200, count=99) if patch.each == 2)
    candidate = next(each for each in all_patches(problem, 8) if Patch.of(each) == replace(patch, parts=8))
    ptx = kernel_calls(candidate)[0].compile("sm_90").asm["ptx"]
    assert "ld.global.b32" in ptx
    assert "ld.global.b16" not in ptx


def test_a_launch_of_parts_is_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    x, dy, dw = (torch.empty(8) for _ in range(3))
    for parts in 1, 2:
        plan = BACKEND.build(all_patches(SMALL, parts)[0], PRESENT)
        assert isinstance(plan, FewWeightsPlan)
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
        plan(x, dy, out=dw, workspace=workspace)
        at = workspace.data_ptr() if parts > 1 else dw.data_ptr()
        launched = [each.arguments for each in driver.launches]
        assert launched == [[x.data_ptr(), dy.data_ptr(), at, 0, 0], [at, dw.data_ptr(), 0, 0]][:parts]
        text = BACKEND.written(plan)
        assert text is not None
        again = BACKEND.read(plan.candidate, PRESENT, text)
        assert isinstance(again, FewWeightsPlan)
        assert again.text == text
        driver.launches.clear()


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_few_weights.py")
