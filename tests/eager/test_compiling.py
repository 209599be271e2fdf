"""What compilers make of our functions: one operator, for any size, that obeys what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.errors import BadInput
from eager.layer import Layer
from eager.prefer import BOTH, GEMM, count_calls, prefer, randn

FORMS: list[dict[str, Any]] = [
    {"padding": 1, "stride": (2, 1), "activation": "relu"},
    {"padding": "same", "dilation": [2, 1]},
]


@pytest.fixture
def compiler() -> Any:
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


@pytest.fixture
def tracer() -> Any:
    """Where gradients are not asked for, what Dynamo makes of a function is all."""
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="eager", fullgraph=True)
    torch._dynamo.reset()


@pytest.mark.first_cases(1)
@BOTH
def test_compiled_forward_and_backward(algorithm: str, compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    for rest in FORMS:
        layer, x = Layer(**rest), randn(2, 4, 9, 8, grad=True)
        compiled, wanted = compiler(layer), [x, layer.weight, layer.bias]
        ours, theirs = compiled(x), layer.plain(x)
        assert_close(ours, theirs)
        assert_close(
            torch.autograd.grad(ours.square().sum(), wanted), torch.autograd.grad(theirs.square().sum(), wanted)
        )
        with torch.no_grad():
            assert_close(compiled(x), theirs)
    assert bool(called) == (algorithm == GEMM)


def test_compiled_with_a_residual(compiler: Any) -> None:
    def function(x: Tensor, w: Tensor, residual: Tensor) -> Tensor:
        return cw.conv2d(x * 2, w, None, residual=residual, activation="relu") + 1

    given = randn(2, 4, 5, 5, grad=True), randn(6, 4, 1, 1, grad=True), randn(2, 6, 5, 5, grad=True)
    y = compiler(function)(*given)
    expected = (F.conv2d(given[0] * 2, given[1]) + given[2]).relu() + 1
    assert_close(y, expected)
    assert_close(torch.autograd.grad(y.sum(), given), torch.autograd.grad(expected.sum(), given))


def test_compiled_with_an_uneven_padding_and_single_images(compiler: Any) -> None:
    compiled = compiler(lambda x, w: cw.conv2d(x, w, padding="same"))
    for x in (randn(2, 4, 6, 6), randn(4, 6, 6)):
        w = randn(6, 4, 2, 2)
        assert_close(compiled(x, w), F.conv2d(x, w, padding="same"))


def test_compiled_with_an_output(compiler: Any) -> None:
    x, w, out = randn(2, 4, 6, 6), randn(6, 4, 3, 3), torch.zeros(2, 6, 4, 4, dtype=torch.float64)
    compiler(lambda x, w, out: cw.conv2d(x, w, out=out))(x, w, out)
    assert_close(out, F.conv2d(x, w))


def test_compiled_results_lie_in_memory_as_was_traced(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x = randn(2, 4, 9, 8).contiguous(memory_format=torch.channels_last)
    layer = Layer(padding=1)
    y = compiler(lambda x: layer(x).permute(0, 2, 3, 1).reshape(-1))(x)
    assert_close(y, layer.plain(x).permute(0, 2, 3, 1).reshape(-1))


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("transposed", [False, True])
def test_compiled_for_every_size_at_once(backend: str, transposed: bool) -> None:
    """With weights that are inputs too, whose sizes a compiler would leave open if it could."""
    torch._dynamo.reset()
    ours, theirs = (cw.conv_transpose2d, F.conv_transpose2d) if transposed else (cw.conv2d, F.conv2d)

    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        made: Tensor = ours(x, w, b, padding=1, activation="silu")
        return made

    compiled, w, b = torch.compile(function, backend=backend, fullgraph=True, dynamic=True), randn(4, 4, 3, 3), randn(4)
    w, b = w.requires_grad_(), b.requires_grad_()
    for size in (7, 8, 11):
        x = randn(2, 4, size, size + 1, grad=True)
        y, expected = compiled(x, w, b), F.silu(theirs(x, w, b, padding=1))
        assert_close(y, expected)
        dy = randn(*y.shape)
        assert_close(torch.autograd.grad(y, (x, w, b), dy), torch.autograd.grad(expected, (x, w, b), dy))
    torch._dynamo.reset()


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose3d"])
def test_the_functions_themselves_can_be_compiled(name: str, compiler: Any) -> None:
    rank = int(name[-2])
    given = randn(2, 4, *(5, 4, 6)[:rank], grad=True), randn(4, 4, *(3, 2, 3)[:rank], grad=True), randn(4, grad=True)
    for rest in ({}, {"stride": 2, "padding": 1}):
        y, expected = compiler(getattr(cw, name))(*given, **rest), getattr(F, name)(*given, **rest)
        assert_close(y, expected)
        assert_close(torch.autograd.grad(y.sum(), given), torch.autograd.grad(expected.sum(), given))


def test_compiled_under_autocast(compiler: Any) -> None:
    x, w = randn(2, 4, 6, 6, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32, grad=True)
    compiled = compiler(lambda x: cw.conv2d(x, w, activation="relu"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = compiled(x), F.conv2d(x, w).relu()
    assert y.dtype is expected.dtype is torch.bfloat16
    assert_close(y, expected, rtol=0.02, atol=0.05)
    y.float().sum().backward()
    assert w.grad is not None
    assert w.grad.dtype is torch.float32
    residual = randn(2, 6, 4, 4, dtype=torch.float32)
    compiled = compiler(lambda x: cw.conv2d(x, w, residual=residual))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = compiled(x), F.conv2d(x, w) + residual
    assert y.dtype is expected.dtype is torch.float32
    assert_close(y, expected, rtol=0.02, atol=0.05)


def test_what_is_asked_for_is_obeyed_by_what_was_compiled(tracer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)
    named, free = (tracer(lambda x, a=algorithm: cw.conv2d(x, w, algorithm=a)) for algorithm in (GEMM, None))
    for _ in range(2):
        called.clear()
        assert_close(named(x), F.conv2d(x, w))
        assert called == ["forward"]
        assert_close(free(x), F.conv2d(x, w))
        assert called == ["forward"]
        with cw.algorithms(forward=GEMM):  # around the call, not inside of what is compiled
            free(x)
        assert called == ["forward"] * 2


def test_auto_is_the_free_choice_of_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: cw.conv2d(x, w, algorithm="auto") + cw.conv2d(x, w), backend="eager", fullgraph=True
    )
    for _ in range(2):
        called.clear()
        assert_close(compiled(x), 2 * F.conv2d(x, w))
        assert called == []
        with cw.algorithms(forward=GEMM):
            assert_close(compiled(x), 2 * F.conv2d(x, w))
        assert called == ["forward"]
    traced = torch.fx.symbolic_trace(lambda x: cw.conv2d(x, w, algorithm="auto"))
    with cw.algorithms(forward=GEMM):
        assert_close(traced(x), F.conv2d(x, w))
    assert called == ["forward"]


def test_what_cannot_be_compiled_says_so(tracer: Any) -> None:
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)

    def inside(x: Tensor) -> Tensor:
        with cw.algorithms(forward=GEMM):
            return cw.conv2d(x, w)

    with pytest.raises(torch._dynamo.exc.Unsupported, match="a `policy=` is kept only outside of compiled code: set"):
        tracer(lambda x: cw.conv2d(x, w, policy=cw.Policy()))(x)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="`algorithms` is no part of a graph: open it around what"):
        tracer(inside)(x)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="`find` is no part of a graph: call it outside of what"):
        tracer(lambda x: cw.find(x, w, mode="quick"))(x)
    with pytest.raises(cw.BadInput, match="no algorithm here is called 'magic'"):
        tracer(lambda x: cw.conv2d(x, w, algorithm="magic"))(x)
    # Where graphs may break, both are computed outside of them.
    torch._dynamo.reset()
    for function in (inside, lambda x: cw.conv2d(x, w, policy=cw.Policy())):
        assert_close(torch.compile(function, backend="eager")(x), F.conv2d(x, w))


def looked_through() -> set[str]:
    """The rooms, and the modules of `eager`, of which Dynamo has seen code."""
    from torch._dynamo.convert_frame import input_codes

    files = [Path(code.co_filename) for weak in input_codes.seen if (code := weak()) is not None]
    root = Path(cw.__file__).parent
    ours = [file.relative_to(root) for file in files if file.is_relative_to(root)]
    return {file.stem if file.parts[0] == "eager" else file.parts[0] for file in ours}


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("what", ["policy", "find", "measure", "tune", "enabled"])
def test_what_is_no_part_of_a_graph_is_not_looked_through(what: str) -> None:
    """A search, its timer and its store once took Dynamo 18 s, and what it had made of them failed later calls."""
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)
    layer, policy = nn.Conv2d(4, 4, 3).double(), cw.Policy(max_workspace_bytes=0)

    def enabled(x: Tensor) -> Tensor:
        with cw.enabled(policy=policy):
            return F.conv2d(x, w) if x.is_contiguous() else layer(x)

    asked = {
        "policy": lambda x: cw.conv2d(x, w, padding=1, policy=policy),
        "find": lambda x: cw.find(x, w, mode="heuristic"),
        "measure": lambda x: cw.measure(lambda: x + 1, budget_us=1000),
        "tune": lambda x: cw.tune(layer, x, mode="quick", budget_us=1e5),
        "enabled": enabled,
    }
    torch._dynamo.reset()
    torch.compile(asked[what], backend="aot_eager")(x)
    assert looked_through() <= {"functional", "refusing", "tracing", "enable"}
    with cw.algorithms(forward=GEMM):
        assert_close(torch.compile(lambda x: cw.conv2d(x, w), backend="eager")(x), F.conv2d(x, w))
    torch._dynamo.reset()


def test_a_transform_inside_of_what_is_compiled_and_around_it() -> None:
    x, w = randn(2, 6, 9, 9), randn(8, 6, 3, 3, seed=1)
    expected = torch.func.grad(lambda x: F.conv2d(x, w).sum())(x)
    inside = torch.compile(lambda x: torch.func.grad(lambda x: cw.conv2d(x, w).sum())(x), backend="aot_eager")
    assert_close(inside(x), expected)
    around = torch.func.grad(torch.compile(lambda x: cw.conv2d(x, w).sum(), backend="eager"))
    assert_close(around(x), expected)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (torch.empty(4, 2, 8, 7, 7, dtype=torch.float64), "`out` must have the output's shape"),
        (torch.empty(2, 8, 7, 7, dtype=torch.int32), "`out` must be torch.float64"),
    ],
)
def test_what_cannot_be_written_to_is_refused_where_it_is_compiled(out: Tensor, said: str) -> None:
    compiled = torch.compile(lambda x, w, out: cw.conv2d(x, w, out=out), backend="eager")
    with pytest.raises(BadInput, match=said):
        compiled(randn(2, 6, 9, 9), randn(8, 6, 3, 3), out)
