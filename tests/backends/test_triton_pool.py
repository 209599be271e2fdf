"""Generated kernels for pooling without a GPU: what is served, how windows are found, that they compile, results."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from convwright.backends.registry import backend
from convwright.backends.triton.launching.kernel_call import interpreting
from convwright.backends.triton.pool.offers import NAME, kernel_call
from convwright.backends.triton.pool.source import source
from convwright.backends.triton.pool.tile import Tile
from convwright.backends.triton.pool.walk import Walk
from convwright.core.binding import bind
from convwright.core.candidate import Candidate, Refusal
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.plan import Compiles, Selective, Writable
from convwright.core.policy import Policy
from convwright.core.profiles import profile
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import empty

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")
PRESENT = replace(H200, torch_name="cuda:1")


def offered(problem: Problem) -> list[Candidate]:
    offers = backend("triton", problem.kind).candidates(problem, H200, Policy())
    return [each for each in offers if isinstance(each, Candidate)]


def walk_of(text: str) -> Walk:
    problem: Any = parse(text)
    return Walk.of(problem)


def source_of(text: str) -> str:
    """That of the first kernel that is offered."""
    return source(walk_of(text), Tile.of(offered(parse(text))[0]), precise=False)


@pytest.mark.parametrize(
    ("text", "sizes", "is_flat", "is_side_by_side"),
    [
        ("pool max mb4ic8ih6 kh2", [4 * 8, 3, 3], True, False),
        ("pool max mb4ic8ih6 kh2 tag:nhwc", [4, 3, 3, 8], True, True),
        ("pool max mb4ic8ih6 kh2 tag:x=576/1/96/16,y=72/1/24/8", [4, 3, 3, 8], True, True),
        ("pool max mb4ic8ih6 kh2 tag:x=nhwc,y=nchw", [4, 8, 3, 3], True, False),
        ("pool max mb4ic8ih6 kh2 tag:x=nchw,y=144/9/3/1", [4, 8, 3, 3], False, False),
        ("pool avg mb4ic8ih6 kh6", [1, 1, 4 * 8], True, False),
        ("pool max ic1iw1 kw1", [1], True, False),
    ],
)
def test_a_walk_has_few_dimensions(text: str, sizes: list[int], is_flat: bool, is_side_by_side: bool) -> None:
    walk = walk_of(text)
    assert [dim.size for dim in walk.dims] == sizes
    assert (walk.is_flat, walk.is_side_by_side) == (is_flat, is_side_by_side)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool max mb4ic8ih6 kh2 dt:fp64", "computes only fp32, fp16, bf16, got fp64"),
        ("pool max mb0ic8ih6 kh2", "needs a non-empty output, got (0, 8, 3, 3)"),
        ("pool max mb2ic8iw6 kw2 tag:x=8796093022208/6/1,y=nchw", "span less than 2^40 bytes"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    (refusal,) = backend("triton", "pool").candidates(parse(text), H200, Policy())
    assert isinstance(refusal, Refusal)
    assert refusal.id == NAME
    assert words in refusal.reason


def test_few_candidates_are_listed_with_what_they_should_take() -> None:
    for layout in ("nchw", "nhwc"):
        found = offered(parse(f"pool max mb32ic64ih112 kh3sh2ph1 tag:{layout}"))
        assert 3 <= len(found) <= 6
        assert len({each.id for each in found}) == len(found)
        assert all(Tile.of(each).config == each.config and each.compiles and each.estimated_us for each in found)
        for candidate in found:
            tile, walk = Tile.of(candidate), Walk.of(candidate.problem)
            covered = tile.programs(walk) * tile.columns * max(tile.rows, 1)
            assert walk.problem.y.numel <= covered <= 2 * walk.problem.y.numel


def test_elements_are_looked_for_only_where_some_are_missing() -> None:
    assert "mask" not in source_of("pool max mb4ic64ih8 kh2")
    with_padding = source_of("pool max mb4ic64ih8 kh3sh2ph1")
    assert with_padding.count("tl.load") == 9
    assert with_padding.count("mask=") == 5
    assert "<" not in with_padding.partition("OVERLAPS")[2], "no window ends after the image"
    whole = source_of("pool max mb4ic64ih1 kh3sh1ph1")
    assert whole.count("tl.load") == 1, "the others are padding alone"


def test_large_windows_are_loops() -> None:
    assert "for tap" not in source_of("pool avg mb4ic64ih8 kh5")
    assert "for tap in range(7)" in source_of("pool avg mb4ic64ih14 kh7")
    assert "for tap in range(49)" in source_of("pool avg ic2id7 kd7")
    assert "for tap in range(40)" in source_of("pool avg mb4ic64iw40 kw40")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kh4", "result * 0.0625"),
        ("kh3", "of.div(result, 9.0, False)"),
        ("kh3 divisor:7", "of.div(result, 7.0, False)"),
        ("kh3ph1", "of.div(result, 9.0, False)"),
        ("kh2ph1kw1pw0 include_pad:0", "(tl.minimum(s0 + 2, 12) - tl.maximum(s0, 0))).to(tl.float32)"),
        ("kh5kw1 ceil:1", "(tl.minimum(s0 + 5, 12) - tl.maximum(s0, 0))).to(tl.float32)"),
    ],
)
def test_a_sum_is_divided_by_what_is_counted(text: str, words: str) -> None:
    assert words in source_of(f"pool avg mb4ic64ih12 {text}")


@not_interpreted
@pytest.mark.parametrize("text", ["pool max mb32ic64ih56 kh3sh2ph1 dt:fp16", "pool avg mb32ic64ih56 kh2 ceil:1"])
@pytest.mark.parametrize("tag", ["nhwc", "x=401408/1/7168/128,y=100352/1/3584/128"])
def test_channels_are_read_and_written_16_bytes_at_a_time(text: str, tag: str) -> None:
    ptx = kernel_call(offered(parse(f"{text} tag:{tag}"))[0]).compile("sm_90").asm["ptx"]
    loads, stores = (len(re.findall(rf"{word}\.global", ptx)) for word in ("ld", "st"))
    assert len(re.findall(r"ld\.global[.\w:]*v4", ptx)) == loads == parse(text).reduction
    assert len(re.findall(r"st\.global[.\w:]*v4", ptx)) == stores == 1
    assert ("max.NaN.f" in ptx) is ("max" in text), "a NaN in a window stays one"


@pytest.mark.first_cases(2)
@not_interpreted
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    "text",
    [
        "pool max mb8ic64ih56 kh3sh2ph1",
        "pool avg mb8ic64ih14 kh7 tag:nhwc",
        "pool avg mb8ic63ih15 kh3sh2ph1 ceil:1 include_pad:0",
        "pool max mb2ic5id9 kd3sd2pd1dd1",
        "pool max ic3iw1000 kw500pw250",
        "pool avg ic1ih1 kh1",
    ],
)
def test_every_tile_compiles(text: str, dtype: str) -> None:
    for candidate in offered(parse(f"{text} dt:{dtype}")):
        compiled = kernel_call(candidate).compile("sm_80")
        assert compiled.metadata.name == "pool"
        assert compiled.metadata.global_scratch_size == 0


@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
def test_one_kernel_serves_every_number_of_images(tag: str) -> None:
    text = "pool max mb{}ic64ih56 kh3sh2ph1 tag:" + tag
    few, many = ([kernel_call(each) for each in offered(parse(text.format(images)))] for images in (8, 32))
    assert [call.kernel for call in few] == [call.kernel for call in many]
    assert all(4 * one.blocks == other.blocks for one, other in zip(few, many, strict=True))


def test_offsets_beyond_32_bits_are_computed_in_64() -> None:
    assert "int64" not in source_of("pool max mb8ic64ih56 kh3sh2ph1")
    assert ".to(tl.int64)" in source_of("pool max mb64ic64ih1024 kh3sh2ph1")
    assert ".to(tl.int64)" in source_of("pool max ic64ih56 kh2 tag:x=1/33554432/56/1,y=nchw")


@not_interpreted
def test_a_plan_is_bound_once_and_launched_on_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    member, candidate = backend("triton", "pool"), offered(parse("pool max mb2ic8ih6 kh2"))[0]
    assert isinstance(member, Compiles)
    assert isinstance(member, Writable)
    assert isinstance(member, Selective)
    plan = member.build(candidate, PRESENT)
    operands = {role: empty(spec, "cpu") for role, spec in candidate.problem.operands.items()}
    assert bind(plan, operands)() is operands["y"]
    (launch,) = driver.launches
    assert launch.arguments[:2] == [operands[role].data_ptr() for role in ("x", "y")]
    assert launch.config[0] == kernel_call(candidate).blocks
    bind(member.read(candidate, PRESENT, str(member.written(plan))), operands)()
    assert driver.launches[-1].config[:6] == launch.config[:6]


@not_interpreted
def test_without_a_gpu_it_says_so() -> None:
    (refusal,) = backend("triton", "pool").candidates(parse("pool max ic8ih4 kh2"), device_facts("cpu"), Policy())
    assert isinstance(refusal, Refusal)
    assert (refusal.id, "needs an NVIDIA GPU of architecture sm_80" in refusal.reason) == (NAME, True)


def test_what_they_compute_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_pool.py")
