"""Emitted C on a live GPU: the bits and the times of the Python plan, on any stream, in a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.backends.cudnn.classic import listing as classic
from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit.chosen import by_name
from convwright.emit.literals import is_engine
from convwright.measuring.compare import Outcome
from emit.compiled import missing
from gpu.emitted import (
    InC,
    Operands,
    build,
    built,
    candidates_of,
    check_same,
    explained,
    in_python,
    scratch,
)

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

    def taken_bytes() -> int:
        torch.cuda.synchronize()
        free_bytes, _ = torch.cuda.mem_get_info()
        for _ in range(200):
            in_c(operands, out, workspace)
        torch.cuda.synchronize()
        return free_bytes - torch.cuda.mem_get_info()[0]

    assert min(taken_bytes() for _ in range(10)) <= 0  # other processes may take some meanwhile
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
