"""Convolutions of any sizes as C: the plans are those that Python makes, the choices those of the table or of cuDNN."""

from __future__ import annotations

import ctypes
import json
import threading
from ctypes import byref, c_size_t, c_void_p, create_string_buffer
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.attributes import Attribute
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, KindError, Measurement
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit import any_sizes
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.emitted import EmittedC
from convwright.emit.literals import row_sizes
from convwright.errors import BadInput
from convwright.store.store import Store
from emit.compiled import Sizes, missing, with_fake_device
from emit.forms import H200, algorithm

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed"),
]

ADDRESSES = {"x": 0x10000, "weight": 0x20000, "bias": 0x30000, "residual": 0x40000, "y": 0x50000}
PLENTY = 1 << 34
SIZES = [
    "mb2ic16ih10oc16kh3ph1",
    "mb2ic16ih10iw12oc24kh3kw5sh2sw1ph1pw2dh1dw0",
    "mb2ic16ih9oc32kh1",
    "g4mb2ic16ih10oc16kh3ph1",
    "g16mb2ic16ih10oc16kh3ph1",
    "mb2ic1ih20oc8kh3ph1",
    "mb2ic8ih1iw1oc8kh1kw1",
    "mb2ic8ih3iw3oc8kh3kw3",
    "mb2ic8ih1iw1oc8kh3kw3ph1pw1",
]


class Cache:
    """An emitted cache on a GPU that is played."""

    def __init__(self, emitted: EmittedC, folder: Path, *, limit: int = PLENTY, at_once: int = 2) -> None:
        self.library: Any = with_fake_device(emitted, folder)
        assert H200.properties_json is not None
        assert self.library.fake_device_is(H200.properties_json.encode()) == 0
        self.cache = c_void_p()
        assert self.library.conv_create(byref(self.cache), limit, at_once) == 0

    def run(self, problem: ConvProblem, stream: int = 0, **others: int | None) -> int:
        places: dict[str, int | None] = dict(ADDRESSES)
        if not problem.epilogue.bias:
            places["bias"] = None
        if not problem.epilogue.residual:
            places["residual"] = None
        places |= others
        return int(self.library.conv_run(self.cache, *row_sizes(problem), *places.values(), stream))

    def choice(self, problem: ConvProblem) -> str:
        text = create_string_buffer(512)
        code = self.library.conv_choice(self.cache, byref(Sizes(*row_sizes(problem))), text, len(text))
        assert code == 0, (code, self.library.conv_last_failure().said)
        return text.value.decode()

    def workspace_bytes(self, problem: ConvProblem) -> int:
        needed = c_size_t()
        assert self.library.conv_workspace_bytes(self.cache, byref(Sizes(*row_sizes(problem))), byref(needed)) == 0
        return needed.value

    def said(self) -> str:
        text = self.library.fake_said().decode()
        self.library.fake_forget()
        return str(text)


def proposed(problem: ConvProblem) -> list[Candidate]:
    offers = graph.candidates(problem, H200, Policy())
    return [offer for offer in offers if isinstance(offer, Candidate)]


def emitted(
    table: list[str], dtype: str = "fp32", layout: str = "nchw", epilogue: str = "none", **more: Any
) -> EmittedC:
    texts = [f"{text} dt:{dtype} tag:{layout} ep:{epilogue}" for text in table]
    return emit_c_dynamic(texts, dtype=dtype, layout=layout, epilogue=epilogue, device="h200", **more)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("from_table", [True, False], ids=["table", "heuristic"])
@pytest.mark.parametrize(
    ("dtype", "layout", "epilogue"),
    [
        ("fp32", "nchw", "none"),
        ("fp16", "nhwc", "bias+relu"),
        ("fp16", "nchw", "residual+relu"),
        ("bf16", "nhwc", "none"),
    ],
)
def test_plans_are_those_that_python_makes(
    dtype: str, layout: str, epilogue: str, from_table: bool, tmp_path: Path
) -> None:
    found = emitted(SIZES if from_table else [], dtype, layout, epilogue)
    assert not found.left_out
    cache = Cache(found, tmp_path)
    for text in SIZES:
        problem = ConvProblem.parse(f"{text} dt:{dtype} tag:{layout} ep:{epilogue}")
        expected = proposed(problem)[0]
        assert cache.choice(problem) == f"{expected.id} by the {'table' if from_table else 'heuristic'}"
        assert cache.workspace_bytes(problem) == expected.workspace_bytes
        assert cache.library.conv_grow_workspace(cache.cache, None, expected.workspace_bytes) == 0
        cache.said()
        assert cache.run(problem) == 0
        call, brace, told = cache.said().splitlines()[-1].partition("{")
        python = json.loads(graph.finalized(expected, H200).text(Attribute.PLAN_JSON))
        assert json.loads(brace + told)["operationGraph"] == python["operationGraph"], text
        assert f" 1:{ADDRESSES['x']:#x} 2:{ADDRESSES['weight']:#x} " in call
        assert f" 5:{ADDRESSES['y']:#x} " in call
    cache.library.conv_destroy(cache.cache)
    assert cache.library.fake_alive() == 0


def test_without_tf32_the_heuristic_takes_no_engine_that_rounds(tmp_path: Path) -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc64kh3ph1")
    engines = proposed(problem)
    exact = next(each for each in engines if each.arithmetic is Arithmetic.FP32)
    assert engines[0].arithmetic is Arithmetic.TF32
    cache = Cache(emitted([], policy=Policy(arithmetic=frozenset({Arithmetic.FP32}))), tmp_path)
    assert cache.choice(problem) == f"{exact.id} by the heuristic"


def test_the_workspace_limit_holds(tmp_path: Path) -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dt:fp16")
    needy = proposed(problem)[0]
    assert needy.workspace_bytes
    limit = needy.workspace_bytes - 1
    frugal = next(each for each in proposed(problem) if (each.workspace_bytes or 0) <= limit)
    for name, table in (("heuristic", []), ("table", ["mb32ic64ih56oc64kh3ph1"])):
        cache = Cache(emitted(table, "fp16"), tmp_path / name, limit=limit)
        assert cache.choice(problem) == f"{frugal.id} by the heuristic"
        cache.library.conv_destroy(cache.cache)
        assert cache.library.fake_alive() == 0


def test_another_version_of_cudnn_has_no_use_for_the_tables_engines(tmp_path: Path) -> None:
    found = emitted(SIZES[:1])
    version = next(line for line in found.source.splitlines() if line.startswith("#define CHOSEN_WITH_CUDNN"))
    other = replace(found, source=found.source.replace(version, "#define CHOSEN_WITH_CUDNN 90100"))
    assert Cache(other, tmp_path).choice(ConvProblem.parse(SIZES[0])).endswith("by the heuristic")


def test_a_row_that_cudnn_refuses_gives_way_to_the_heuristic(tmp_path: Path) -> None:
    found = emitted(SIZES[:1])
    engine = found.chosen[0].algorithm.removeprefix("engine-")
    broken = replace(found, source=found.source.replace(f"false, {{{engine}, ", "false, {9999, "))
    assert broken != found
    cache = Cache(broken, tmp_path)
    assert cache.choice(ConvProblem.parse(SIZES[0])).endswith("by the heuristic")
    cache.library.conv_destroy(cache.cache)
    assert cache.library.fake_alive() == 0


@pytest.mark.first_cases(5)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("text", SIZES)
def test_an_algorithm_in_the_table_is_described_as_python_describes_it(
    text: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from emit.test_one import described

    candidate = algorithm("winograd-nonfused", f"{text} tag:{layout}")
    monkeypatch.setattr(any_sizes, "best", lambda *_: (candidate, "by a test"))
    cache = Cache(emitted([text], layout=layout), tmp_path)
    assert cache.choice(candidate.problem) == "cudnn/winograd-nonfused by the table"
    assert cache.run(candidate.problem) == 3, "the stream has no workspace yet"
    assert cache.library.conv_set_workspace(cache.cache, None, 0x900000, 640) == 0
    assert cache.run(candidate.problem) == 0
    call = cache.said().splitlines()[-1]
    assert call.startswith("forward 7 factors 1 0 ")
    assert " workspace:0x900000 640 " in call
    assert described(candidate, cache.library) in call


def test_what_is_wrong_in_a_call_is_told(tmp_path: Path) -> None:
    cache = Cache(emitted([]), tmp_path)
    problem = ConvProblem.parse(SIZES[0])
    run, sizes = cache.library.conv_run, list(row_sizes(problem))
    pointers = [0x10000, 0x20000, None, None, 0x50000, None]
    assert run(cache.cache, *sizes, *pointers) == 0
    assert run(None, *sizes, *pointers) == 1
    for at, wrong in ((0, 0), (1, 15), (2, -3), (4, 1 << 40), (5, 99), (7, -1), (9, 0), (11, 0), (13, 0), (13, 3)):
        assert run(cache.cache, *[*sizes[:at], wrong, *sizes[at + 1 :]], *pointers) == (
            0 if (at, wrong) == (1, 15) else 1
        )
    assert run(cache.cache, *[2**31 - 1] * 7, *sizes[7:], *pointers) == 1
    assert cache.run(problem, x=None) == cache.run(problem, bias=0x30000) == 1
    assert cache.run(problem, y=0x50008) == 2
    assert cache.library.conv_create(byref(c_void_p()), PLENTY, 0) == 1
    assert cache.library.conv_set_workspace(cache.cache, 2, 0x900000, 640) == 1, "cudaStreamPerThread"
    assert cache.library.conv_set_workspace(cache.cache, None, 0x900010, 640) == 2


NEEDY = ConvProblem.parse("mb2ic16ih10oc16kh3ph1 dt:fp16")


def test_workspaces_belong_to_streams_and_grow_only_when_told(tmp_path: Path) -> None:
    cache = Cache(emitted([], "fp16"), tmp_path)
    needed = cache.workspace_bytes(NEEDY)
    assert needed > 0
    assert cache.library.conv_grow_workspace(cache.cache, 7, needed - 1) == 0
    assert cache.run(NEEDY, stream=7) == cache.run(NEEDY, stream=8) == 3
    assert cache.library.conv_grow_workspace(cache.cache, 7, needed) == 0
    assert [line for line in cache.said().splitlines() if "malloc" in line] == [
        f"malloc {needed - 1}",
        f"malloc {needed}",
    ]
    assert cache.run(NEEDY, stream=7) == 0
    assert cache.run(NEEDY, stream=8) == 3
    assert cache.library.conv_set_workspace(cache.cache, 8, 0x900000, needed) == 0
    assert cache.run(NEEDY, stream=8) == 0
    said = cache.said()
    assert "workspace:0x900000 " in said
    assert "malloc" not in said
    assert cache.library.conv_grow_workspace(cache.cache, 7, needed // 2) == 0
    assert cache.said() == "", "it is large enough"
    assert cache.library.conv_set_workspace(cache.cache, 8, None, 0) == 0
    assert cache.run(NEEDY, stream=8) == 3


def test_sizes_that_were_met_make_nothing_new(tmp_path: Path) -> None:
    cache = Cache(emitted([], epilogue="relu"), tmp_path)
    problems = [ConvProblem.parse(f"{text} ep:relu") for text in SIZES[:4]]
    for problem in problems:
        assert cache.library.conv_grow_workspace(cache.cache, None, cache.workspace_bytes(problem)) == 0
        assert cache.run(problem) == 0
    before = cache.library.fake_descriptors_made()
    cache.said()
    for problem in problems * 3:
        assert cache.run(problem) == 0
    assert cache.library.fake_descriptors_made() == before
    assert "malloc" not in cache.said()
    cache.library.conv_forget(cache.cache)
    assert cache.run(problems[0]) == 0
    assert cache.library.fake_descriptors_made() > before


@pytest.mark.parametrize("streams", [8, 2], ids=["own streams", "shared streams"])
def test_many_threads_share_plans_and_workspaces_and_mix_nothing_up(streams: int, tmp_path: Path) -> None:
    """The played device counts what two threads use at the same time: handles, plans, workspaces."""
    cache = Cache(emitted([], "fp16"), tmp_path, at_once=3)
    problems = [ConvProblem.parse(f"{text} dt:fp16") for text in SIZES[:5]]
    for stream in range(1, streams + 1):
        assert cache.library.conv_grow_workspace(cache.cache, 16 * stream, 1 << 26) == 0
    codes: list[int] = []

    def work(thread: int) -> None:
        random = Random(thread)
        for _ in range(30):
            at = random.randrange(len(problems))
            stream = 16 * (thread % streams + 1)
            codes.append(cache.run(problems[at], stream=stream, x=0x10000 * (thread + 1)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 240
    assert cache.library.fake_mixed_up() == 0
    assert on_their_streams(cache.said(), streams) == 240
    cache.library.conv_destroy(cache.cache)
    assert cache.library.fake_alive() == 0


def on_their_streams(said: str, streams: int) -> int:
    """How many calls ran on the stream of the thread that made them, which the address of x tells."""
    current: dict[str, int] = {}
    right = 0
    for line in said.splitlines():
        what, handle, *rest = line.split()
        if what == "stream":
            current[handle] = int(rest[0], 16)
        elif what == "execute":
            thread = int(rest[0].removeprefix("1:"), 16) // 0x10000 - 1
            right += current[handle] == 16 * (thread % streams + 1)
    return right


def stored(store: Store, problem: ConvProblem, candidate: str, device_us: float) -> None:
    from convwright.tuning import listing

    time = Interval(device_us, device_us, device_us)
    errors = (KindError("normal", 1e-7, 1.0),)
    measurement = Measurement(time, None, errors, 0, 10, (("mode", "full"),))
    print_ = listing.fingerprint(proposed(problem)[0], H200)
    store.record(problem.key, H200.key, candidate, print_, measurement, None)


def test_the_table_comes_from_the_store_unless_it_is_given() -> None:
    problem, other = ConvProblem.parse(SIZES[0]), ConvProblem.parse(f"{SIZES[1]} dt:fp16")
    slow, fast = proposed(problem)[:2]
    with Store.open(None) as store:
        stored(store, problem, slow.id, 90.0)
        stored(store, problem, fast.id, 10.0)
        stored(store, other, proposed(other)[0].id, 10.0)
        found = emit_c_dynamic(device="h200", store=store)
    assert [(row.problem, row.id) for row in found.chosen] == [(problem, fast.id)]
    assert found.left_out == ()


def test_what_is_no_problem_in_the_store_does_not_keep_others_from_the_table() -> None:
    problem = ConvProblem.parse(SIZES[0])
    with Store.open(None) as store:
        store.record("gemm 64x64", H200.key, "cudnn/gemm", "", None, "failed")  # as can be taken in from a file
        stored(store, problem, proposed(problem)[0].id, 10.0)
        found = emit_c_dynamic(device="h200", store=store)
    assert [row.problem for row in found.chosen] == [problem]


def test_a_store_may_be_named_by_its_path(tmp_path: Path) -> None:
    problem, path = ConvProblem.parse(SIZES[0]), tmp_path / "findings.sqlite"
    with Store.open(path) as store:
        stored(store, problem, proposed(problem)[0].id, 10.0)
    for place in (path, str(path)):
        assert [row.problem for row in emit_c_dynamic(device="h200", store=place).chosen] == [problem]


def test_the_choice_is_told_with_its_math(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = algorithm("winograd-nonfused", SIZES[0], Arithmetic.TF32)
    candidate = replace(plain, config=(("math", "tf32"),))
    monkeypatch.setattr(any_sizes, "best", lambda *_: (candidate, "by a test"))
    cache = Cache(emitted(SIZES[:1]), tmp_path)
    assert cache.choice(candidate.problem) == "cudnn/winograd-nonfused[math=tf32] by the table"


@pytest.mark.parametrize(
    ("device", "policy", "said", "allows"),
    [
        ("h200", Policy(arithmetic=frozenset({Arithmetic.FP32, Arithmetic.TF32})), "TF32 is allowed", 1),
        ("h200", Policy(arithmetic=frozenset({Arithmetic.FP32})), "TF32 is not allowed", 0),
        ("t4", None, "fp32; Tesla T4 has no TF32", 0),
    ],
)
def test_the_header_says_what_fp32_is_computed_in(device: str, policy: Policy | None, said: str, allows: int) -> None:
    found = emit_c_dynamic([], device=device, policy=policy)
    (line,) = (line for line in found.header.splitlines() if line.startswith("   arithmetic"))
    assert line.split(maxsplit=1)[1] == said
    assert f"#define ALLOWS_TF32 {allows}\n" in found.source


def test_what_fits_into_no_row_is_left_out_with_the_reason() -> None:
    odd = {
        "mb2ic16iw50oc16kw5pw2": "two dimensions",
        "mb2ic16ih10oc16kh3ph1 dir:backward_data": "forward",
        "mb2ic16ih10oc16kh3ph1 flip:1": "forward",
        "mb2ic16ih10oc16kh3ph1 dt:fp16": "fp32",
        "mb2ic16ih10oc16kh3ph1 ep:relu": "none",
        "mb1ic8ih9oc8oh9kh3ph0": "both sides",
        "mb2ic16ih10oc16kh3ph1 tag:nhwc": "dense in nchw",
        "mb2ic16ih10oc16kh3ph1 tag:x=nchw@4,w=nchw,y=nchw": "16 bytes",
        "mb0ic16ih10oc16kh3ph1": "empty tensors",
        "mb2000000000ic16ih10oc16kh3ph1": "GB of memory",
        "mb1ic16ih10oc16kh1sh4294967296": "sizes of at most 2,147,483,647, got 4,294,967,296",
    }
    found = emit_c_dynamic([SIZES[0], *odd, SIZES[0]], device="h200")
    assert len(found.chosen) == 1
    assert len(found.left_out) == len(odd)
    for (key, reason), (text, word) in zip(found.left_out, odd.items(), strict=True):
        assert key == ConvProblem.parse(text).key
        assert word in reason


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epilogue": "gelu"}, "fuses only residual, bias and relu .* got the epilogue gelu on forward"),
        ({"layout": "strided"}, "layout must be one of nchw, nhwc"),
        ({"dtype": "int4"}, "dtype must be one of"),
        ({"dtype": "int8"}, "a C file computes only fp64, fp32, fp16, bf16, got int8"),
        ({"table": "mb2ic16ih10oc16kh3ph1"}, "a list of problems"),
        ({"table": [3]}, "problems or their texts, got 3"),
        ({"table": [None]}, "problems or their texts, got None"),
        ({"table": 5}, "`table` must be a list of problems or their texts, got 5"),
        ({"dtype": None}, "dtype must be one of fp64, .*, got None"),
        ({"dtype": "bf16", "device": "t4"}, "Tesla T4 has no arithmetic for bf16"),
        ({"layout": None}, "layout must be one of nchw, nhwc, got None"),
        ({"epilogue": None}, r"`epilogue` must be a text such as 'bias\+relu', got None"),
        ({"store": 5}, "`store` must be a Store, its path or URL, or None"),
        ({"device": 5}, "got 5"),
        ({"name": 5}, "the name must have at most 40 letters, .* got 5"),
        ({"name": "pthread"}, "the name pthread is a header"),
        ({"device": "cpu"}, "NVIDIA GPU"),
        ({"name": "graph"}, "would give two things the name graph_"),
    ],
)
def test_bad_input_is_one_sentence(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words) as error:
        emit_c_dynamic(**{"device": "h200", "table": [], **arguments})
    assert "\n" not in str(error.value)


def test_a_problem_that_cudnn_refuses_is_known() -> None:
    """What the last row of the test above rests on."""
    (refusal,) = graph.candidates(ConvProblem.parse("mb0ic16ih10oc16kh3ph1"), H200, Policy())
    assert isinstance(refusal, Refusal)


def test_fields_of_sizes_are_those_of_the_header() -> None:
    header = emitted([]).header
    fields = [name for name, _ in Sizes._fields_]
    declared = header.partition("typedef struct conv_sizes {")[2].partition("} conv_sizes;")[0]
    positions = [declared.replace(",", " ").replace(";", " ").split().index(name) for name in fields]
    assert positions == sorted(positions)
    assert ctypes.sizeof(Sizes) == 14 * 8
