"""The staged weight's gradient without a GPU: what it serves, that it compiles, how it is launched, and its results."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.cases import CASES, GROUPED, VOLUMES, WIDE_GROUPS, listed
from backends.triton_interpreted.staged_weight_gradient_cases import ALGORITHM, NAMES, SERVED, all_tiles
from backends.triton_interpreted.weight_gradient_cases import gradient
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.backends.triton.operands import pixel_count
from convwright.backends.triton.parts.sums import sums_bytes
from convwright.backends.triton.staged_weight_gradient.offers import (
    SCALED,
    SPLIT,
    StagedTile,
    algorithm_of,
    staged_bytes,
    staged_gradient,
    staged_input,
)
from convwright.backends.triton.staged_weight_gradient.plan import StagedWeightGradientPlan
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.limits import limits
from convwright.core.plan import Launchable
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BackendError, BadInput

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200, A100 = profile("h200"), profile("a100")
PRESENT = replace(H200, torch_name="cuda:1")
LAYER = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dir:backward_weight tag:nhwc")
SMALL = ConvProblem.parse("mb2ic64ih8oc64kh3ph1 dir:backward_weight tag:nhwc")
LAYERS = (
    "mb32ic256ih14oc256kh3ph1 tag:nhwc", "mb1ic256ih14oc256kh3ph1", "mb32ic64ih56oc256kh1", "mb8ic16ih56oc17kh3",
    "g2mb8ic128id8ih28oc128kd3kh3pd1ph1 tag:nhwc", "g4mb16ic64iw2000oc64kw5sw2pw2",
)  # fmt: skip


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = listed(ALGORITHM, problem, device)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found == offers, offers
    return found


# What is served.


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mb8ic64ih14oc64kh3ph1 dt:fp16", "computes only fp32, got fp16"),
        ("mb8ic64ih14oc64kh3ph1 dt:fp64", "computes only fp32, got fp64"),
        ("mb8ic64ih14oc64kh3ph1 ep:accumulate", "does not fuse accumulate into backward_weight"),
        ("mb8ic64ih14oc64kh3ph1 ep:bias", "does not fuse"),
        ("mb0ic64ih14oc64kh3ph1", "needs a batch of at least 1, got 0"),
        ("mb8ic15ih14oc64kh3ph1", "needs at least 16 input and 16 output channels, got 15 and 64"),
        ("mb8ic64ih14oc15kh3ph1", "needs at least 16 input and 16 output channels, got 64 and 15"),
        ("g4mb8ic60ih14oc64kh3ph1", "needs groups with at least 16 input and 16 output channels, got 15 and 16"),
        ("g4mb8ic64ih14oc60kh3ph1", "needs groups with at least 16 input and 16 output channels, got 16 and 15"),
        ("mb256ic256ih128oc64kh1", "needs staged operands of at most 2^30 numbers, got 2,147,483,648"),
        ("mb256ic64ih128oc256kh1", "needs staged operands of at most 2^30 numbers, got 2,147,483,648"),
        ("mb2200ic16ih1000oc16oh1kh1sh1000", "needs at most 2^30 input pixels, got 2,200,000,000"),
        ("mb1ic16384ih14oc8192kh3ph1", "needs at most 2^30 weights, got 1,207,959,552"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    offers = listed(ALGORITHM, ConvProblem.parse(f"{text} tag:nhwc dir:backward_weight"), H200)
    assert [offer.id for offer in offers] == [f"triton/{name}" for name in NAMES]
    for refusal in offers:
        assert isinstance(refusal, Refusal)
        assert words in refusal.reason


@not_interpreted
@pytest.mark.parametrize(("role", "name"), [("x", "input"), ("y", "gradient")])
def test_an_operand_without_neighbours_is_refused(role: str, name: str) -> None:
    spec: TensorSpec = getattr(LAYER, role)
    apart = replace(spec, strides=tuple(2 * stride for stride in spec.strides), alignment=8)
    for refusal in listed(ALGORITHM, replace(LAYER, **{role: apart}), H200):
        assert isinstance(refusal, Refusal)
        assert f"along the channels or the width of `{name}`, got strides" in refusal.reason


@not_interpreted
def test_fewer_channels_are_refused_and_all_else_is_served() -> None:
    for case in (*SERVED.values(), *CASES.values(), *VOLUMES.values(), *GROUPED.values(), *WIDE_GROUPS.values()):
        plain = replace(case, epilogue="none")
        enough = min(case.w[1], case.w[0] // case.groups) >= 16
        for offer in listed(ALGORITHM, gradient(plain, DType.FP32), H200):
            assert isinstance(offer, Candidate) == enough, case


def test_other_directions_know_nothing_of_it() -> None:
    for direction in ("forward", "backward_data"):
        assert not listed(ALGORITHM, ConvProblem.parse(f"mb64ic256ih14oc256kh3ph1 dir:{direction}"), H200)


@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("text", LAYERS)
def test_few_candidates_are_listed_always_the_same(text: str, device: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dir:backward_weight")
    found = offered(problem, device)
    assert [each.id for each in found] == [each.id for each in offered(problem, device)]
    assert len({each.id for each in found}) == len(found)
    for name, arithmetic in zip(NAMES, (Arithmetic.FP16X3, Arithmetic.SCALED_FP16), strict=True):
        of_name = [each for each in found if each.algorithm == name]
        assert 2 <= len(of_name) <= MOST_TILES
        assert all(each.arithmetic is arithmetic for each in of_name)
    for each in found:
        tile, algorithm = StagedTile.of(each), algorithm_of(each)
        assert tile.config == each.config
        assert tile.shared_bytes(algorithm) <= shared_limit(device)
        assert each.source is Source.RULE
        assert each.compiles
        assert each.deterministic
        assert not each.saves_products
        assert each.workspace_bytes == staged_bytes(problem, algorithm) + sums_bytes(problem, tile.parts)


@not_interpreted
def test_an_id_tells_the_whole_configuration() -> None:
    ids = [each.id for each in offered(LAYER)]
    told = r"\[bm=\d+,bn=\d+,bk=64,parts=\d+,warps=\d+,stages=\d+\]"
    assert all(re.fullmatch(rf"triton/{ALGORITHM}-(3xfp16|scaled-fp16){told}", each) for each in ids)


@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
def test_parts_fill_the_gpu_and_none_of_them_is_idle(device: DeviceFacts) -> None:
    for candidate in offered(LAYER, device):
        tile = StagedTile.of(candidate)
        steps = -(-pixel_count(LAYER) // tile.bk)
        assert (tile.parts - 1) * tile.steps(LAYER) < steps, candidate.id
    best = [StagedTile.of(next(each for each in offered(LAYER, device) if each.algorithm == name)) for name in NAMES]
    assert all(tile.tiles(LAYER) * tile.parts >= 0.5 * (device.sm_count or 0) for tile in best)


@not_interpreted
def test_parts_fill_the_last_round_too() -> None:
    """In one part 72 blocks would leave half of the multiprocessors idle, and in two parts half of a second round."""
    problem = ConvProblem.parse("mb16ic256ih28oc512kh3ph1 dir:backward_weight")
    best, sms = (
        StagedTile.of(next(each for each in offered(problem) if each.algorithm == SPLIT.name)),
        H200.sm_count or 0,
    )
    assert (best.bm, best.bn, best.tiles(problem)) == (128, 128, 72)
    assert 72 * best.parts / (-(-72 * best.parts // sms) * sms) > 0.9


@not_interpreted
def test_long_sums_of_one_product_are_divided_so_that_cut_sums_do_not_drift() -> None:
    problem = ConvProblem.parse("mb64ic64ih112oc64kh1 dir:backward_weight tag:nhwc")
    for candidate in offered(problem):
        if candidate.algorithm == SCALED.name:
            assert StagedTile.of(candidate).parts * 2**15 >= pixel_count(problem), candidate.id


@not_interpreted
def test_its_limits_are_three_products_and_one_at_the_rate_of_fp16() -> None:
    peak = H200.peak(Arithmetic.FP16_ACC32)
    assert peak is not None
    for candidate in offered(LAYER):
        products = 3 if candidate.algorithm == SPLIT.name else 1
        assert limits(candidate, H200).arithmetic_us == pytest.approx(products * LAYER.flops / peak)


@pytest.mark.parametrize(
    ("text", "pixels", "channels"),
    [
        ("mb32ic256ih14oc256kh3ph1", ((32, 1, 16, 16), 32 * 14 * 14), (256, 256)),
        ("mb2ic70ih14iw9oc17kh1sh3sw2", ((2, 1, 13, 9), 128), (128, 64)),  # what no tap reads is left out
        ("g2mb1ic96ih7oc130kh3dh1ph2sh2", ((1, 1, 11, 11), 128), (128, 256)),
        ("mb3ic64iw20oc16kw4sw4", ((3, 1, 1, 20), 128), (64, 64)),
        ("mb1ic16id4ih6iw5oc16kd2kh3kw1pd1ph1pw0", ((1, 6, 8, 5), 256), (64, 64)),
    ],
)
def test_what_is_staged_is_what_taps_read_in_blocks_of_channels(
    text: str, pixels: tuple[tuple[int, ...], int], channels: tuple[int, int]
) -> None:
    problem = ConvProblem.parse(f"{text} tag:nhwc dir:backward_weight")
    for algorithm, each in ((SPLIT, 2), (SCALED, 1)):
        x, dy = staged_input(problem, algorithm), staged_gradient(problem, algorithm)
        assert (x.pixels, dy.pixels) == (prod(pixels[0]), pixels[1])
        assert (x.channels, dy.channels) == channels
        assert x.begins == 0
        assert dy.begins == x.ends, "one behind the other"
        for staged in (x, dy):
            assert staged.numbers == each * staged.pixels * staged.channels
            assert staged.scales_at * 4 >= staged.begins + 2 * staged.numbers
            assert staged.ends >= 4 * (staged.scales_at + (1 + staged.chunks) * staged.channels)
            assert staged.begins % 256 == staged.ends % 256 == 0, "what is read 16 bytes at once is aligned"
        assert staged_bytes(problem, algorithm) % 256 == 0, "sums of parts follow, which are written by 16 bytes"


def test_what_kernels_are_told_is_what_compiled_ones_are_known_by() -> None:
    """Triton keeps them by the text of what they are told."""
    staged = staged_input(LAYER, SPLIT)
    told = ("numbers_at", "scales_at", "searchers", "stagers", "chunks_at_once")
    assert all(f"{name}={getattr(staged, name)}" in repr(staged) for name in told)


# Compiling.


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize(
    ("device", "places"), [(H200, (0, -6)), (A100, (-2,))], ids=lambda each: getattr(each, "architecture", "")
)
def test_tiles_compile_without_spilling_and_fit_in_shared_memory(device: DeviceFacts, places: tuple[int, ...]) -> None:
    for candidate in [all_tiles(LAYER, 7)[place] for place in places]:
        tile, algorithm = StagedTile.of(candidate), algorithm_of(candidate)
        largest, staged, products, total = (call.compile(device.architecture) for call in kernel_calls(candidate))
        assert products.metadata.shared <= tile.shared_bytes(algorithm) <= shared_limit(device), candidate.id
        for compiled in (largest, staged, products, total):
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
            assert not spilled(compiled.asm["sass"]), f"{candidate.id}: {compiled.metadata.name}"
        assert "cp.async.cg.shared.global" in products.asm["ptx"], "16 bytes are loaded at once"
        written = re.findall(r"st\.global\.(v4\.b32)?", staged.asm["ptx"])
        assert "v4.b32" in written, "16 bytes are written at once"
        if device is H200:
            assert "wgmma.mma_async" in products.asm["ptx"], candidate.id


def spilled(instructions: str) -> list[str]:
    """What stores registers into memory, which only the driver's own instructions show."""
    return re.findall(r"\bSTL\b", instructions)


@not_interpreted
def test_what_is_listed_for_groups_and_volumes_in_planes_compiles() -> None:
    candidate = offered(ConvProblem.parse("g3mb2ic60id4ih9oc72kd3kh3pd1ph1 dir:backward_weight"))[0]
    for call in kernel_calls(candidate):
        metadata = call.compile("sm_90").metadata
        assert metadata.shared <= shared_limit(H200), metadata.name
        assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


# Launches.


def built(parts: int) -> StagedWeightGradientPlan:
    plan = BACKEND.build(all_tiles(SMALL, parts)[-1], PRESENT)
    assert isinstance(plan, StagedWeightGradientPlan)
    assert isinstance(plan, Launchable)
    return plan


@not_interpreted
@pytest.mark.parametrize("parts", [1, 2])
def test_a_launch_looks_stages_multiplies_and_adds(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(parts)
    x, dy, dw = (torch.empty(8) for _ in range(3))
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    assert plan(x, dy, out=dw, workspace=workspace) is dw
    plan.launch(1024, 2048, 0, 0, 4096, 8192, 55)
    behind = staged_bytes(SMALL, SCALED)
    expected = []
    for first, second, out, at in ((x.data_ptr(), dy.data_ptr(), dw.data_ptr(), workspace.data_ptr()),
                                   (1024, 2048, 4096, 8192)):  # fmt: skip
        expected += [[first, second, at, 0, 0]] * 2
        expected += [[at, out, 0, 0]] if parts == 1 else [[at, at + behind, 0, 0], [at + behind, out, 0, 0]]
    assert [launched.arguments for launched in driver.launches] == expected
    calls = kernel_calls(plan.candidate)
    assert [launched.config[0] for launched in driver.launches] == [call.blocks for call in calls] * 2
    assert [launched.config[7] for launched in driver.launches] == [1001] * len(calls) + [55] * len(calls)
    with pytest.raises(BadInput, match="got bias"):
        plan(x, dy, x)
    with pytest.raises(BadInput, match=rf"needs a workspace of {plan.workspace_bytes:,} bytes, got none"):
        plan.launch(1024, 2048, 0, 0, 4096, 0, 55)


@not_interpreted
@pytest.mark.parametrize("parts", [1, 2])
def test_a_plan_is_read_as_it_was_written(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(parts)
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, PRESENT, text)
    assert isinstance(again, StagedWeightGradientPlan)
    assert again.text == text
    assert again.workspace_bytes == plan.workspace_bytes == plan.candidate.workspace_bytes
    loaded = len({call.kernel.__name__ + str(call.constants) for call in kernel_calls(plan.candidate)})
    assert len(driver.loaded) == loaded, "a kernel is loaded once"
    for wrong in ("", "{}", "[]", '["{}", "{}"]'):
        with pytest.raises(BackendError, match=r"stored kernels? cannot be read"):
            BACKEND.read(plan.candidate, PRESENT, wrong)


@not_interpreted
def test_compiling_ahead_makes_what_building_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    FakeCudaDriver(monkeypatch)
    candidate = all_tiles(SMALL, 2)[-1]
    BACKEND.compile(candidate, PRESENT)
    made = {path.name for path in tmp_path.rglob("*.cubin")}
    kernels = ("largest_of_channels", "staged_by_channels", "staged_weight_gradient", "sum_of_parts")
    assert made == {f"{name}.cubin" for name in kernels}
    count = len(list(tmp_path.rglob("*.cubin")))
    BACKEND.build(candidate, PRESENT)
    assert len(list(tmp_path.rglob("*.cubin"))) == count


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_staged_weight_gradient.py")
