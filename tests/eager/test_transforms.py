"""Batched gradients, modes, symbolic traces, scripts, functional modules: as with PyTorch's own functions."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian, jacobian
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import convwright as cw
from convwright.errors import Refused
from eager.prefer import BOTH, GEMM, TORCH, count_calls, prefer, randn

NAMES = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Tensor]:
    return randn(2, 4, 6, 5, grad=True), randn(3, 4, 3, 3, seed=1, grad=True), randn(3, seed=2, grad=True)


@BOTH
@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_gradients_in_batches(
    given: tuple[Tensor, ...], activation: str | None, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    behind: Any = getattr(F, activation or "", lambda y: y)
    dys = randn(4, 2, 3, 4, 3, seed=7)
    for _ in range(2):
        made = [
            torch.autograd.grad(y, given, dys, is_grads_batched=True)
            for y in (cw.conv2d(*given, activation=activation), behind(F.conv2d(*given)))
        ]
        assert_close(*made)


@BOTH
def test_jacobians_and_hessians(given: tuple[Tensor, ...], algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = given[0][:1, :, :4, :4].detach(), given[1][:1].detach()

    def of(function: Any) -> list[Any]:
        def y(x: Tensor) -> Tensor:
            made: Tensor = function(x, w).pow(3)
            return made

        return [
            jacobian(y, x),
            jacobian(y, x, vectorize=True),
            jacobian(y, x, vectorize=True, strategy="forward-mode"),
            hessian(lambda x: y(x).sum(), x),
            hessian(lambda x: y(x).sum(), x, vectorize=True),
            torch.func.jacrev(y)(x),
            torch.func.jacfwd(y)(x),
            torch.func.vjp(y, x)[1](torch.ones(1, 1, 2, 2, dtype=x.dtype)),
            torch.func.functionalize(y)(x),
            torch.func.linearize(y, x)[1](x),
        ]

    cw.conv2d(x, w)
    assert_close(of(cw.conv2d), of(F.conv2d))


@BOTH
@pytest.mark.parametrize("name", NAMES)
def test_every_function_under_vmap_and_grad(name: str, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    rank = int(name[-2])
    x, w = randn(3, 2, 4, *(5, 4, 3)[:rank]), randn(4, 4, *(2, 2, 2)[:rank])
    for transform in (
        lambda f: torch.vmap(f, (0, None)),
        lambda f: torch.vmap(torch.func.grad(lambda x, w: f(x, w).square().sum(), (0, 1)), (0, None)),
        lambda f: torch.func.vmap(f, (0, None), chunk_size=2),
    ):
        ours, theirs = transform(getattr(cw, name)), transform(getattr(F, name))
        getattr(cw, name)(x[0], w)
        for _ in range(2):
            assert_close(ours(x, w), theirs(x, w))


def test_an_algorithm_cannot_be_asked_for_inside(given: tuple[Tensor, ...]) -> None:
    x, w = given[0].detach(), given[1].detach()
    with pytest.raises(
        Refused, match="reference/gemm cannot serve this call, which needs PyTorch's own functions"
    ) as no:
        torch.vmap(lambda x: cw.conv2d(x, w, algorithm=GEMM))(x[None])
    assert "\n" not in str(no.value)
    with pytest.raises(Refused, match="reference/gemm cannot serve this call"), cw.algorithms(forward=GEMM):
        torch.func.grad(lambda x: cw.conv2d(x, w).sum())(x)


class Layer(nn.Module):
    def __init__(self, **rest: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(3, 4, 3, 3, seed=1))
        self.rest = rest

    def forward(self, x: Tensor) -> Tensor:
        return cw.conv2d(x, self.weight, None, **self.rest)


@BOTH
def test_modules_with_other_parameters(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    layer, x = Layer(), randn(2, 4, 6, 5)
    layer(x)
    ensemble = torch.stack([layer.weight.detach() * i for i in range(3)])
    for i in range(3):
        assert_close(torch.func.functional_call(layer, {"weight": ensemble[i]}, (x,)), F.conv2d(x, ensemble[i]))
    together = torch.vmap(lambda w: torch.func.functional_call(layer, {"weight": w}, (x,)))(ensemble)
    assert_close(together, torch.stack([F.conv2d(x, w) for w in ensemble]))
    copied = copy.deepcopy(layer)
    assert_close(copied(x), layer(x))
    assert_close(pickle.loads(pickle.dumps(layer))(x), layer(x))


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_found_again_by_name(name: str) -> None:
    function = getattr(cw, name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
    assert function.__name__ == function.__qualname__ == name
    assert f"torch.nn.functional.{name}" in function.__doc__


@BOTH
def test_a_symbolic_trace_holds_the_call(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    layer, x = Layer(padding=1, activation="relu", algorithm=GEMM), randn(2, 4, 6, 5)
    layer(x)
    graph = torch.fx.symbolic_trace(layer)
    (node,) = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert node.target is cw.conv2d
    assert node.kwargs == {"activation": "relu", "algorithm": GEMM}
    graph = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))  # its code is written and read
    assert_close(graph(x), F.conv2d(x, layer.weight, padding=1).relu())


def test_a_traced_graph_of_operators_holds_pytorchs(given: tuple[Tensor, ...]) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x, w = given[0].detach(), given[1].detach()
    graph = make_fx(lambda x: cw.conv2d(x, w, activation="relu"))(x)
    assert torch.ops.aten.convolution.default in {node.target for node in graph.graph.nodes}
    assert_close(graph(x), F.conv2d(x, w).relu())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@BOTH
def test_a_jit_trace_of_what_was_decided_before(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    w, x = randn(3, 4, 3, 3), randn(2, 4, 6, 5)
    cw.conv2d(x, w)
    traced = torch.jit.trace(lambda x: cw.conv2d(x, w), (x,))
    assert "aten::_convolution" in str(traced.graph)
    other = randn(3, 4, 9, 7)
    assert_close(traced(other), F.conv2d(other, w))


@pytest.mark.first_cases(1)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("sizes", ["alike", "ever-new"])
@pytest.mark.parametrize("by", ["conv2d", "conv_transpose2d", "enabled"])
def test_a_jit_trace_is_the_same_each_time(by: str, sizes: str, image: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, TORCH)
    w, x = randn(4, 4, 3, 3), randn(*[2, 4, 6, 5][image:])
    with cw.enabled() if by == "enabled" else nullcontext():
        function = F.conv2d if by == "enabled" else getattr(cw, by)
        for index in range(8):
            function(x if sizes == "alike" else randn(2, 4, 6 + index, 5), w)
        # PyTorch traces twice, and compares where each call was made; one of 31 calls is looked at.
        torch.jit.trace(lambda x: torch.stack([function(x, w) for _ in range(100)]), (x,))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_holds_pytorchs_operator_and_refuses_more() -> None:
    def plain(x: Tensor, w: Tensor) -> Tensor:
        return cw.conv2d(x, w, None, [2, 1], [1, 1]) + cw.conv_transpose2d(x, w.transpose(0, 1), stride=1).sum()

    def more(x: Tensor, w: Tensor) -> Tensor:
        return cw.conv2d(x, w, activation="relu")

    x, w = randn(2, 4, 6, 5), randn(4, 4, 3, 3)
    assert_close(torch.jit.script(plain)(x, w), plain(x, w))
    with pytest.raises(RuntimeError, match="Keyword argument activation unknown"):
        torch.jit.script(more)


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


@BOTH
def test_function_modes_see_the_convolution(
    given: tuple[Tensor, ...], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    for _ in range(2):
        cw.conv2d(*given)
        with Seen() as seen:
            assert_close(cw.conv2d(*given), F.conv2d(*given))
        assert seen.names.count("conv2d") == 2


def test_a_default_device_is_no_reason_to_leave_calls_to_pytorch(
    given: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)
    with torch.device("cpu"):
        for _ in range(3):
            assert_close(cw.conv2d(*given), F.conv2d(*given))
    assert called == ["forward"] * 3


@BOTH
def test_flops_are_counted(given: tuple[Tensor, ...], algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    counted = []
    for function in (cw.conv2d, F.conv2d):
        function(*given)
        with FlopCounterMode(display=False) as counter:
            function(*given).sum().backward()
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] > 0


def test_a_backward_pass_inside_of_autocast_is_as_exact_as_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w = (randn(*shape, dtype=torch.float32, grad=True) for shape in ((2, 4, 9, 8), (6, 4, 3, 3)))
    outside = torch.autograd.grad(cw.conv2d(x, w).square().sum(), (x, w))
    loss = cw.conv2d(x, w).square().sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(torch.autograd.grad(loss, (x, w)), outside, rtol=0, atol=0)


def test_a_residual_under_autocast_is_added_as_pytorch_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    for algorithm in (TORCH, GEMM):
        prefer(monkeypatch, algorithm)
        x, w = randn(2, 4, 6, 5, dtype=torch.float32), randn(3, 4, 3, 3, dtype=torch.float32)
        residual = randn(2, 3, 4, 3, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(2):
                for added in (residual, residual.bfloat16()):
                    ours, theirs = cw.conv2d(x, w, residual=added), F.conv2d(x, w) + added
                    assert ours.dtype is theirs.dtype
                    assert_close(ours, theirs, rtol=0.02, atol=0.05)


@BOTH
def test_hooks_on_saved_tensors(given: tuple[Tensor, ...], algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.shape), t.clone())[1], lambda t: t * 1):
        y = cw.conv2d(*given, activation="relu")
    assert {given[0].shape, given[1].shape} <= set(saved)
    assert_close(torch.autograd.grad(y.sum(), given), torch.autograd.grad(F.conv2d(*given).relu().sum(), given))


@pytest.mark.slow
@BOTH
def test_compiled_autograd(given: tuple[Tensor, ...], algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import compiled_autograd

    prefer(monkeypatch, algorithm)
    torch._dynamo.reset()
    expected = torch.autograd.grad(F.conv2d(*given).relu().sum(), given)
    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        cw.conv2d(*given, activation="relu").sum().backward()
    assert_close([tensor.grad for tensor in given], list(expected))
    torch._dynamo.reset()


@BOTH
def test_deterministic_algorithms(given: tuple[Tensor, ...], algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    expected = F.conv2d(*given)
    for strict in (True, False, True):
        torch.use_deterministic_algorithms(strict)
        try:
            assert_close(cw.conv2d(*given), expected)
            with torch.backends.cudnn.flags(enabled=False), torch.backends.mkldnn.flags(enabled=False):
                assert_close(cw.conv2d(*given), expected)
        finally:
            torch.use_deterministic_algorithms(False)


@BOTH
def test_a_weight_that_two_functions_share(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 6, 6), randn(4, 4, 3, 3, grad=True)
    for _ in range(3):
        y = cw.conv_transpose2d(cw.conv2d(x, w, padding=1), w, padding=1)
        z = F.conv_transpose2d(F.conv2d(x, w, padding=1), w, padding=1)
        assert_close(torch.autograd.grad(y.sum(), w), torch.autograd.grad(z.sum(), w))
        with torch.no_grad():
            w.mul_(0.5)


@BOTH
def test_replicas_whose_weights_are_made_at_each_run(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As data parallel training makes them: the weight of a call is no leaf, and new."""
    prefer(monkeypatch, algorithm)
    layer, x = Layer(), randn(2, 4, 6, 5)
    expected = torch.autograd.grad(F.conv2d(x, layer.weight).square().sum(), layer.weight)
    for _ in range(4):
        replica = copy.copy(layer)
        replica._parameters = {}
        replica.weight = layer.weight * 1  # type: ignore[assignment]
        assert_close(torch.autograd.grad(replica(x).square().sum(), layer.weight), expected)
