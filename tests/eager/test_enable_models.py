"""Models, functions and transforms compute under ``enable`` what they compute without."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.settings import settings
from convwright.tuning import session as sessions
from eager.prefer import BOTH, GEMM, count_calls, prefer, randn
from eager.resnet import ResNet, trained

NAMES = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
OWN = {name: getattr(torch, name) for name in NAMES}


@BOTH
def test_an_unmodified_model_trains_and_predicts_the_same(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    torch.manual_seed(0)
    model, x = ResNet().double(), randn(2, 3, 40, 33)
    expected, again = trained(copy.deepcopy(model), x), copy.deepcopy(model)
    with cw.enabled():
        assert_close(trained(model, x), expected)
        for _ in range(2):
            assert_close(trained(again, x)[0].shape, expected[0].shape)
        model.eval()
        with torch.inference_mode():
            inside = model(x)
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    assert called.count("forward") == (4 * convolutions if algorithm == GEMM else 0)
    assert called.count("backward_weight") == (3 * convolutions if algorithm == GEMM else 0)
    assert_close(model(x), inside)


@BOTH
def test_every_module_of_pytorchs(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    for rank in (1, 2, 3):
        x = randn(2, 4, *(6, 5, 7)[:rank])
        modules = [
            getattr(nn, f"Conv{rank}d")(4, 6, 3, padding=1),
            getattr(nn, f"Conv{rank}d")(4, 6, 3, padding="same", dilation=2, groups=2),
            getattr(nn, f"Conv{rank}d")(4, 6, 3, padding=1, padding_mode="circular", bias=False),
            getattr(nn, f"ConvTranspose{rank}d")(4, 6, 3, stride=2, output_padding=1),
            getattr(nn, f"ConvTranspose{rank}d")(4, 6, 3, padding=1, groups=2),
        ]
        for module in modules:
            module.double()
            expected = trained(module, x)
            module.zero_grad()
            with cw.enabled():
                for _ in range(2):
                    module.zero_grad()
                    assert_close(trained(module, x), expected)
                last = cw.last_choice()
            assert last is not None
        transposed = modules[3]
        size = [n + 1 for n in transposed(x).shape[2:]][:rank]
        with cw.enabled():
            inside = transposed(x, output_size=[n - 1 for n in size])
        assert_close(inside, transposed(x, output_size=[n - 1 for n in size]))


@BOTH
def test_lazy_modules_learn_their_shape_inside(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    layers = [nn.LazyConv2d(6, 3).double(), nn.LazyConvTranspose2d(6, 3).double()]
    x = randn(2, 4, 8, 8)
    for layer in layers:
        with cw.enabled():
            inside = layer(x)
        assert layer.weight.shape[1 - layer.transposed] == 4
        assert_close(layer(x), inside)


WRONG: dict[str, dict[str, Any]] = {
    "channels": {"weight": torch.ones(6, 3, 3, 3)},
    "rank": {"weight": torch.ones(6, 4, 3)},
    "vector": {"input": torch.ones(4)},
    "dtype": {"weight": torch.ones(6, 4, 3, 3).double()},
    "bias": {"bias": torch.ones(5)},
    "bias's dtype": {"bias": torch.ones(6).half()},
    "stride": {"stride": 0},
    "stride in words": {"stride": "2"},
    "strides": {"stride": (1, 1, 1)},
    "padding": {"padding": -1},
    "padding in words": {"padding": "full"},
    "same": {"padding": "same", "stride": 2},
    "dilation": {"dilation": 9},
    "groups": {"groups": 3},
    "no weight": {"weight": None},
    "a list": {"input": [[1.0]]},
    "bool": {"input": torch.ones(2, 4, 8, 8).bool(), "weight": torch.ones(6, 4, 3, 3).bool()},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("mode", ["heuristic", "quick"])
def test_errors_are_pytorchs_own(wrong: dict[str, Any], mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", mode)
    settings.cache_clear()
    sessions.session.cache_clear()
    right = {"input": torch.ones(2, 4, 8, 8), "weight": torch.ones(6, 4, 3, 3), "bias": torch.ones(6)}
    window = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    given = (right | window | wrong).values()
    with pytest.raises(Exception) as expected:  # noqa: PT011  whatever PyTorch raises
        F.conv2d(*given)
    with cw.enabled():
        for _ in range(3):
            with pytest.raises(Exception) as said:  # noqa: PT011
                F.conv2d(*given)
            assert (type(said.value), str(said.value)) == (type(expected.value), str(expected.value))
            F.conv2d(**right)


def test_calls_that_nobody_can_make_are_type_errors() -> None:
    x, w = torch.ones(2, 4, 8, 8), torch.ones(6, 4, 3, 3)
    for given, named in (((x,), {}), ((x, w), {"strides": 1}), ((x, w, None, 1, 0, 1, 1, 1), {})):
        with pytest.raises(TypeError):
            F.conv2d(*given, **named)
        with cw.enabled(), pytest.raises(TypeError):
            F.conv2d(*given, **named)


def test_what_only_pytorch_computes_goes_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 8, 8), randn(6, 4, 3, 3)
    calls = {
        "complex": (x + 1j * x, w - 1j * w),
        "whole numbers": ((x * 3).long(), (w * 3).long()),
        "no image": (x[:0], w),
        "meta": (x.to("meta"), w.to("meta")),
        "oneDNN": (x.float().to_mkldnn(), w.float()),
    }
    for what, given in calls.items():
        expected = F.conv2d(*given)
        with cw.enabled():
            for _ in range(2):
                inside = F.conv2d(*given)
        assert type(inside) is type(expected), what
        assert (inside.shape, inside.dtype, inside.layout) == (expected.shape, expected.dtype, expected.layout), what
        if not expected.is_meta:
            assert_close(inside.to_dense(), expected.to_dense())
    assert called == []


@BOTH
def test_transforms_and_autocast(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    layer, x = nn.Conv2d(4, 6, 3).double(), randn(3, 2, 4, 8, 8)
    parameters = dict(layer.named_parameters())

    def loss(p: dict[str, Tensor], x: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(layer, p, (x,)).square().sum()
        return made

    transform = torch.vmap(torch.func.grad(loss), (None, 0))
    expected = transform(parameters, x)
    single, images = nn.Conv2d(4, 6, 3), randn(2, 4, 8, 8, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = single(images)
    with cw.enabled():
        for _ in range(2):
            layer(x[0])  # what is remembered must not serve a transformed call
            assert_close(transform(parameters, x), expected)
            with torch.autocast("cpu", torch.bfloat16):
                assert_close(single(images), lowered, rtol=0.02, atol=0.05)
            assert single(images).dtype is torch.float32


@pytest.mark.slow
def test_compiled_models_are_left_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)
    torch._dynamo.reset()
    model, x = ResNet().double().eval(), randn(1, 3, 32, 32)
    expected = model(x)
    with cw.enabled():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert_close(compiled(x), expected)
        assert called == []
        assert_close(model(x), expected)
        assert set(called) == {"forward"}
    assert_close(compiled(x), expected)
    assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize("strict", [False, True])
def test_exported_models_hold_pytorchs_operators(strict: bool) -> None:
    model, x = ResNet().eval(), torch.randn(1, 3, 32, 32)
    with cw.enabled():
        program = torch.export.export(model, (x,), strict=strict)
    targets = {
        str(node.target) for node in program.graph.nodes if "conv" in str(node.target) and node.op != "placeholder"
    }
    assert targets == {"aten.conv2d.default"}
    assert_close(program.module()(x), model(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_and_traced_models_hold_pytorchs_operators() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.up = nn.Conv2d(4, 6, 3, padding="same"), nn.ConvTranspose2d(6, 4, 3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(self.up(self.one(x)), self.one.weight, stride=[2, 2])

    model, x = Layers(), torch.randn(2, 4, 8, 8)
    with cw.enabled():
        model(x)
        made = [torch.jit.script(model), torch.jit.trace(model, (x,))]
    for each in made:
        assert "aten::" in str(each.inlined_graph)
        assert_close(each(x), model(x))


def test_symbolic_traces_hold_pytorchs_functions() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 4, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.weight, padding=1)

    model, x = Functional(), torch.randn(2, 4, 8, 8)
    with cw.enabled():
        model(x)
        graph = torch.fx.symbolic_trace(model)
        assert_close(graph(x), model(x))
    assert OWN["conv2d"] in {node.target for node in graph.graph.nodes}
    assert_close(graph(x), model(x))


def test_models_are_pickled_as_without() -> None:
    with cw.enabled():
        text = pickle.dumps(F.conv2d)
        assert pickle.loads(text) is F.conv2d
        assert copy.deepcopy(F.conv2d) is F.conv2d
        model = pickle.loads(pickle.dumps(ResNet()))
    assert pickle.loads(text) is F.conv2d is OWN["conv2d"]
    assert model(torch.randn(2, 3, 40, 40)).shape == (2, 10)


def test_weights_may_be_shared_changed_and_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    layer, up, x = nn.Conv2d(4, 6, 3).double(), nn.ConvTranspose2d(6, 4, 3, bias=False).double(), randn(2, 4, 8, 8)
    up.weight = layer.weight
    with cw.enabled():
        for change in (
            lambda: layer.weight.data.mul_(2),
            lambda: layer.float(),
            lambda: layer.double(),
            lambda: layer.to(memory_format=torch.channels_last),
            lambda: setattr(layer.weight, "data", randn(6, 4, 3, 3, seed=9)),
            lambda: layer.requires_grad_(False),
        ):
            change()
            given = x.to(layer.weight.dtype)
            for _ in range(2):
                y = layer(given)
                assert_close(y, OWN["conv2d"](given, layer.weight, layer.bias))
                assert_close(up(y), OWN["conv_transpose2d"](y, up.weight))
                assert y.requires_grad == layer.weight.requires_grad


@pytest.mark.parametrize(
    "more", [{"out": None}, {"activation": "relu"}, {"residual": 0}, {"algorithm": "torch/default"}]
)
def test_what_pytorchs_functions_do_not_take_is_refused_as_they_do(more: dict[str, Any]) -> None:
    x, w = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
    more = {name: torch.empty(1, 4, 6, 6) if name in ("out", "residual") else value for name, value in more.items()}
    with pytest.raises(TypeError) as own:
        OWN["conv2d"](x, w, **more)
    with cw.enabled():
        for _ in range(3):
            F.conv2d(x, w)
        with pytest.raises(TypeError) as ours:
            F.conv2d(x, w, **more)
    assert str(ours.value) == str(own.value)
