"""Generated kernels without a GPU: what is served, how operands are walked through, that they compile, and results."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from convwright.backends.registry import backend
from convwright.backends.triton.elementwise.offers import NAME, kernel_call, kernel_calls
from convwright.backends.triton.elementwise.source import NAME as KERNEL
from convwright.backends.triton.elementwise.source import source
from convwright.backends.triton.elementwise.tile import Tile
from convwright.backends.triton.elementwise.walk import Walk
from convwright.backends.triton.generated.kernel import kernel
from convwright.backends.triton.launching.kernel_call import interpreting
from convwright.core.binding import bind
from convwright.core.candidate import Candidate, Refusal
from convwright.core.kinds.operators import OPERATORS
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.plan import Compiles, Selective, Writable
from convwright.core.policy import Policy
from convwright.core.profiles import profile
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


@pytest.mark.parametrize(
    ("text", "sizes", "across"),
    [
        ('pointwise "a + b" mb4ic8ih6', [4 * 8 * 36], None),
        ('pointwise "a + b" mb4ic8ih6 tag:nhwc', [4 * 8 * 36], None),
        ('pointwise "a + b" mb4ic8ih6 b:c', [4, 8, 36], None),
        ('pointwise "a + b" mb4ic8ih6 b:c tag:nhwc', [4 * 36, 8], None),
        ('pointwise "a + b" mb4ic8ih6 b:nhwc', [4, 8, 36], 1),
        ('pointwise "a + s" mb4ic8ih6 s:1', [4 * 8 * 36], None),
        ('pointwise "a" 1x1', [1], None),
        ('pointwise "a / sum(a)" mb4ic8ih6 row:c', [4, 36, 8], 1),
        ('pointwise "a / sum(a)" mb4ic8ih6 row:c tag:nhwc', [4 * 36, 8], None),
        ('pointwise "mean(a)" mb4ic8ih6 row:hw y:nc', [4 * 8, 36], None),
        ('pointwise "mean(a)" mb4ic8ih6 row:hw y:nc a:nhwc', [4, 8, 36], 1),
        ('pointwise "a * s - mean(a)" mb4ic8ih6 row:chw s:c', [4, 8, 36], None),
        ('pointwise "sum(a)" ic8 y:1', [1, 8], None),
        ("copy mb4ic8ih6 nchw->nhwc", [4, 36, 8], 1),
        ("copy mb4ic8ih6 nchw->nchw pad:c=0:8", [4, 16, 36], None),
        ("copy mb4ic8ih6 nchw->nchw slice:c=0:4", [4, 4 * 36], None),
        ("copy mb4ic1ih6 nchw->nhwc", [4 * 36], None),
    ],
)
def test_a_walk_has_few_dimensions(text: str, sizes: list[int], across: int | None) -> None:
    walk = walk_of(text)
    assert ([dim.size for dim in walk.dims], walk.across) == (sizes, across)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('pointwise "a + b" mb4ic8 dt:fp64', "computes only fp32, fp16, bf16, got fp64"),
        ('pointwise "fp64(a) + b" mb4ic8', "got fp64"),
        ("copy mb4ic8 dt:fp64->fp32", "computes only fp32, fp16, bf16, got fp64"),
        ('pointwise "a + b" mb0ic8', "needs a non-empty output, got (0, 8)"),
        ("copy mb4ic8 nchw->nchw slice:c=0:0", "needs a non-empty output"),
        ("copy mb2ic4 nchw->8796093022208/1", "span less than 2^40 bytes"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    problem = parse(text)
    (refusal,) = backend("triton", problem.kind).candidates(problem, H200, Policy())
    assert isinstance(refusal, Refusal)
    assert refusal.id == NAME
    assert words in refusal.reason


def test_few_candidates_are_listed_with_what_they_should_take() -> None:
    found = offered(parse("copy mb32ic64ih56 nchw->nhwc"))
    assert 2 <= len(found) <= 6
    assert len({each.id for each in found}) == len(found)
    first, *_, last = found
    assert first.id == "triton/elementwise[rows=64,columns=64,warps=4]"
    assert last.id == "triton/elementwise[columns=512,warps=4]"
    assert first.estimated_us is not None
    assert last.estimated_us is not None
    assert first.estimated_us < last.estimated_us
    assert all(Tile.of(each).config == each.config and each.compiles for each in found)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('pointwise "a / sum(a)" mb4096ic1000', ["rows=2,columns=1024,warps=4", "rows=4,columns=1024,warps=8",
                                                 "rows=1,columns=1024,warps=2"]),
        ('pointwise "a / sum(a)" mb4096ic32768', ["rows=1,columns=32768,warps=16"]),
        ('pointwise "a / sum(a)" mb2ic8ih128 row:chw groups:4', ["rows=1,columns=32768,warps=16"]),
        # Neighbours are pixels, so a program has many of them.
        ('pointwise "a / sum(a)" mb8ic64ih56 row:c', ["rows=32,columns=64,warps=4", "rows=64,columns=64,warps=8",
                                                      "rows=16,columns=64,warps=2"]),
        ('pointwise "a / sum(a)" mb8ic64ih56 row:c tag:nhwc', [
            "rows=32,columns=64,warps=4", "rows=64,columns=64,warps=8", "rows=16,columns=64,warps=2",
        ]),
    ],
)  # fmt: skip
def test_a_program_has_whole_rows(text: str, ids: list[str]) -> None:
    found = offered(parse(text))
    assert [each.id for each in found] == [f"triton/elementwise[{config}]" for config in ids]
    walk = walk_of(text)
    for candidate in found:
        tile = Tile.of(candidate)
        assert tile.programs(walk) * tile.rows >= walk.y.numel // walk.row_size
        assert tile.columns >= walk.row_size


def test_a_tile_is_no_larger_than_what_there_is() -> None:
    for text in ("copy mb32ic3ih224 nchw->nhwc", "copy ic3ih5 nchw->nhwc", 'pointwise "a * b" mb2ic3ih5 b:c'):
        walk = walk_of(text)
        for candidate in offered(parse(text)):
            tile = Tile.of(candidate)
            covered = tile.programs(walk) * tile.columns * max(tile.rows, 1)
            assert walk.y.numel <= covered <= 4 * walk.y.numel or covered <= 1024


@not_interpreted
def test_every_operator_compiles_precise_and_fast() -> None:
    single = [each for each in OPERATORS.values() if each.arity == 1 and not each.reduces]
    trees = " + ".join(f"{each.name}(a)" for each in single)
    more = "where(a < b, maximum(a, b) / b, minimum(a, -b)) + where(a != b, fp16(a), bf16(b) - 2) + where(a == 1, 1, b)"
    for dtype in ("fp32", "fp16"):
        candidate = offered(parse(f'pointwise "{trees} + {more}" mb4ic8ih6 dt:{dtype}'))[0]
        compiled = kernel_call(candidate).compile("sm_90")
        assert compiled.metadata.name == "elementwise"
        assert ("ex2.approx" in compiled.asm["ptx"]) is True
        assert (".rn.f32" in compiled.asm["ptx"] and "div.rn.f32" in compiled.asm["ptx"]) is (dtype == "fp32")


@not_interpreted
@pytest.mark.parametrize(
    ("text", "loads", "stores"),
    [
        ('pointwise "relu(a + b)" mb32ic64ih56 dt:fp16', 2, 1),
        ('pointwise "relu(a + b)" mb32ic64ih56', 2, 1),
        ('pointwise "relu(a * s + b)" mb32ic64ih56 s:c b:c dt:fp16 tag:nhwc', 1, 1),
        ('pointwise "relu(a * s + b)" mb32ic64ih56 s:c b:c dt:fp16', 1, 1),
        ("copy mb32ic64ih56 nhwc->nhwc slice:c=0:32 dt:fp16", 1, 1),
    ],
)
def test_neighbours_are_read_and_written_16_bytes_at_a_time(text: str, loads: int, stores: int) -> None:
    ptx = kernel_call(offered(parse(text))[0]).compile("sm_90").asm["ptx"]
    assert len(re.findall(r"ld\.global[.\w:]*v4", ptx)) >= loads
    assert len(re.findall(r"st\.global[.\w:]*v4", ptx)) == stores == len(re.findall(r"st\.global", ptx))


@pytest.mark.first_cases(2)
@not_interpreted
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    "text",
    [
        'pointwise "exp(a - max(a)) / sum(exp(a - max(a)))" mb64ic1000',
        'pointwise "exp(a - max(a)) / sum(exp(a - max(a)))" mb8ic64ih56 row:c',
        'pointwise "mean(a)" mb8ic64ih7 row:hw y:nc',
        'pointwise "(a - mean(a)) * rsqrt(mean(a * a)) * g" 4x32x8x49 row:hw g:ch',
        'pointwise "sum(a) + sum(b)" ic5 b:1x5 y:1',
        'pointwise "a - mean(a)" 3x1',
        'pointwise "max(a)" mb4ic32768 y:n',
    ],
)
def test_rows_compile_and_are_read_once(text: str, dtype: str) -> None:
    for candidate in offered(parse(f"{text} dt:{dtype}")):
        compiled = kernel_call(candidate).compile("sm_90")
        assert compiled.metadata.name == "elementwise"
        assert compiled.metadata.global_scratch_size == 0
    ptx = kernel_call(offered(parse(text))[0]).compile("sm_90").asm["ptx"]
    if "max" in text:
        assert "max.NaN.f32" in ptx, "a NaN in a row stays one"
    if text.endswith("ic1000"):
        loads, stores = (len(re.findall(rf"{word}\.global[.\w:]*v4", ptx)) for word in ("ld", "st"))
        assert loads == stores == 4, "each of 128 threads has 16 of 2048 elements"


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize(
    "text",
    [
        'pointwise "silu((a - mean(a)) * rsqrt(mean((a - mean(a)) * (a - mean(a))) + 1e-5) * g + b)" '
        "mb2ic32ih256 row:chw groups:8 g:c b:c dt:fp16 tag:nhwc",
        'pointwise "max(a) + s" mb2ic3ih300 row:hw y:nc s:n',
    ],
)
def test_long_rows_are_read_part_by_part(text: str) -> None:
    for candidate in offered(parse(text)):
        assert Tile.of(candidate).cuts_rows(walk_of(text))
        compiled = [call.compile("sm_90") for call in kernel_calls(candidate)]
        assert all(each.metadata.global_scratch_size == 0 for each in compiled)
        assert re.search(r"ld\.global[.\w:]*v[24]", compiled[0].asm["ptx"])


def test_programs_share_long_rows_where_these_are_few() -> None:
    few, *_, alone = offered(parse('pointwise "a - mean(a)" mb1ic4ih256 row:hw'))
    assert few.id == "triton/elementwise[rows=1,columns=8192,warps=16,parts=8,launches=2]"
    assert few.workspace_bytes == 4 * 8 * 4
    assert [call.blocks for call in kernel_calls(few)] == [32, 32]
    assert alone.id == "triton/elementwise[rows=1,columns=8192,warps=16]"
    assert few.estimated_us is not None
    assert alone.estimated_us is not None
    assert few.estimated_us < alone.estimated_us
    many = offered(parse('pointwise "mean(a)" mb64ic64ih256 row:hw y:nc'))
    assert {Tile.of(each).launches for each in many} == {1}


@not_interpreted
@pytest.mark.parametrize("text", ["copy mb32ic64ih56 nchw->nhwc", 'pointwise "a + b" mb32ic64ih56 b:nhwc dt:fp16'])
def test_what_lies_across_goes_through_shared_memory(text: str) -> None:
    call = kernel_call(offered(parse(text))[0])
    for architecture in ("sm_80", "sm_90"):
        compiled = call.compile(architecture)
        assert compiled.metadata.shared > 0
        ptx = compiled.asm["ptx"]
        assert re.search(r"ld\.global[.\w:]*v[24]", ptx)
        assert re.search(r"st\.global[.\w:]*v[24]", ptx)


@not_interpreted
@pytest.mark.parametrize("text", ["copy mb2ic16ih9 nchw->nhwc dt:fp8_e4m3", "copy mb2ic16ih9 nchw->nhwc dt:fp64"])
def test_what_is_only_copied_compiles_for_old_gpus(text: str) -> None:
    assert kernel_call(offered(parse(text))[0]).compile("sm_80").metadata.name == "elementwise"


def test_one_source_is_one_kernel_that_can_be_read() -> None:
    walk, tile = walk_of('pointwise "a + 1" mb4ic8'), Tile(0, 32, 1)
    text = source(walk, tile, precise=False)
    assert kernel(text, KERNEL) is kernel(source(walk, tile, precise=False), KERNEL)
    assert "v2 = v0 + v1" in inspect.getsource(kernel(text, KERNEL).fn)
    assert kernel(text, KERNEL) is not kernel(source(walk, Tile(0, 16, 1), precise=False), KERNEL)


@pytest.mark.parametrize(
    "text",
    [
        'pointwise "relu(a + b)" mb{}ic64ih56 dt:fp16',
        'pointwise "relu(a * s + b)" mb{}ic64ih56 s:c b:c',
        'pointwise "relu(a * s + b)" mb{}ic64ih56 s:c b:c tag:nhwc',
        'pointwise "exp(a - max(a)) / sum(exp(a - max(a)))" mb{}ic1000',
        'pointwise "a - mean(a)" mb{}ic64ih56 row:c',
        'pointwise "mean(a)" mb{}ic64ih56 row:hw y:nc',
        "copy mb{}ic64ih56 nchw->nhwc dt:fp32->fp16",
    ],
)
def test_one_kernel_serves_every_number_of_images(text: str) -> None:
    few, many = ([kernel_call(each) for each in offered(parse(text.format(images)))] for images in (8, 32))
    assert [call.kernel for call in few] == [call.kernel for call in many]
    assert [call.pointers for call in few] == [call.pointers for call in many]
    assert all(4 * one.blocks == other.blocks for one, other in zip(few, many, strict=True))


def test_offsets_beyond_32_bits_are_computed_in_64() -> None:
    small, large = walk_of('pointwise "a" 1024x1024'), walk_of('pointwise "a" 65536x65536 dt:fp16')
    assert "int64" not in source(small, Tile(0, 1024, 4), precise=False)
    assert ".to(tl.int64)" in source(large, Tile(0, 1024, 4), precise=False)
    assert ".to(tl.int64)" in source(walk_of("copy 64x64 33554432/1->1/64"), Tile(32, 32, 4), precise=False)


@not_interpreted
def test_kernels_that_share_rows_are_launched_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    member, candidate = backend("triton", "pointwise"), offered(parse('pointwise "a - mean(a)" mb1ic1ih256 row:hw'))[0]
    assert isinstance(member, Writable)
    plan = member.build(candidate, PRESENT)
    operands = {role: empty(spec, "cpu") for role, spec in candidate.problem.operands.items()}
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    bind(plan, operands, workspace)()
    bind(member.read(candidate, PRESENT, str(member.written(plan))), operands, workspace)()
    addresses = [tensor.data_ptr() for tensor in (operands["a"], operands["y"], workspace)]
    assert [launch.arguments[:3] for launch in driver.launches] == [addresses] * 4
    first, second, *again = (launch.function for launch in driver.launches)
    assert first != second
    assert again == [first, second]


@not_interpreted
def test_a_plan_is_bound_once_and_launched_on_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    member, candidate = backend("triton", "pointwise"), offered(parse('pointwise "relu(a + b)" mb2ic8ih6 b:c'))[0]
    assert isinstance(member, Compiles)
    assert isinstance(member, Writable)
    assert isinstance(member, Selective)
    plan = member.build(candidate, PRESENT)
    operands = {role: empty(spec, "cpu") for role, spec in candidate.problem.operands.items()}
    bound = bind(plan, operands)
    assert bound() is operands["y"]
    bound()
    first, second = driver.launches
    assert first == second
    assert first.arguments[:3] == [operands[role].data_ptr() for role in ("a", "b", "y")]
    assert first.config[0] == kernel_call(candidate).blocks
    again = member.read(candidate, PRESENT, str(member.written(plan)))
    bind(again, operands)()
    assert driver.launches[-1].function == first.function, "each kernel is loaded once"
    assert driver.launches[-1].config[:6] == first.config[:6]


@not_interpreted
def test_it_compiles_in_a_process_without_pytorch() -> None:
    """As compilers do that a search starts."""
    candidate = offered(parse("copy mb2ic8ih6 nchw->nhwc"))[0]
    script = (
        "import pickle, sys\n"
        "from convwright.backends.triton.elementwise.offers import kernel_call\n"
        "kernel_call(pickle.load(sys.stdin.buffer)).compile('sm_90')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(candidate), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_without_a_gpu_it_says_so() -> None:
    if interpreting():
        return
    from convwright.measuring.hardware.machine import device_facts

    problem = parse('pointwise "a" ic8')
    (refusal,) = backend("triton", "pointwise").candidates(problem, device_facts("cpu"), Policy())
    assert isinstance(refusal, Refusal)
    assert "needs an NVIDIA GPU of architecture sm_80 or newer" in refusal.reason


def test_a_candidate_is_data() -> None:
    candidate = offered(parse('pointwise "a + s" mb2ic8ih6 s:1'))[0]
    assert pickle.loads(pickle.dumps(candidate)) == candidate
    assert json.dumps(candidate.to_json())


def test_what_they_compute_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_elementwise.py")


def test_memory_that_a_call_reads_lives_as_long_as_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    if interpreting():
        return
    import weakref

    FakeCudaDriver(monkeypatch)
    candidate = offered(parse('pointwise "a + 1" mb2ic8'))[0]
    plan = backend("triton", "pointwise").build(candidate, PRESENT)
    a, y = torch.zeros(2, 8), torch.zeros(2, 8)
    alive = weakref.ref(a)
    bound = bind(plan, {"a": a, "y": y})
    del a
    assert alive() is not None
    del bound
    assert alive() is None
