"""The kernel for other sizes of images without a GPU: what is served, its tiles, that it compiles, and results."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.registry import backend
from convwright.backends.triton.launching.kernel_call import interpreting
from convwright.backends.triton.resize.offers import NAME, Tile, constants, inner, kernel_call
from convwright.core.candidate import Candidate, Refusal
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.profiles import profile
from convwright.measuring.hardware.machine import device_facts

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")


def offered(text: str) -> list[Candidate]:
    offers = backend("triton", "resize").candidates(parse(text), H200, Policy())
    return [each for each in offers if isinstance(each, Candidate)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resize nearest ic8ih4 oh8 dt:fp64", "computes only fp32, fp16, bf16, got fp64"),
        ("resize nearest mb0ic8ih4 oh8", "needs a non-empty output, got (0, 8, 8, 8)"),
        ("resize nearest ic8iw4 ow8388608", "fewer than 2^23 pixels along a dimension, got 8,388,608 of `y`"),
        ("resize nearest mb2ic8iw4 ow8 tag:x=1099511627776/4/1,y=nchw", "span less than 2^40 bytes"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    (refusal,) = backend("triton", "resize").candidates(parse(text), H200, Policy())
    assert isinstance(refusal, Refusal)
    assert refusal.id == NAME
    assert words in refusal.reason


@pytest.mark.parametrize(
    ("text", "dim", "ids"),
    [
        ("resize linear mb8ic64ih28 oh56 tag:nhwc dt:fp16", 1, ["rows=16,columns=64", "rows=32,columns=64",
                                                                "rows=8,columns=64"]),
        ("resize nearest mb8ic64ih65 oh130", 4, ["rows=32,columns=32", "rows=64,columns=32", "rows=16,columns=32",
                                                 "rows=4,columns=256", "rows=8,columns=256", "rows=2,columns=256"]),
        ("resize nearest mb8ic3ih4 oh2 tag:nhwc", 1, ["rows=32,columns=4"]),
        ("resize nearest ic1iw3 ow1", 4, ["rows=1,columns=1"]),
        ("resize nearest mb4ic2ih3 oh5 tag:x=nchw,y=1/100/20/4", 0, ["rows=64,columns=4"]),
    ],
)  # fmt: skip
def test_elements_that_lie_side_by_side_are_computed_side_by_side(text: str, dim: int, ids: list[str]) -> None:
    found = offered(text)
    assert inner(found[0].problem) == dim
    assert [each.id for each in found] == [f"{NAME}[{config},warps=4]" for config in ids]
    assert all(Tile.of(each).config == each.config and each.compiles and each.estimated_us for each in found)
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


def test_images_that_fill_whole_tiles_share_a_kernel() -> None:
    few, more = (offered(f"resize linear mb{images}ic64ih16 oh32 tag:nhwc")[0] for images in (2, 16))
    assert kernel_call(few).constants == kernel_call(more).constants
    assert kernel_call(few).blocks * 8 == kernel_call(more).blocks
    problem: Any = parse("resize linear ic64ih16 oh31 tag:nhwc")
    assert constants(problem, Tile(16, 64, 4))["ROW_COUNT"] == 31 * 31


def test_wide_offsets_are_seen() -> None:
    for text, is_wide in (("mb64ic64ih256 oh512", True), ("mb2ic64ih256 oh512", False)):
        problem: Any = parse(f"resize nearest {text}")
        assert constants(problem, Tile(1, 32, 4))["WIDE"] is is_wide


@not_interpreted
@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ("resize linear mb8ic64ih28 oh56 tag:nhwc dt:fp16", "ld.global.v4.b32"),
        ("resize nearest mb8ic64ih28 oh56 tag:nhwc", "ld.global.v4.b32"),
        ("resize linear mb8ic63ih28 oh55 align:corners dt:bf16", "ld.global.b16"),
        ("resize linear mb2ic8id5 od9 scale:1.9", "ld.global.b32"),
        ("resize nearest mb64ic64ih256 oh512", "ld.global.b32"),
    ],
)
def test_it_is_compiled_with_what_can_be_read_together(text: str, loads: str) -> None:
    made = kernel_call(offered(text)[0]).compile("sm_90").asm["ptx"]
    assert set(re.findall(r"ld\.global\S*", made)) == {loads}
    assert not re.search(r"\.f64", made)


def test_without_a_gpu_it_says_so() -> None:
    if interpreting():
        return
    (refusal,) = backend("triton", "resize").candidates(
        parse("resize nearest ic8ih4 oh8"), device_facts("cpu"), Policy()
    )
    assert isinstance(refusal, Refusal)
    assert "needs an NVIDIA GPU of architecture sm_80 or newer" in refusal.reason


def test_what_it_computes_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_resize.py")
