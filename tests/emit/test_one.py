"""One convolution as C: it tells cuDNN what the Python plan tells it, and says what fails."""

from __future__ import annotations

import ctypes
import json
from ctypes import byref, c_void_p
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convwright.backends.cudnn.classic.descriptors import describe
from convwright.backends.cudnn.classic.listing import FAMILIES
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.attributes import Attribute
from convwright.backends.cudnn.library import Library, Missing, load
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.emit.emitted import EmittedC
from convwright.emit.one import emit_c
from emit.compiled import missing, shared, with_fake_device
from emit.forms import ALGORITHMS, ENGINES, H200, algorithm, engine, of

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed"),
]

PLACES = ("first", "second", "bias", "residual", "out")
ADDRESSES = {place: 0x10000 * number for number, place in enumerate(PLACES, start=1)}
WORKSPACE, STREAM = 0x900000, 0x77


class Played:
    """An emitted plan on a GPU that is played."""

    def __init__(self, candidate: Candidate, folder: Path) -> None:
        self.problem = candidate.problem
        self.library = with_fake_device(of(candidate), folder)
        assert H200.properties_json is not None
        assert self.library.fake_device_is(H200.properties_json.encode()) == 0
        self.plan = c_void_p()
        self.created = self.library.conv_create(byref(self.plan))

    def run(self, stream: int = STREAM, workspace: int | None = WORKSPACE, **others: int | None) -> int:
        epilogue = self.problem.epilogue
        places: dict[str, int | None] = dict(ADDRESSES)
        if not epilogue.bias:
            places["bias"] = None
        if not epilogue.residual:
            places["residual"] = None
        places |= others
        return int(self.library.conv_run(self.plan, *places.values(), workspace, stream))

    def said(self) -> str:
        text = self.library.fake_said().decode()
        self.library.fake_forget()
        return str(text)


def played(text: str, folder: Path) -> Played:
    made = Played(engine(text), folder)
    assert made.created == 0, made.library.conv_last_failure().said
    return made


@pytest.mark.first_cases(6)
@pytest.mark.parametrize("text", ENGINES)
def test_an_engine_is_the_plan_that_python_makes(text: str, tmp_path: Path) -> None:
    candidate, plan = engine(text), played(text, tmp_path)
    assert plan.library.conv_workspace_bytes(plan.plan) == candidate.workspace_bytes
    assert plan.run() == 0
    said = plan.said()
    call, brace, told = said.splitlines()[-1].partition("{")
    assert json.loads(brace + told) == json.loads(graph.finalized(candidate, H200).text(Attribute.PLAN_JSON))
    pointers = dict(part.split(":") for part in call.split() if ":" in part)
    zeros = pointers.get("3")
    expected = addresses_by_uid(candidate.problem)
    if candidate.problem.epilogue and not candidate.problem.epilogue.bias:
        assert zeros not in (None, "(nil)")
        expected["3"] = str(zeros)
    workspace = hex(WORKSPACE) if candidate.workspace_bytes else "(nil)"
    assert pointers == {**expected, "workspace": workspace}
    plan.library.conv_destroy(plan.plan)
    assert plan.library.fake_alive() == 0


def addresses_by_uid(problem: ConvProblem) -> dict[str, str]:
    uids = {role: str(number) for number, role in enumerate(Role, start=1)}
    first, second = problem.direction.operands
    places = {"first": first, "second": second, "out": problem.direction.output}
    places |= {"bias": Role.BIAS} if problem.epilogue.bias else {}
    places |= {"residual": Role.RESIDUAL} if problem.epilogue.residual else {}
    return {uids[role]: hex(ADDRESSES[place]) for place, role in places.items()}


@pytest.mark.first_cases(5)
@pytest.mark.parametrize(("name", "text"), ALGORITHMS)
def test_an_algorithm_is_described_as_python_describes_it(name: str, text: str, tmp_path: Path) -> None:
    candidate = algorithm(name, text)
    plan = Played(candidate, tmp_path)
    assert plan.created == 0
    assert plan.library.conv_workspace_bytes(plan.plan) == 640
    assert plan.run() == 0
    call = plan.said().splitlines()[-1]
    assert described(candidate, plan.library) in call
    number = next(a.number for a in FAMILIES[candidate.problem.direction].algorithms if a.name == name)
    epilogue = candidate.problem.epilogue
    function = "fused" if epilogue else candidate.problem.direction
    factors = "1 1" if epilogue.residual else "1 0"
    assert call.startswith(f"{function} {number} factors {factors} ")
    for place in ("first", "second", "out"):
        assert f" {place}:{ADDRESSES[place]:#x} " in call
    assert f" workspace:{WORKSPACE:#x} 640 " in call
    if epilogue:
        check_epilogue(candidate.problem, call)
    plan.library.conv_destroy(plan.plan)
    assert plan.library.fake_alive() == 0


def described(candidate: Candidate, library: ctypes.CDLL) -> str:
    """The descriptors that Python makes, as the played device tells them."""
    cudnn = load()
    assert isinstance(cudnn, Library)
    found = describe(cudnn, candidate.problem, candidate.arithmetic)
    library.fake_forget()
    library.fake_tell(found.x, found.w, found.y, found.convolution)
    return str(library.fake_said().decode())


def check_epilogue(problem: ConvProblem, call: str) -> None:
    epilogue = problem.epilogue
    residual = ADDRESSES["residual" if epilogue.residual else "out"]
    assert f" residual:{residual:#x} " in call, "one that is scaled by 0 has an address that is valid"
    assert (f" bias:{ADDRESSES['bias']:#x} " in call) is epilogue.bias
    assert "bias:(nil)" not in call
    assert f" b {'2' if problem.dtype == 'fp16' else '0'} 1,{problem.k},1,1 {problem.k},1,1,1" in call
    assert f" activation {1 if epilogue.activation == 'relu' else 5} nan 1" in call


@pytest.mark.parametrize(("arithmetic", "math"), [(Arithmetic.FP32, 3), (Arithmetic.TF32, 0)])
def test_tf32_is_forbidden_unless_it_was_chosen(arithmetic: Arithmetic, math: int, tmp_path: Path) -> None:
    plan = Played(algorithm("gemm", "mb2ic16ih10oc16kh3ph1", arithmetic), tmp_path)
    assert plan.run() == 0
    assert f"math {math}\n" in plan.said()


def test_an_algorithm_that_cudnn_refuses_is_told_at_creation(tmp_path: Path) -> None:
    plan = Played(algorithm("direct", "mb2ic16ih10oc16kh3ph1"), tmp_path)
    plan.library.fake_answer(3000, 0)
    other = c_void_p()
    assert plan.library.conv_create(byref(other)) == 5
    assert other.value is None
    failure = plan.library.conv_last_failure()
    assert (failure.call, failure.status) == (b"cudnnGetConvolutionForwardWorkspaceSize", 3000)
    assert failure.status_name == b"CUDNN_STATUS_NOT_SUPPORTED"


def test_an_engine_that_cudnn_refuses_is_told_at_creation(tmp_path: Path) -> None:
    plan = Played(replace(engine(ENGINES[0]), algorithm="engine-9999"), tmp_path)
    refused = plan.library.conv_last_failure().status // 1000 == 3
    assert plan.created == (5 if refused else 6)
    assert plan.plan.value is None
    assert plan.library.conv_last_failure().call == b"cudnnBackendFinalize"
    assert plan.library.fake_alive() == 0, "what was made before is given back"


def test_what_the_classic_api_has_no_numbers_for_is_told_at_creation(tmp_path: Path) -> None:
    plan = Played(algorithm("gemm", "mb2ic16ih10oc16kh1sh4294967296"), tmp_path)
    assert (plan.created, plan.plan.value) == (1, None)
    assert plan.library.fake_alive() == 0


NEEDY = "mb2ic16ih10oc16kh3ph1 dt:fp16"


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ({"first": None}, 1),
        ({"out": None}, 1),
        ({"bias": ADDRESSES["bias"]}, 1),
        ({"residual": ADDRESSES["residual"]}, 1),
        ({"second": ADDRESSES["second"] + 2}, 2),
        ({"out": ADDRESSES["out"] + 8}, 2),
        ({"workspace": None}, 3),
        ({"workspace": WORKSPACE + 16}, 2),
    ],
)
def test_what_is_wrong_in_a_run_is_told_and_nothing_runs(
    others: dict[str, int | None], code: int, tmp_path: Path
) -> None:  # fmt: skip
    plan = played(NEEDY, tmp_path)
    assert plan.library.conv_workspace_bytes(plan.plan) > 0
    plan.said()
    assert plan.run(**others) == code
    assert plan.said() == ""
    assert plan.run() == 0


def test_every_code_has_a_text(tmp_path: Path) -> None:
    library = shared(of(engine(ENGINES[0]), "mine"), tmp_path)
    texts = [library.mine_text(code) for code in range(9)]
    assert len(set(texts)) == 9
    assert library.mine_text(99) == library.mine_text(-1) == b"an unknown code"


def test_nothing_is_a_bad_argument_and_nothing_to_destroy(tmp_path: Path) -> None:
    library = shared(of(engine(ENGINES[0])), tmp_path)
    assert library.conv_create(None) == library.conv_run(*[None] * 8) == 1
    assert library.conv_workspace_bytes(None) == 0
    library.conv_destroy(None)


def test_known_addresses_make_no_descriptor(tmp_path: Path) -> None:
    plan = played(ENGINES[0], tmp_path)
    outs = [ADDRESSES["out"] + 0x100 * i for i in range(17)]
    for out in outs[:16]:
        assert plan.run(out=out) == 0
    before = plan.library.fake_descriptors_made()
    for out in outs[:16]:
        assert plan.run(out=out) == 0
    assert plan.library.fake_descriptors_made() == before
    assert plan.run(out=outs[16]) == 0, "one more takes the place of the oldest"
    assert plan.run(out=outs[16]) == plan.run(out=outs[1]) == 0
    assert plan.library.fake_descriptors_made() == before + 1
    plan.said()
    assert plan.run(out=outs[0]) == 0
    assert plan.library.fake_descriptors_made() == before + 2
    assert f"5:{outs[0]:#x}" in plan.said()
    plan.library.conv_destroy(plan.plan)
    assert plan.library.fake_alive() == 0


def test_a_workspace_without_need_tells_no_calls_apart(tmp_path: Path) -> None:
    plan = played(ENGINES[0], tmp_path)
    assert plan.library.conv_workspace_bytes(plan.plan) == 0
    assert plan.run() == plan.run(workspace=None) == 0
    assert plan.said().count("workspace:(nil)") == 2


def test_the_stream_is_the_one_of_the_call(tmp_path: Path) -> None:
    plan = played(ENGINES[0], tmp_path)
    for stream in (0, 7, 7, 8, 0):
        assert plan.run(stream=stream) == 0
    streams = [line.split()[-1] for line in plan.said().splitlines() if line.startswith("stream")]
    assert streams == ["0x7", "0x8", "(nil)"]


def test_another_version_of_cudnn_is_refused_unless_that_is_wanted(tmp_path: Path) -> None:
    found = of(engine(ENGINES[0]))
    library = load()
    assert isinstance(library, Library)
    number = f"CHOSEN_WITH_CUDNN {library.version}"
    assert number in found.source
    other = EmittedC("conv", found.header, found.source.replace(number, "CHOSEN_WITH_CUDNN 90100"), ())
    plan = c_void_p()
    assert shared(other, tmp_path / "strict").conv_create(byref(plan)) == 8
    lenient = shared(other, tmp_path / "lenient", "-std=c11", "-DCONV_ANY_CUDNN")
    assert lenient.conv_create(byref(plan)) != 8


def test_the_header_says_where_everything_goes() -> None:
    header = of(algorithm("implicit-precomp-gemm", "mb2ic16ih10oc24kh3ph1 ep:residual+relu"), "mine").header
    for line in (
        "first     x: fp32, sizes 2, 16, 10, 10, strides 1600, 100, 10, 1, aligned to 16 bytes",
        "second    w: fp32, sizes 24, 16, 3, 3,",
        "bias      NULL",
        "residual  residual: fp32, sizes 2, 24, 10, 10",
        "out       y: fp32",
        "96 bytes of zeros",
    ):
        assert line in header
    assert "conv" not in header.replace("convolution", "").replace("convwright", "")
    assert "@" not in header


def test_both_names_of_the_problem_are_the_same() -> None:
    text, options = "mb2ic16ih10oc16kh3ph1", {"device": "h200", "algorithm": engine(ENGINES[0]).id}
    arguments: Any = options
    assert emit_c(text, **arguments) == emit_c(ConvProblem.parse(text), **arguments)
