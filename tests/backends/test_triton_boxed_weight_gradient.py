"""A weight's gradient in boxes without a GPU: what it serves, that it compiles, and its results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.boxed_weight_gradient_cases import ALGORITHM
from backends.triton_interpreted.cases import listed
from convwright.backends.triton.backend import kernel_calls
from convwright.backends.triton.boxed_weight_gradient.offers import TILES, Tile, boxes_of
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")
LAYERS = (
    "mb32ic256ih14oc256kh3ph1", "mb32ic64ih56oc64kh3ph1", "mb32ic512ih7oc2048kh1", "mb32ic128ih56oc128kh3sh2ph1",
    "mb8ic80iw2000oc96kw5sw2pw2", "mb4ic64id8ih56oc64kd3kh3pd1ph1",
)  # fmt: skip


def posed(text: str, dtype: str = "fp16") -> ConvProblem:
    return ConvProblem.parse(f"{text} tag:nhwc dt:{dtype} dir:backward_weight")


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = listed(ALGORITHM, problem, device)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found == offers, offers
    return found


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mb2ic64ih9oc64kh3 dt:fp32 tag:nhwc", "computes only fp16, bf16, got fp32"),
        ("mb2ic64ih9oc64kh3 dt:fp16", "needs a channels-last `input`"),
        ("g2mb2ic64ih9oc64kh3 dt:fp16 tag:nhwc", "needs `groups` = 1, got 2"),
        ("mb2ic64ih9oc20kh3 dt:fp16 tag:nhwc", "strides of `gradient` in multiples of 16 bytes, got 980, 980, 140, 20"),
        ("mb2ic64ih99oc64kh3sh9 dt:fp16 tag:nhwc", "needs strides of at most 8, got 9x9"),
        ("mb0ic64ih9oc64kh3 dt:fp16 tag:nhwc", "needs a batch of at least 1, got 0"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    (refusal,) = listed(ALGORITHM, ConvProblem.parse(f"{text} dir:backward_weight"), H200)
    assert isinstance(refusal, Refusal)
    assert refusal.id == "triton/boxed-weight-gradient"
    assert words in refusal.reason


@not_interpreted
def test_other_architectures_have_no_such_engine() -> None:
    (refusal,) = listed(ALGORITHM, posed(LAYERS[0]), profile("a100"))
    assert isinstance(refusal, Refusal)
    assert "copy engine of sm_90" in refusal.reason


@not_interpreted
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("text", LAYERS)
def test_few_candidates_are_listed_always_the_same(text: str, dtype: str) -> None:
    problem = posed(text, dtype)
    found = offered(problem)
    assert [each.id for each in found] == [each.id for each in offered(problem)]
    assert 3 <= len({each.id for each in found}) == len(found) <= MOST_TILES
    for each in found:
        tile = Tile.of(each)
        assert tile.config == each.config
        assert each.arithmetic is (Arithmetic.BF16_ACC32 if dtype == "bf16" else Arithmetic.FP16_ACC32)
        assert each.compiles
        assert each.deterministic
        assert each.workspace_bytes == 4 * problem.w.numel * tile.parts
        assert tile.parts <= boxes_of(tile, problem)


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("text", LAYERS)
def test_what_is_listed_compiles_to_what_it_is_for(text: str) -> None:
    for candidate in offered(posed(text))[::3]:
        tile = Tile.of(candidate)
        product, adding = kernel_calls(candidate)
        compiled = product.compile("sm_90")
        assert compiled.metadata.shared <= tile.shared_bytes() <= shared_limit(H200), candidate.id
        assert compiled.metadata.global_scratch_size == 0
        assert "cp.async.bulk.tensor" in compiled.asm["ptx"]
        assert f"wgmma.mma_async.sync.aligned.m64n{tile.bn}k16" in compiled.asm["ptx"], candidate.id
        adding.compile("sm_90")


@pytest.mark.slow
@not_interpreted
def test_the_bound_on_shared_memory_holds_for_the_largest_tiles() -> None:
    """Where boxes lie beside the output, and what is read is looked at, too."""
    for text in ("mb32ic256ih56oc256kh3ph1", "mb3ic256ih13oc256kh3ph1"):
        (first, *_) = offered(posed(text))
        for tile in TILES[:4]:
            shared = kernel_calls(replace(first, config=tile.config))[0].compile("sm_90").metadata.shared
            assert shared <= tile.shared_bytes(), (text, tile)


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_boxed_weight_gradient.py")
