"""Products of boxes without a GPU: what they serve, that they compile, how they are launched, and their results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.boxed_gemm_cases import ALGORITHM, SERVED
from backends.triton_interpreted.cases import listed
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.boxed_gemm.offers import TILES, Tile, tiles_of
from convwright.backends.triton.boxes.window import Window
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.launching import launch
from convwright.backends.triton.launching.launch import Binary, DriverLaunch, launch_of
from convwright.backends.triton.multiprocessor import shared_limit, sm_count
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import TensorSpec
from convwright.rewrites import rewrite

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200, A100 = profile("h200"), profile("a100")
LAYER = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 tag:nhwc dt:fp16 ep:bias+relu")
LAYERS = (
    "mb32ic256ih14oc256kh3ph1 ep:bias+relu", "mb32ic64ih56oc64kh3ph1 ep:residual+bias+relu", "mb1ic512ih7oc2048kh1",
    "mb32ic128ih56oc128kh3sh2ph1 ep:bias+gelu", "mb8ic80iw2000oc96kw5sw2pw2", "mb32ic96ih1oc1000kh1 ep:bias",
    "mb4ic64id8ih56oc64kd3kh3pd1ph1 ep:bias+relu", "mb32ic40ih28oc120kh3ph1 ep:bias",
    "mb32ic1024ih7oc1001kh1 ep:bias+relu", "mb8ic256ih40oc255kh3ph1 ep:residual+bias+silu",
)  # fmt: skip


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = listed(ALGORITHM, problem, device)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found == offers, offers
    return found


def refusal(problem: ConvProblem, device: DeviceFacts = H200) -> str:
    (offer,) = listed(ALGORITHM, problem, device)
    assert isinstance(offer, Refusal)
    assert offer.id == f"triton/{ALGORITHM}"
    return offer.reason


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mb2ic64ih9oc64kh3", "computes only fp16, bf16, got fp32"),
        ("g2mb2ic64ih9oc64kh3 dt:fp16", "needs `groups` = 1, got 2"),
        ("mb2ic20ih9oc64kh3 dt:fp16", "needs a multiple of 8 input channels, got 20"),
        ("mb2ic64ih99oc64kh3sh9 dt:fp16", "needs strides of at most 8, got 9x9"),
        ("mb0ic64ih9oc64kh3 dt:fp16", "needs a batch of at least 1, got 0"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    assert words in refusal(ConvProblem.parse(f"{text} tag:nhwc"))


@not_interpreted
def test_what_the_copy_engine_cannot_bring_is_refused() -> None:
    def other(role: str, **changed: Any) -> ConvProblem:
        spec: TensorSpec = getattr(LAYER, role)
        return replace(LAYER, **{role: replace(spec, **changed)})

    assert "`weight` aligned to 16 bytes, got 8" in refusal(other("w", alignment=8))
    assert "`input` aligned to 16 bytes, got 2" in refusal(other("x", alignment=2))
    assert "needs a channels-last `input`" in refusal(ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dt:fp16"))


@not_interpreted
def test_other_architectures_have_no_such_engine() -> None:
    for architecture in ("sm_80", "sm_89", "sm_100"):
        device = replace(A100, architecture=architecture)
        assert f"copy engine of sm_90, got {device.name} ({architecture})" in refusal(LAYER, device)


@not_interpreted
def test_a_gradient_of_an_input_finds_it_behind_a_rewrite() -> None:
    assert not listed(ALGORITHM, ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dir:backward_data tag:nhwc dt:bf16"), H200)
    gradient = ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dir:backward_data tag:nhwc dt:bf16")
    assert offered(rewrite("as-forward").inner(gradient, ()))


@not_interpreted
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("text", LAYERS)
def test_few_candidates_are_listed_always_the_same(text: str, dtype: str) -> None:
    problem = ConvProblem.parse(f"{text} tag:nhwc dt:{dtype}")
    found = offered(problem)
    assert [each.id for each in found] == [each.id for each in offered(problem)]
    assert 3 <= len({each.id for each in found}) == len(found) <= MOST_TILES
    for each in found:
        tile = Tile.of(each)
        assert tile.config == each.config
        assert each.arithmetic is (Arithmetic.BF16_ACC32 if dtype == "bf16" else Arithmetic.FP16_ACC32)
        assert each.source is Source.RULE
        assert each.compiles
        assert each.deterministic
        assert each.workspace_bytes == 0
        assert tile.programs <= tiles_of(tile, Window.of(problem))
        assert tile.programs <= 8 * sm_count(H200)


@not_interpreted
def test_pixels_that_are_read_for_themselves_are_one_row() -> None:
    problem = ConvProblem.parse("mb32ic64ih7oc64kh1 tag:nhwc dt:fp16")
    window = Window.of(problem)
    assert window.read.sizes == window.written.sizes == (1, 1, 1, 32 * 49)
    assert window.box(128).count(window.written.sizes) == 13
    strided = Window.of(ConvProblem.parse("mb32ic64ih7oc64kh1sh2 tag:nhwc dt:fp16"))
    assert (strided.read.sizes, strided.written.sizes) == ((32, 1, 7, 7), (32, 1, 4, 4))


@not_interpreted
def test_boxes_lie_within_the_output_where_they_can() -> None:
    """Of 14 by 14 pixels, which no power of two divides, two by two of all images."""
    window = Window.of(LAYER)
    box = window.box(128)
    assert box.sides == (32, 1, 2, 2)
    assert box.count(window.written.sizes) * 128 == 32 * 14 * 14


@not_interpreted
def test_a_box_is_no_wider_than_the_copy_engine_takes() -> None:
    problem = ConvProblem.parse("mb1ic64iw5000oc64kw1sw8 tag:nhwc dt:fp16")
    window = Window.of(problem)
    for tile in TILES:
        assert (window.box(tile.pixels).sides[-1] - 1) * 8 + 1 <= 256


# What is compiled.


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("text", LAYERS)
def test_what_is_listed_compiles_to_what_it_is_for(text: str) -> None:
    """Both operands of the tensor cores' instructions lie in shared memory, where the copy engine brings them."""
    problem = ConvProblem.parse(f"{text} tag:nhwc dt:fp16")
    for candidate in offered(problem)[::3]:
        tile = Tile.of(candidate)
        compiled = kernel_calls(candidate)[0].compile("sm_90")
        bound = tile.shared_bytes(residual=problem.epilogue.residual)
        assert compiled.metadata.shared <= bound <= shared_limit(H200), candidate.id
        assert compiled.metadata.global_scratch_size == 0
        ptx = compiled.asm["ptx"]
        assert "cp.async.bulk.tensor" in ptx, candidate.id
        assert f"wgmma.mma_async.sync.aligned.m64n{tile.pixels}k16" in ptx, candidate.id
        assert ("ldmatrix" in ptx) == problem.epilogue.residual, candidate.id  # which is added to what registers hold


@pytest.mark.slow
@not_interpreted
def test_the_bound_on_shared_memory_holds_for_others() -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc256kh3ph1 tag:nhwc dt:fp16 ep:residual+bias+relu")
    for tile in TILES[::4]:
        (offer, *_) = offered(problem)
        candidate = replace(offer, config=replace(tile, programs=132).config)
        bound = tile.shared_bytes(residual=True)
        if bound <= shared_limit(H200):
            assert kernel_calls(candidate)[0].compile("sm_90").metadata.shared <= bound, candidate.id


# Launches.


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeCudaDriver:
    return FakeCudaDriver(monkeypatch)


@not_interpreted
def test_a_launch_hands_the_driver_maps_which_are_made_once_for_each_address(driver: FakeCudaDriver) -> None:
    ready = launch_of(kernel_calls(offered(LAYER)[0])[0], replace(H200, torch_name="cuda:1"))
    x, w, bias, y, other = (torch.empty(8) for _ in range(5))
    ready(x, w, bias, None, y)
    ready(x, w, bias, None, other)
    first, second = driver.launches
    # A map, and behind it sizes and strides, of which the kernel needs none.
    assert first.maps == [x.data_ptr(), w.data_ptr(), y.data_ptr()]
    assert second.maps == [x.data_ptr(), w.data_ptr(), other.data_ptr()]
    assert driver.encoded == [x.data_ptr(), w.data_ptr(), y.data_ptr(), other.data_ptr()]


@not_interpreted
def test_what_the_driver_is_told_of_an_operand(driver: FakeCudaDriver) -> None:
    """Of every second row and column, the innermost dimension first."""
    problem = ConvProblem.parse("mb32ic64ih56iw50oc72kh3sh2ph1 tag:nhwc dt:bf16")
    call = kernel_calls(offered(problem)[0])[0]
    binary = Binary.of(call.compile("sm_90"), call)
    x, w, y = binary.maps
    box = Window.of(problem).box(Tile.of(offered(problem)[0]).pixels).sides
    assert (x.place, w.place, y.place) == (0, 1, 4)
    assert x.sizes == (64, 50, 56, 32)
    assert x.strides == (128, 128 * 50, 128 * 50 * 56)
    assert x.steps == (1, 2, 2, 1)
    assert x.box == (64, 2 * box[3] - 1, 2 * box[2] - 1, box[0])
    assert (w.sizes, w.strides, w.steps) == ((64, 72, 9), (1152, 128), (1, 1, 1))
    assert y.sizes == (72, 25, 28, 32)
    assert Binary.read(binary.text) == binary


@not_interpreted
def test_maps_that_are_kept_are_few(driver: FakeCudaDriver) -> None:
    """However many addresses a process computes at, and the maps of one launch are there together."""
    ready = launch_of(kernel_calls(offered(LAYER)[0])[0], replace(H200, torch_name="cuda:1"))
    for place in range(200):
        ready.at([4096 * place, 8, 16, 0, 24], 0)
    assert [each.maps for each in driver.launches] == [[4096 * place, 8, 24] for place in range(200)]
    assert len(driver.encoded) == 202
    assert isinstance(ready, DriverLaunch)
    assert all(len(maps._kept) <= 64 for _, _, maps in ready._maps)
    ready.at([0, 8, 16, 0, 24], 0)
    assert driver.encoded[-1] == 0, "which had to make room"


def test_what_is_served_has_cases() -> None:
    assert {case.problem(DType.FP16).rank for case in SERVED.values()} == {1, 2, 3}


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_boxed_gemm.py")
