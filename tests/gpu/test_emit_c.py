"""Emitted C on a live GPU: the bits and the times of the Python plan, on any stream, in a graph, from many threads."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_size_t, c_void_p, create_string_buffer
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.graph import listing as graph
from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, native_arithmetic
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.chosen import by_name
from convwright.emit.literals import is_engine, row_sizes
from convwright.emit.one import emitted
from convwright.errors import BackendError, Refused
from convwright.measuring.compare import Outcome
from convwright.measuring.machine import device_facts
from convwright.tensors import empty
from emit.compiled import Sizes, missing, shared

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
    pytest.mark.skipif(missing("gcc") is not None, reason=str(missing("gcc"))),
]

CHANNELS_LAST = "dt:fp16 tag:nhwc"
PROBLEMS = [
    "mb2ic16ih12oc24kh3ph1",
    "mb2ic16ih12oc24kh3ph1 dt:fp64",
    f"mb2ic16ih12oc24kh3ph1 {CHANNELS_LAST}",
    "mb2ic16ih12oc24kh3ph1 dt:bf16 tag:nhwc ep:residual+bias+relu",
    *(f"mb2ic16ih12oc24kh3ph1 {CHANNELS_LAST} ep:{epilogue}" for epilogue in ("bias", "relu", "bias+relu")),
    "mb2ic16ih12oc24kh3ph1 ep:residual+bias",
    "mb2ic16ih12oc24kh3ph1 dir:backward_data",
    f"mb2ic16ih12oc24kh3ph1 {CHANNELS_LAST} dir:backward_data",
    "mb2ic16ih12oc24kh3ph1 dir:backward_weight",
    f"mb2ic16ih12oc24kh3ph1 {CHANNELS_LAST} dir:backward_weight",
    "mb2ic16iw50oc16kw5pw2",
    "mb2ic16iw50oc16kw5pw2 dt:fp16 tag:nhwc ep:bias+relu",
    "mb1ic8id6ih7iw8oc8kd3kh3kw3pd1ph1pw1",
    "g4mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc",
    "g16mb2ic16ih10iw12oc16kh3kw5sh2sw1ph1pw2dh1dw0",
    "mb1ic8ih9oc8oh9kh3ph0",
    "mb2ic16ih10oc16kh3ph1 flip:1",
]
# Large enough that a time says something, and of every form.
TIMED = [
    ("cudnn/gemm", "mb32ic64ih56oc64kh3ph1"),
    ("cudnn/winograd-nonfused", "mb32ic256ih14oc256kh3ph1"),
    ("first", f"mb32ic256ih14oc256kh3ph1 {CHANNELS_LAST} ep:bias+relu"),
    ("first", "mb32ic64ih56oc64kh3ph1 dir:backward_data"),
    ("cudnn/algo-1", "mb32ic64ih56oc64kh3ph1 dir:backward_weight"),
]
ENGINES_TRIED = 4
# Between two runs of what is not deterministic, relative L2.
LARGEST_DIFFERENCE = {
    Arithmetic.FP64: 1e-13,
    Arithmetic.FP32: 1e-5,
    Arithmetic.TF32: 2e-3,
    Arithmetic.FP16_ACC32: 2e-3,
    Arithmetic.BF16_ACC32: 2e-2,
}
TABLE = ["mb2ic16ih12oc24kh3ph1", "mb4ic64ih28oc64kh3ph1", "mb1ic3ih64oc32kh7sh2ph3"]
NOT_IN_TABLE = ["mb2ic16ih13oc24kh3ph1", "mb4ic64ih28oc128kh1", "mb1ic32ih20oc32kh3ph2dh1"]


@pytest.fixture(scope="module")
def live() -> DeviceFacts:
    return device_facts("cuda")


@dataclass
class Operands:
    """Everything that a plan is called with, from normal data, exactly as the problem's specs say."""

    problem: ConvProblem
    tensors: dict[Role, Tensor]

    @classmethod
    def of(cls, problem: ConvProblem, seed: int = 0) -> Operands:
        generator = torch.Generator("cuda").manual_seed(seed)
        made = {
            role: empty(spec, "cuda").copy_(torch.randn(spec.shape, device="cuda", generator=generator))
            for role, spec in problem.operands.items()
            if role is not problem.direction.output
        }
        return cls(problem, made)

    @property
    def multiplied(self) -> tuple[Tensor, Tensor]:
        first, second = self.problem.direction.operands
        return self.tensors[first], self.tensors[second]

    @property
    def added(self) -> tuple[Tensor | None, Tensor | None]:
        return self.tensors.get(Role.BIAS), self.tensors.get(Role.RESIDUAL)

    def out(self) -> Tensor:
        return empty(self.problem.output, "cuda").fill_(math.nan)


def scratch(nbytes: int) -> Tensor:
    """A workspace that is full of NaN."""
    return torch.full((nbytes,), 0xFF, dtype=torch.uint8, device="cuda")


def pointers(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None or not tensor.numel() else tensor.data_ptr() for tensor in tensors]


def explained(library: Any, code: int) -> str:
    failure = library.conv_last_failure()
    return f"{library.conv_text(code).decode()}: {failure.call} {failure.status_name} {failure.said}"


class InC:
    """A candidate as emitted C, called on PyTorch's current stream."""

    def __init__(self, candidate: Candidate, device: DeviceFacts, folder: Path) -> None:
        self.library: Any = shared(emitted(candidate, device, "conv", "by a test"), folder)
        self.plan = c_void_p()
        self.code = self.library.conv_create(byref(self.plan))
        self.workspace_bytes = self.library.conv_workspace_bytes(self.plan)

    def __call__(self, operands: Operands, out: Tensor, workspace: Tensor) -> Tensor:
        stream = torch.cuda.current_stream().cuda_stream
        given = pointers(*operands.multiplied, *operands.added, out, workspace)
        code = self.library.conv_run(self.plan, *given, stream)
        assert code == 0, explained(self.library, code)
        return out

    def destroy(self) -> None:
        torch.cuda.synchronize()
        self.library.conv_destroy(self.plan)


def in_python(plan: Plan, operands: Operands, out: Tensor, workspace: Tensor) -> Tensor:
    first, second = operands.multiplied
    packed = plan.prepare(second) if Role.W in operands.tensors else second
    return plan(first, packed, *operands.added, out, workspace)


def build(candidate: Candidate, device: DeviceFacts) -> Plan:
    return (graph if is_engine(candidate) else classic).build(candidate, device)


def built(candidate: Candidate, device: DeviceFacts) -> Plan | None:
    """None where cuDNN refuses, as it may when a plan is finalized."""
    try:
        return build(candidate, device)
    except (BackendError, Refused):
        return None


def candidates_of(text: str, device: DeviceFacts) -> list[Candidate]:
    """Every algorithm that serves, and the first engines that no compiler is needed for."""
    problem = ConvProblem.parse(text)
    offers = [*classic.candidates(problem, device, Policy()), *graph.candidates(problem, device, Policy())]
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    engines = [candidate for candidate in found if is_engine(candidate) and not candidate.compiles]
    return [*(candidate for candidate in found if not is_engine(candidate)), *engines[:ENGINES_TRIED]]


def check_same(candidate: Candidate, got: Tensor, expected: Tensor) -> None:
    """Bit for bit where the candidate is deterministic."""
    if candidate.deterministic:
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        return
    difference = (got.double() - expected.double()).norm() / expected.double().norm()
    assert difference.item() <= LARGEST_DIFFERENCE[candidate.arithmetic]


@pytest.mark.parametrize("text", PROBLEMS)
def test_c_computes_what_the_python_plan_computes(text: str, live: DeviceFacts, tmp_path: Path) -> None:
    operands, failures = Operands.of(ConvProblem.parse(text)), []
    candidates = candidates_of(text, live)
    assert candidates
    for number, candidate in enumerate(candidates):
        try:
            compare_outputs(candidate, operands, live, tmp_path / str(number))
        except AssertionError as failure:  # One report that names every candidate is worth more than the first.
            failures.append(f"{candidate.id}: {failure}")
    assert not failures, "\n".join(failures)


def compare_outputs(candidate: Candidate, operands: Operands, live: DeviceFacts, folder: Path) -> None:
    in_c, plan = InC(candidate, live, folder), built(candidate, live)
    if plan is None:
        assert in_c.code != 0, "what Python's plan refuses serves in C"
        return
    assert in_c.code == 0, explained(in_c.library, in_c.code)
    assert in_c.workspace_bytes == plan.workspace_bytes
    expected = in_python(plan, operands, operands.out(), scratch(plan.workspace_bytes))
    got = in_c(operands, operands.out(), scratch(in_c.workspace_bytes))
    torch.cuda.synchronize()
    assert not got.isnan().all()
    check_same(candidate, got, expected)
    in_c.destroy()


def chosen(name: str, text: str, live: DeviceFacts) -> Candidate:
    problem = ConvProblem.parse(text)
    if name != "first":
        return by_name(name, problem, live, Policy())
    return next(candidate for candidate in candidates_of(text, live) if is_engine(candidate))


@pytest.mark.parametrize(("name", "text"), TIMED)
def test_c_takes_as_long_as_the_python_plan(name: str, text: str, live: DeviceFacts, tmp_path: Path) -> None:
    """Both replayed from CUDA graphs, on the same operands, output and workspace."""
    candidate = chosen(name, text, live)
    operands, plan, in_c = Operands.of(candidate.problem), build(candidate, live), InC(candidate, live, tmp_path)
    assert in_c.code == 0, explained(in_c.library, in_c.code)
    out, workspace = operands.out(), scratch(plan.workspace_bytes)
    calls: dict[str, Callable[[], Tensor]] = {
        "c": lambda: in_c(operands, out, workspace),
        "python": lambda: in_python(plan, operands, out, workspace),
    }
    for budget_us in (1e6, 4e6):  # Another try is a longer one.
        found = cw.measure_together(calls, device="cuda", budget_us=budget_us)
        verdict = cw.compare(found["c"], found["python"])
        if verdict.outcome is Outcome.SAME:
            break
    assert verdict.outcome is not Outcome.SLOW, f"{candidate.id}: {verdict}"


def needy(live: DeviceFacts) -> Candidate:
    """An algorithm with a workspace, which calls that run at the same time must not share."""
    return by_name("cudnn/winograd-nonfused", ConvProblem.parse("mb4ic64ih28oc64kh3ph1"), live, Policy())


def test_one_object_serves_several_streams_in_turn(live: DeviceFacts, tmp_path: Path) -> None:
    candidate = needy(live)
    in_c, plan = InC(candidate, live, tmp_path), build(candidate, live)
    images = [Operands.of(candidate.problem, seed) for seed in range(40)]
    workspaces = [scratch(in_c.workspace_bytes) for _ in range(4)]
    expected = [in_python(plan, each, each.out(), workspaces[0]) for each in images]
    outs, streams = [each.out() for each in images], [torch.cuda.Stream() for _ in workspaces]
    torch.cuda.synchronize()
    for turn, (operands, out) in enumerate(zip(images, outs, strict=True)):
        with torch.cuda.stream(streams[turn % 4]):
            in_c(operands, out, workspaces[turn % 4])
    torch.cuda.synchronize()
    for out, right in zip(outs, expected, strict=True):
        check_same(candidate, out, right)
    in_c.destroy()


def test_runs_allocate_nothing_on_the_device_and_are_captured(live: DeviceFacts, tmp_path: Path) -> None:
    candidate = needy(live)
    in_c, operands = InC(candidate, live, tmp_path), Operands.of(candidate.problem)
    out, workspace = operands.out(), scratch(in_c.workspace_bytes)
    expected = in_c(operands, out, workspace).clone()
    torch.cuda.synchronize()
    free_bytes, _ = torch.cuda.mem_get_info()
    for _ in range(200):
        in_c(operands, out, workspace)
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= free_bytes
    out.fill_(math.nan)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        in_c(operands, out, workspace)
    assert out.isnan().all()
    captured.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


def test_what_cudnn_refuses_is_a_code_and_words(live: DeviceFacts, tmp_path: Path) -> None:
    problem = ConvProblem.parse("mb2ic16ih12oc24kh3ph1dh1")
    offers = classic.candidates(problem, live, Policy())
    served = {offer.algorithm for offer in offers if isinstance(offer, Candidate)}
    names = [each.name for each in classic.FAMILIES[problem.direction].algorithms]
    name = next(each for each in names if each not in served)
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    refused = Candidate(problem, "cudnn", name, (), arithmetic, None, True, Source.RULE)
    in_c = InC(refused, live, tmp_path)
    assert in_c.code in (5, 6)
    failure = in_c.library.conv_last_failure()
    assert failure.call == b"cudnnGetConvolutionForwardWorkspaceSize"
    assert failure.status_name.startswith(b"CUDNN_STATUS_")
    assert in_c.plan.value is None


class Dynamic:
    """An emitted cache."""

    def __init__(self, library: Any, *, limit: int = 1 << 30, at_once: int = 8) -> None:
        self.library = library
        self.cache = c_void_p()
        code = library.conv_create(byref(self.cache), limit, at_once)
        assert code == 0, explained(library, code)

    def __call__(self, operands: Operands, out: Tensor) -> Tensor:
        sizes, stream = row_sizes(operands.problem), torch.cuda.current_stream().cuda_stream
        code = self.library.conv_run(
            self.cache, *sizes, *pointers(*operands.multiplied, *operands.added, out), stream
        )  # fmt: skip
        assert code == 0, explained(self.library, code)
        return out

    def choice(self, problem: ConvProblem) -> str:
        text = create_string_buffer(512)
        code = self.library.conv_choice(self.cache, byref(Sizes(*row_sizes(problem))), text, len(text))
        assert code == 0, explained(self.library, code)
        return text.value.decode()

    def workspace_bytes(self, problem: ConvProblem) -> int:
        needed = c_size_t()
        code = self.library.conv_workspace_bytes(self.cache, byref(Sizes(*row_sizes(problem))), byref(needed))
        assert code == 0, explained(self.library, code)
        return needed.value

    def grow(self, nbytes: int) -> None:
        """The workspace of PyTorch's current stream."""
        code = self.library.conv_grow_workspace(self.cache, torch.cuda.current_stream().cuda_stream, nbytes)
        assert code == 0, explained(self.library, code)


@pytest.fixture(
    params=["dt:fp32 tag:nchw ep:none", "dt:fp16 tag:nhwc ep:bias+relu", "dt:fp16 tag:nhwc ep:residual+relu"]
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dynamic(kind: str, live: DeviceFacts, tmp_path: Path) -> Iterator[tuple[Dynamic, dict[ConvProblem, Candidate]]]:
    """A cache, and the candidates of its table."""
    words = dict(word.split(":") for word in kind.split())
    found = emit_c_dynamic(
        [f"{text} {kind}" for text in TABLE], dtype=words["dt"], layout=words["tag"], epilogue=words["ep"], device=live
    )
    assert not found.left_out
    made = Dynamic(shared(found, tmp_path))
    yield made, {candidate.problem: candidate for candidate in found.chosen}
    torch.cuda.synchronize()
    made.library.conv_destroy(made.cache)


def serving(cache: Dynamic, problem: ConvProblem, table: dict[ConvProblem, Candidate], live: DeviceFacts) -> Candidate:
    """The candidate that the cache says it runs."""
    name, _, source = cache.choice(problem).rpartition(" by the ")
    assert source == ("table" if problem in table else "heuristic")
    if problem in table and not is_engine(table[problem]):
        return table[problem]
    candidate = by_name(name, problem, live, Policy())
    assert problem not in table or candidate == table[problem]
    return candidate


def answers(
    cache: Dynamic, table: dict[ConvProblem, Candidate], kind: str, live: DeviceFacts
) -> list[tuple[Candidate, Operands, Tensor]]:
    """For each of the sizes what runs there, operands, and what the Python plan makes of them."""
    made = []
    for text in (*TABLE, *NOT_IN_TABLE):
        operands = Operands.of(ConvProblem.parse(f"{text} {kind}"))
        candidate = serving(cache, operands.problem, table, live)
        plan = build(candidate, live)
        assert cache.workspace_bytes(operands.problem) == plan.workspace_bytes
        expected = in_python(plan, operands, operands.out(), scratch(plan.workspace_bytes))
        made.append((candidate, operands, expected))
    torch.cuda.synchronize()
    return made


def test_any_sizes_are_computed_as_the_python_plan_does(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str, live: DeviceFacts
) -> None:
    cache, table = dynamic
    for candidate, operands, expected in answers(cache, table, kind, live):
        cache.grow(cache.workspace_bytes(operands.problem))
        got = cache(operands, operands.out())
        torch.cuda.synchronize()
        check_same(candidate, got, expected)


def test_eight_threads_share_a_cache_on_streams_of_their_own(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str, live: DeviceFacts
) -> None:
    cache, table = dynamic
    cases = answers(cache, table, kind, live)
    most = max(cache.workspace_bytes(operands.problem) for _, operands, _ in cases)
    cache.library.conv_forget(cache.cache)  # so that the threads meet the sizes for the first time, all at once
    failures: list[str] = []

    def work(number: int) -> None:
        try:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):
                cache.grow(most)
                run_at_random(cache, cases, Random(number))
        except BaseException as failure:
            failures.append(f"thread {number}: {failure!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "\n".join(failures)


def run_at_random(cache: Dynamic, cases: list[tuple[Candidate, Operands, Tensor]], random: Random) -> None:
    for _ in range(100):
        candidate, operands, expected = random.choice(cases)
        got = cache(operands, operands.out())
        torch.cuda.current_stream().synchronize()
        check_same(candidate, got, expected)


def test_a_cache_takes_as_long_as_the_python_plan_and_is_captured(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str, live: DeviceFacts
) -> None:
    cache, table = dynamic
    problem = next(problem for problem in table if problem.c == 64)
    operands, plan = Operands.of(problem), build(table[problem], live)
    nbytes = cache.workspace_bytes(problem)
    out, workspace = operands.out(), scratch(nbytes)

    def in_c() -> Tensor:
        # The timer captures on a stream of its own, and a workspace belongs to a stream.
        stream = torch.cuda.current_stream().cuda_stream
        code = cache.library.conv_set_workspace(cache.cache, stream, *pointers(workspace), nbytes)
        assert code == 0, explained(cache.library, code)
        return cache(operands, out)

    calls = {"c": in_c, "python": lambda: in_python(plan, operands, out, workspace)}
    for budget_us in (1e6, 4e6):  # Another try is a longer one.
        found = cw.measure_together(calls, device="cuda", budget_us=budget_us)
        verdict = cw.compare(found["c"], found["python"])
        if verdict.outcome is Outcome.SAME:
            break
    assert verdict.outcome is not Outcome.SLOW, f"{table[problem].id}: {verdict}"


def test_a_stream_without_a_workspace_runs_nothing(
    dynamic: tuple[Dynamic, dict[ConvProblem, Candidate]], kind: str
) -> None:
    cache, table = dynamic
    hungry = next((problem for problem in table if cache.workspace_bytes(problem)), None)
    if hungry is None:
        pytest.skip("nothing in the table needs a workspace on this GPU")
    operands = Operands.of(hungry)
    out = operands.out()
    given = pointers(*operands.multiplied, *operands.added, out)
    library: ctypes.CDLL = cache.library
    assert library.conv_run(cache.cache, *row_sizes(hungry), *given, torch.cuda.Stream().cuda_stream) == 3
    torch.cuda.synchronize()
    assert out.isnan().all()
