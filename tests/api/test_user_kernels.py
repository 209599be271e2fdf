"""Kernels of a user's own: what they are asked, how they are checked, and what is said of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.backends import registry
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.errors import BackendError, BadInput, Refused
from convwright.measuring.checking.error import measure_errors
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.compile_queue import is_compiled_apart
from convwright.tuning.trials import isolation
from convwright.tuning.trials.search_input import SearchInput
from convwright.tuning.trials.trial import Bench, Trial

SIXTEEN = f'pointwise "{" + ".join("a" * 16)}" mb2ic8ih64'


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for kind in registry.kinds():
        registry.register(kind, None)


def always(problem: Any) -> bool:
    return True


def register(
    name: str, run: Any, kind: str = "pointwise", serves: Any = always, version: str = "1", **how: Any
) -> None:
    cw.register_kernel(name, run, kind=kind, serves=serves, version=version, **how)


def found(text: str = SIXTEEN, *, store: Store | str = "none", **how: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """What is said of candidates, and of those that were refused."""
    seen = cw.find(text, device="cpu", store=store, **{"mode": "heuristic", **how})
    refused = {refusal.id: refusal.reason for refusal in seen.refusals}
    return {verdict.finding.candidate.id: verdict for verdict in seen.verdicts}, refused


def sixteenfold(problem: Any) -> Any:
    return lambda a: a * 16


# Competing.


def test_the_fastest_that_is_right_wins() -> None:
    register("right", sixteenfold)
    register("wrong", lambda problem: lambda a: a.clone())
    register("lower", lambda problem: lambda a, y: y[:1].copy_(a[:1] * 16), writes_out=True)
    rows, _ = found(mode="quick", budget_us=1e6)
    assert rows["user/right"].won
    for name in ("wrong", "lower"):
        assert not rows[f"user/{name}"].allowed


def test_what_is_not_written_is_not_right() -> None:
    """Outputs hold NaN before."""
    register("half", lambda problem: lambda a, y: y[:1].copy_(a[:1] * 16), writes_out=True)
    rows, _ = found(mode="quick")
    assert "wrong infinities or NaNs" in rows["user/half"].reason


def test_an_operand_that_is_changed_is_a_failure() -> None:
    register("changes", lambda problem: lambda a: a.mul_(16).clone())
    rows, _ = found(mode="quick")
    assert rows["user/changes"].reason == "failed: it changes its operand `a`"


def test_what_it_raises_is_its_failure() -> None:
    def run(problem: Any) -> Any:
        def compute(a: Tensor) -> Tensor:
            raise ValueError("no luck")

        return compute

    register("unlucky", run)
    register("nothing", lambda problem: None)
    register("other", lambda problem: lambda a: a.double() * 16)
    register("number", lambda problem: lambda a: 16)
    rows, _ = found(mode="quick")
    wanted = r"must return a tensor of torch.float32 (2, 8, 64, 64) on cpu, got"
    for name, said in (
        ("unlucky", "raised ValueError: no luck (test_user_kernels.py, line "),
        ("nothing", ": its `run` must return a function, got None"),
        ("other", f"{wanted} torch.float64 (2, 8, 64, 64) on cpu"),
        ("number", f"{wanted} int"),
    ):
        assert f"failed: the registered kernel '{name}'" in rows[f"user/{name}"].reason
        assert said in rows[f"user/{name}"].reason


def test_another_process_does_not_know_it() -> None:
    register("right", sixteenfold)
    candidate, facts = found()[0]["user/right"].finding.candidate, device_facts("cpu")
    search = SearchInput(candidate.problem, facts, Policy(), None, {}, Mode.QUICK, Budget(1e6))
    (told,) = isolation.measure_candidates([candidate], search)
    assert (
        told.note == "was not measured: it is registered only in this process, but candidates are measured in another"
    )
    assert not is_compiled_apart(candidate)
    assert pickle.loads(pickle.dumps(candidate)) == candidate  # it holds no function


# Findings of a version.


def known(store: Store) -> bool:
    rows, _ = found(store=store)
    return rows["user/right"].finding.measurement is not None


def test_findings_count_for_one_version() -> None:
    with Store.open(None) as store:
        register("right", sixteenfold)
        found(mode="quick", store=store)
        assert known(store)
        register("other", sixteenfold, serves=lambda problem: False)
        assert known(store)
        register("right", sixteenfold, version="2")
        assert not known(store)
        register("right", sixteenfold)
        assert known(store)


def test_a_search_is_made_again_where_there_is_another_kernel() -> None:
    called: list[int] = []

    def run(problem: Any) -> Any:
        called.append(1)
        return sixteenfold(problem)

    with Store.open(None) as store:
        found(mode="quick", store=store)
        for version in ("1", "2"):
            register("right", run, version=version)
            found(mode="quick", store=store)
            made = len(called)
            assert made
            found(mode="quick", store=store)
            assert len(called) == made
            called.clear()
        cw.unregister_kernel("right")
        assert "user/right" not in found(mode="quick", store=store)[0]


def test_a_plan_is_that_of_the_kernel_as_it_is_now() -> None:
    x = torch.ones(2, 8, 64, 64)
    for factor in (16, 3):
        register("right", lambda problem, factor=factor: lambda a: a * factor)
        assert_close(cw.plan(SIXTEEN, device="cpu", algorithm="user/right")(x), factor * x)
    kept = cw.plan(SIXTEEN, device="cpu", algorithm="user/right")
    cw.unregister_kernel("right")
    assert_close(kept(x), 3 * x)
    with pytest.raises(BadInput, match="no algorithm here is called 'user/right'"):
        cw.plan(SIXTEEN, device="cpu", algorithm="user/right")


def test_calls_run_it_anew() -> None:
    x, w = torch.ones(1, 2, 5, 5), torch.ones(2, 2, 1, 1)
    for number in (1.0, 2.0):
        register("full", lambda problem, number=number: lambda x, w: torch.full(problem.y.shape, number), kind="conv")
        assert cw.conv2d(x, w, algorithm="user/full").unique().tolist() == [number]


# What it is asked, and what it is given.


def test_reasons_why_it_does_not_serve() -> None:
    def broken(problem: Any) -> bool:
        raise KeyError("axis")

    register("no", sixteenfold, serves=lambda problem: False)
    register("reason", sixteenfold, serves=lambda problem: "sums of 17 only")
    register("broken", sixteenfold, serves=broken)
    register("forgetful", sixteenfold, serves=lambda problem: None)
    register("gpu", sixteenfold, device="cuda")
    register("last", sixteenfold, layouts="nhwc")
    register("scratch", sixteenfold, workspace_bytes=lambda problem: problem.no_such_thing)
    rows, refused = found()
    assert not any(name.startswith("user/") for name in rows)
    for name, said in (
        ("no", "does not support this problem"), ("reason", "sums of 17 only"),
        ("broken", "its `serves` raised KeyError: 'axis' (test_user_kernels.py, line "),
        ("forgetful", "its `serves` must return True, False or a reason, got None"), ("gpu", "runs only on cuda, got "),
        ("last", "needs operands in nhwc, got strides (32768, 4096, 64, 1) of `a`"),
        ("scratch", "its `workspace_bytes` raised AttributeError"),
    ):  # fmt: skip
        assert refused[f"user/{name}"].startswith(said), refused
    with pytest.raises(Refused, match=r"user/reason cannot compute .*: sums of 17 only"):
        cw.plan(SIXTEEN, device="cpu", algorithm="user/reason")
    assert "needs a device of this machine, got NVIDIA H200" in {
        refusal.reason for refusal in cw.find(SIXTEEN, device="h200", mode="heuristic", store="none").refusals
    }


def test_layouts_are_those_of_all_operands() -> None:
    register("last", sixteenfold, layouts=["nhwc"])
    register("both", sixteenfold, layouts=["nchw", "nhwc"])
    for text, there in (
        (f"{SIXTEEN} tag:nhwc", {"last", "both"}), (SIXTEEN, {"both"}),
        (SIXTEEN.replace("ih64", "ih1"), {"last", "both"}),
        (f"{SIXTEEN} tag:65536/4096/64/1", set()),
    ):  # fmt: skip
        assert {name.partition("/")[2] for name in found(text)[0] if name.startswith("user/")} == there


def test_a_workspace_and_an_output() -> None:
    given: list[int] = []

    def run(problem: Any) -> Any:
        def compute(a: Tensor, y: Tensor, workspace: Tensor) -> None:
            given.append(workspace.numel())
            torch.mul(a, 16, out=y)

        return compute

    register("roomy", run, writes_out=True, workspace_bytes=lambda problem: problem.y.nbytes)
    nbytes = 2 * 8 * 64 * 64 * 4
    plan = cw.plan(SIXTEEN, device="cpu", algorithm="user/roomy")
    x, y = torch.randn(2, 8, 64, 64), torch.empty(2, 8, 64, 64)
    assert_close(plan(x), 16 * x)
    assert plan.bind(a=x, y=y)() is y
    assert_close(y, 16 * x)
    assert given == [nbytes, nbytes]
    candidate = found()[0]["user/roomy"].finding.candidate
    assert listing.objection(candidate, Policy(max_workspace_bytes=nbytes)) is None
    assert listing.objection(candidate, Policy(max_workspace_bytes=nbytes - 1)) is not None


def test_a_result_that_is_an_operand_is_copied() -> None:
    register("same", lambda problem: lambda x: x, kind="copy")
    x = torch.randn(1, 4, 4, 4)
    made = cw.plan("copy ic4ih4 nchw->nchw", device="cpu", algorithm="user/same")(x)
    assert torch.equal(made, x)
    assert made.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    ("kind", "text", "compute"),
    [
        ("linear", "linear ic8oc4mb3 ep:bias", lambda x, w, bias: F.linear(x, w, bias)),
        ("pool", "pool max ic4ih8 kh2sh2", lambda x: F.max_pool2d(x, 2)),
        ("resize", "resize nearest ic4ih4 oh8", lambda x: F.interpolate(x, scale_factor=2)),
        ("copy", "copy ic4ih4 nchw->nhwc", lambda x: x.contiguous(memory_format=torch.channels_last)),
        ("conv", "ic4ih8oc4kh3ph1 ep:bias+relu", lambda x, w, bias: F.conv2d(x, w, bias, padding=1).relu_()),
        ("conv", "ic4ih8oc4kh3ph1 dir:backward_data", lambda dy, w: F.conv_transpose2d(dy, w, padding=1)),
    ],
)  # fmt: skip
def test_every_kind_of_problem(kind: str, text: str, compute: Any) -> None:
    register("mine", lambda problem: compute, kind=kind)
    problem, facts = parse(text), device_facts("cpu")
    (candidate,) = [
        each for each in listing.candidates(listing.direct(problem, facts, Policy())) if each.backend == "user"
    ]
    trial = Trial(candidate, Bench(problem, facts, Mode.QUICK, seed=0))
    for error in measure_errors(trial.run, problem, "cpu", ["normal"]):
        assert error.scaled_max <= problem.error_bound(candidate.arithmetic)


def test_a_weight_is_packed_once_where_it_stays() -> None:
    packed: list[int] = []

    def transposed(problem: Any, w: Tensor) -> Tensor:
        packed.append(1)
        return w.t().contiguous()

    register("packs", lambda problem: lambda x, w: x @ w, kind="linear", prepare=transposed)
    register("broken", lambda problem: lambda x, w: x @ w, kind="linear", prepare=lambda problem, w: None)
    x, w = torch.randn(3, 8), torch.randn(4, 8)
    call = cw.plan("linear ic8oc4mb3", device="cpu", algorithm="user/packs").bind(x=x, w=w)
    for _ in range(3):
        assert_close(call(), F.linear(x, w))
    assert len(packed) == 1
    with pytest.raises(BackendError, match="kernel 'broken': its `prepare` must return a tensor, got NoneType"):
        cw.plan("linear ic8oc4mb3", device="cpu", algorithm="user/broken")(x, w)


def test_autocast_does_not_reach_it() -> None:
    seen: list[torch.dtype] = []

    def compute(x: Tensor, w: Tensor) -> Tensor:
        seen.append((x.flatten(1) @ x.flatten(1).t()).dtype)
        return F.conv2d(x, w)

    register("mine", lambda problem: compute, kind="conv")
    x, w = torch.ones(1, 2, 5, 5), torch.ones(2, 2, 1, 1)
    plan = cw.plan(cw.problem(x, w), device="cpu", algorithm="user/mine")
    with torch.autocast("cpu", torch.bfloat16):
        plan(x, w)
    assert set(seen) == {torch.float32}


def test_inside_a_rewrite_and_with_gradients() -> None:
    register(
        "plain", lambda problem: lambda x, w: F.conv2d(x, w), kind="conv",
        serves=lambda problem: problem.direction == "forward" and not problem.epilogue,
    )  # fmt: skip
    x, w, bias = (torch.randn(*shape, requires_grad=True) for shape in ((1, 2, 5, 5), (2, 2, 1, 1), (2,)))
    y = cw.conv2d(x, w, bias, algorithm="unfuse(user/plain)")
    assert_close(y, F.conv2d(x, w, bias))
    y.sum().backward()
    assert w.grad is not None


# Registering.


def test_as_a_decorator_it_gives_the_function() -> None:
    @cw.register_kernel("mine", kind="pointwise", serves=always, version="1")
    def mine(problem: Any) -> Any:
        return lambda a: a * 16

    assert mine(None)(2) == 32
    assert "user/mine" in found()[0]
    cw.unregister_kernel("mine")
    assert "user/mine" not in found()[0]
    with pytest.raises(BadInput, match="no kernel is registered as 'mine'; there are none"):
        cw.unregister_kernel("mine")


def test_a_name_is_there_once() -> None:
    register("mine", sixteenfold)
    register("mine", lambda problem: lambda x: F.max_pool2d(x, 2), kind="pool")
    assert "user/mine" not in found()[0]
    assert "user/mine" in found("pool max ic4ih8 kh2sh2")[0]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"name": "a/b"}, "`name` must be letters, digits"),
        ({"name": ""}, "`name` must be letters, digits"),
        ({"kind": "norm"}, "`kind` must be one of conv, linear, copy, pointwise, pool, resize, got 'norm'"),
        ({"version": 1}, "`version` must be a text that is not empty, got 1"),
        ({"device": "h200"}, "`device` must be cpu, cuda or None, got 'h200'"),
        ({"run": 3}, "`run` must be a function of a problem, got 3"),
        ({"prepare": 3}, "`prepare` must be a function of a problem, got 3"),
        ({"serves": True}, "`serves` must be a function of a problem, got True"),
        ({"layouts": "strided"}, "layouts must be one of"),
        ({"workspace_bytes": -1}, "`workspace_bytes` takes a finite number that is not negative, got -1"),
        ({"workspace_bytes": 1.5}, "`workspace_bytes` must be a whole number or a function, got 1.5"),
    ],
)
def test_mistakes(changed: dict[str, Any], sentence: str) -> None:
    given = {"name": "mine", "run": sixteenfold, **changed}
    with pytest.raises(BadInput, match=sentence):
        register(given.pop("name"), given.pop("run"), **given)


def test_a_plan_of_a_kernel_that_is_gone_is_one_sentence() -> None:
    register("mine", sixteenfold)
    candidate = found()[0]["user/mine"].finding.candidate
    register("other", sixteenfold)
    cw.unregister_kernel("mine")
    with pytest.raises(BackendError, match="no kernel 'mine' is registered any more"):
        listing.build(candidate, device_facts("cpu"))
    cw.unregister_kernel("other")
    with pytest.raises(
        BackendError,
        match="no kernel is registered any more for problems of kind pointwise: call register_kernel again",
    ):
        listing.build(candidate, device_facts("cpu"))
