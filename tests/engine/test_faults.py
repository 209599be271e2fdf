"""What goes wrong while an engine is made and while it runs: one sentence, and the engine goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import convwright as cw
from convwright import torch_api
from convwright.backends.torch_native.pooling import TorchPool
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.engine.engine import Engine
from convwright.engine.running import arena
from convwright.engine.running.failure import OnFailure
from convwright.errors import BadInput, FailureWarning, StepFailed
from convwright.shortage import OutOfMemory
from convwright.tuning.asked import named
from engine.changed_plan import write
from engine.random_network import RandomNetwork
from forked import in_child

X = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.MaxPool2d(2)).eval()


def engine(model: nn.Module, *inputs: Tensor, **options: Any) -> Engine:
    made = cw.optimize(model.eval(), inputs, mode="heuristic", **options)
    assert isinstance(made, Engine)
    return made


# A kernel that fails.


class Flaky:
    """Lets plans for pools raise an error from a given call on. Those of PyTorch's own call go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        build = TorchPool.build

        def broken(backend: TorchPool, candidate: Candidate, device: DeviceFacts) -> RolePlan:
            plan = build(backend, candidate, device)
            if candidate.id == "torch/default":
                return plan
            bind = plan.bind

            def bound(operands: Any, workspace: Tensor | None = None) -> Bound:
                run = bind(operands, workspace)

                def call() -> Tensor:
                    if self.error is not None:
                        raise self.error
                    return run()

                return call

            plan.bind = bound  # type: ignore[method-assign]
            return plan

        monkeypatch.setattr(TorchPool, "build", broken)


def with_pool_into(model: nn.Module, **options: Any) -> Engine:
    """An engine whose pool is another candidate than PyTorch's own call."""
    made = engine(model, X, **options)
    steps = [
        replace(step, candidate=named("torch/into", step.candidate.problem, made.facts, cw.Policy()))
        if step.candidate is not None and step.operation.kind == "pool" else step
        for step in made.assignment.steps
    ]  # fmt: skip
    changed = replace(made.assignment, steps=tuple(steps))
    on_failure = OnFailure(options.get("on_failure", "raise"))
    return Engine(replace(made.blueprint, assignment=changed), made.facts, on_failure)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Flaky:
    return Flaky(monkeypatch)


def test_a_kernel_that_fails_is_named(flaky: Flaky) -> None:
    made = with_pool_into(net())
    right = made(X)
    flaky.error = ValueError("no luck\nat all")
    said = r"step 3 \(torch/into\) failed: no luck; engine\.pin\('3'\) lets PyTorch compute it"
    with pytest.raises(StepFailed, match=said) as caught:
        made(X)
    assert caught.value.__cause__ is flaky.error
    assert_close(made.pin("3")(X), right)
    flaky.error = None
    assert torch.equal(made(X), right)


def test_pytorch_computes_what_fails_where_that_is_asked_for(flaky: Flaky) -> None:
    made = with_pool_into(net(), on_failure="torch")
    right, flaky.error = made(X), RuntimeError("CUDA error: an illegal instruction")
    with pytest.warns(FailureWarning, match=r"PyTorch computes 3 from now on: step 3 \(torch/into\) failed: CUDA"):
        assert_close(made(X), right)
    assert [step.candidate.id for step in made.assignment.steps if step.operation.kind == "pool"] == ["torch/default"]
    assert_close(made(X + 1), net()(X + 1))


# No memory.


def test_no_memory_for_an_engine_is_one_sentence() -> None:
    made = engine(nn.Upsample(scale_factor=1_000_000, mode="bicubic"), X)
    with pytest.raises(
        OutOfMemory, match=r"^out of memory in step upsample_bicubic2d \(aten\.upsample_bicubic2d\.vec\) of the engine$"
    ):
        made(X)


def test_an_engine_without_workspaces_is_made_where_there_is_no_memory_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed: list[int | None] = []
    made_so = arena.aligned_bytes

    def scarce(nbytes: int, device: torch.device) -> Tensor:
        allowed.append(nbytes)
        if len(allowed) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return made_so(nbytes, device)

    monkeypatch.setattr(arena, "aligned_bytes", scarce)
    made = engine(net(), X)
    assert all(step.candidate is None or not step.candidate.workspace_bytes for step in made.assignment.steps)
    assert_close(made(X), net()(X))
    assert len(allowed) == 2


def test_an_engine_works_again_after_a_run_without_memory(flaky: Flaky) -> None:
    made = with_pool_into(net(), on_failure="torch")
    right, flaky.error = made(X), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(OutOfMemory, match=r"^out of memory in step 3 \(torch/into\) of the engine$"):
        made(X)
    flaky.error = None
    assert torch.equal(made(X), right)
    assert made.assignment.steps[-1].candidate.id == "torch/into"  # type: ignore[union-attr]


# Threads and forks.


def test_threads_take_turns() -> None:
    model, x = RandomNetwork(4), torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    inputs = [torch.randn(2, 4, 8, 8) for _ in range(8)]
    expected = [torch_api.flatten(made(each))[0] for each in inputs]

    def run(number: int) -> None:
        for _ in range(10):
            for got, right in zip(torch_api.flatten(made(inputs[number]))[0], expected[number], strict=True):
                assert torch.equal(got, right)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [None] * 8


def test_an_engine_works_in_a_fork_even_where_another_thread_has_its_turn() -> None:
    made = engine(net(), X)
    right = made(X)
    with made.turn:  # as a thread that does not exist in the child
        said = in_child(lambda: torch.equal(made(X), right))
    assert said == "True"
    assert torch.equal(made(X), right)


# What an engine is given.


def test_unusual_tensors_are_read_as_they_are() -> None:
    model = net()
    made = engine(model, X)
    strided = torch.randn(2, 8, 6, 12)[:, ::2, :, ::2]
    given = [
        strided, strided.transpose(2, 3), torch.randn(1, 4, 1, 1).expand(2, 4, 6, 6), X.clone().requires_grad_(),
        nn.Parameter(X.clone()), torch._neg_view(X), torch.view_as_complex(torch.randn(2, 4, 6, 6, 2)).conj().imag,
        X.to(memory_format=torch.channels_last), torch.randn(289)[1:].view(2, 4, 6, 6), X.flip(3),
    ]  # fmt: skip
    for each in given:
        with torch.no_grad():
            assert_close(made(each), model(each))


@pytest.fixture(scope="module")
def relu() -> Engine:
    return engine(nn.ReLU(), X)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (X.to_sparse(), "`input` must be a dense tensor, got a sparse one"),
        (X.to("meta"), "`input` must be on cpu, got one on meta"),
        (X.half(), r"`input` must be torch.float32 \(2, 4, 6, 6\), got torch.float16"),
        (X[0], r"`input` must be torch.float32 \(2, 4, 6, 6\), got torch.float32 \(4, 6, 6\)"),
        ([X, X], "the engine takes 1 tensor, got 2"),
    ],
)
def test_what_an_engine_does_not_take_is_one_sentence(relu: Engine, wrong: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        relu(wrong)


def test_one_tensor_given_twice_and_inputs_as_outputs() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor, z: Tensor) -> Any:
            return x * 2 + z, x, z.flatten(1), x[:, 1:2], x.transpose(1, 2)

    made, x = engine(Both(), X, X + 1), X.clone()
    got = made(x, x)
    right = [each.clone() for each in Both()(x, x)]
    assert got[1] is x
    made(X * 5, X * 7)
    assert all(map(torch.equal, got, right))
    x.zero_()  # what is no input itself has memory of its own
    assert all(map(torch.equal, (got[2], got[3], got[4]), right[2:]))


def test_what_no_model_is_is_one_sentence() -> None:
    for example, said in (((), "must be a tensor"), ((X, 3), "made of tensors"), ((X.to_sparse(),), "dense")):
        with pytest.raises(BadInput, match=said):
            cw.optimize(net(), example, mode="heuristic")
    with pytest.raises(BadInput, match="on_failure must be one of raise, torch"):
        engine(net(), X, on_failure="ignore")


# Equal findings, equal plans.


def test_another_process_makes_the_same_plan(tmp_path: Path) -> None:
    engine(RandomNetwork(8, 12), torch.ones(2, 4, 8, 8)).save(tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    write(tmp_path, plan | {"device": "another"})
    text = (
        "import convwright as cw, sys, torch; torch.set_num_threads(int(sys.argv[2]));"
        "cw.load(sys.argv[1], 'cpu', on_change='replan', mode='heuristic').save(sys.argv[1] + '/again')"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-c", text, str(tmp_path), str(torch.get_num_threads())], env=environment, check=True
    )
    again = json.loads((tmp_path / "again" / "plan.json").read_text())
    assert again == plan
