"""enable(): unmodified models compute the same through ours, errors are PyTorch's own, and off leaves no trace."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.policy import Policy, Weights
from convwright.ops.enable import _looking, is_enabled
from convwright.ops.form import stand_ins
from convwright.settings import settings
from convwright.tuning import session as sessions
from ops.prefer import GEMM, TORCH, count_calls, prefer, randn
from ops.resnet import ResNet

BOTH = pytest.mark.parametrize("algorithm", [TORCH, GEMM])
NAMES = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
OWN = {name: getattr(torch, name) for name in NAMES}


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    """Nothing is replaced before a test, and nothing behind it."""
    assert {name: getattr(F, name) for name in NAMES} == OWN
    yield
    cw.disable()
    assert {name: getattr(F, name) for name in NAMES} == OWN


@pytest.fixture
def importer() -> Iterator[ModuleType]:
    """A library that took a function by name before anything was enabled."""
    module = ModuleType("a_library")
    exec(
        "import torch\nfrom torch.nn.functional import conv2d as c, conv_transpose1d\nfrom torch import conv1d\n"
        "import torch.nn.functional as functional\nkept = {'conv2d': c}\n"
        "def use(x, w): return c(x, w, padding=1)\n",
        vars(module),
    )
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def everything() -> dict[tuple[str, str], Any]:
    """What each name of each module stands for, where that can be called."""
    return {
        (name, attribute): value
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        for attribute, value in list(vars(module).items())
        if callable(value)
    }


def different(before: dict[Any, Any], after: dict[Any, Any]) -> set[Any]:
    return {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)}


def trained(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, all gradients and all buffers after a step."""
    x = x.clone().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert x.grad is not None
    return [y, x.grad, *(gradient for gradient in gradients if gradient is not None), *model.buffers()]


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


def test_functional_users_and_functions_that_were_imported_by_name(
    importer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 8, 8), randn(6, 4, 3, 3)
    expected = F.conv2d(x, w, padding=1)
    with cw.enabled():
        assert_close(importer.use(x, w), expected)
        assert_close(F.conv2d(x, w, padding=1), expected)
        assert_close(torch.nn.functional.conv2d(x, w, padding="same"), expected)
        assert called == ["forward"] * 3
        assert importer.conv1d is F.conv1d is not torch.conv1d
        assert torch.conv2d is OWN["conv2d"]  # the operator itself, which stays what it is
    called.clear()
    assert_close(importer.use(x, w), expected)
    assert called == []
    assert importer.c is OWN["conv2d"]


def test_off_leaves_no_trace(importer: ModuleType) -> None:
    model, x = ResNet(), torch.randn(2, 3, 40, 40)
    cw.enable()
    trained(model, x)  # modules are imported at the first time
    cw.disable()
    tables = dict(torch.jit._builtins._get_builtin_table())
    before = everything()
    for _ in range(2):
        with cw.enabled():
            during = everything()
            trained(model, x)
        after = everything()
        replaced = different(before, during)
        assert {("torch.nn.functional", "conv2d"), (importer.__name__, "c")} <= replaced
        # Other names may change while a model runs, as modules import what they need.
        assert different(before, after) & replaced == set()
        stand_ins = {id(during[key]) for key in replaced}
        assert [key for key, value in after.items() if id(value) in stand_ins] == []
    cw.enable()
    cw.enable(policy=Policy(max_workspace_bytes=0))
    cw.disable()
    cw.disable()
    assert different(before, everything()) & replaced == set()
    assert dict(torch.jit._builtins._get_builtin_table()) == tables
    assert all(tables[id(function)] == f"aten::{name}" for name, function in OWN.items())


def test_what_is_imported_or_kept_while_it_is_on_is_pytorchs_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)
    late = ModuleType("imported_late")
    monkeypatch.setitem(sys.modules, "imported_late", late)
    x, w = randn(2, 4, 8, 8), randn(6, 4, 3, 3)
    with cw.enabled():
        exec("from torch.nn.functional import conv2d", vars(late))
        kept, partly = F.conv2d, functools.partial(F.conv2d, padding=1)
        late.conv2d(x, w)
        assert called == ["forward"]
    assert late.conv2d is OWN["conv2d"]
    called.clear()
    for _ in range(2):  # nobody can reach these; they call PyTorch
        assert_close(kept(x, w), F.conv2d(x, w))
        assert_close(partly(x, w), F.conv2d(x, w, padding=1))
    assert called == []
    with cw.enabled():
        kept(x, w)
    assert called == ["forward"]


def test_blocks_may_lie_in_each_other() -> None:
    def policy() -> Policy | None:
        made: Policy | None = _looking(stand_ins()[1]).__kwdefaults__["policy"]
        return made

    outer, inner = Policy(max_workspace_bytes=0), Policy(deterministic=True)
    assert not is_enabled()
    with cw.enabled(policy=outer):
        with cw.enabled(policy=inner):
            assert policy() == inner
        assert policy() == outer
        with cw.enabled():
            assert policy() is None
            cw.disable()
            assert not is_enabled()
        assert policy() == outer
    assert not is_enabled()
    cw.enable(policy=outer)
    with cw.enabled(policy=inner):
        pass
    assert is_enabled()
    assert policy() == outer
    cw.disable()


def test_an_exception_inside_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), cw.enabled():
        _ = 1 / 0
    assert not is_enabled()
    with cw.enabled():
        with pytest.raises(ZeroDivisionError), cw.enabled(policy=Policy(deterministic=True)):
            _ = 1 / 0
        assert is_enabled()


def test_a_policy_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = count_calls(monkeypatch, "prepare")
    prefer(monkeypatch, GEMM)
    layer = nn.Conv2d(4, 6, 3).double().requires_grad_(False).to(memory_format=torch.channels_last)
    x = randn(2, 4, 8, 8)
    for policy in (Policy(weights=Weights.CONSTANT), None, Policy(weights=Weights.CONSTANT)):
        with cw.enabled(policy=policy):
            layer(x)
            packed.clear()
            for _ in range(3):
                layer(x)
        assert len(packed) == (0 if policy else 3)
    for wrong in ({}, "fastest", Policy):
        with pytest.raises(cw.BadInput, match="`policy` must be a Policy, got"):
            cw.enable(policy=wrong)  # type: ignore[arg-type]
        assert not is_enabled()


def test_algorithms_are_obeyed() -> None:
    layer, x = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 8, 8)
    with cw.enabled():
        with cw.algorithms(forward=GEMM):
            layer(x.clone())
            last = cw.last_choice()
        assert last is not None
        with cw.algorithms(forward="magic"), pytest.raises(cw.BadInput, match="no algorithm here is called 'magic'"):
            layer(x)
        with cw.algorithms(forward="triton/implicit-gemm"), pytest.raises(cw.Refused, match="NVIDIA"):
            layer(x)
        with cw.algorithms(forward="triton/implicit-gemm", strict=False):
            assert_close(layer(x), OWN["conv2d"](x, layer.weight, layer.bias))
        with cw.algorithms(forward=GEMM), pytest.raises(cw.Refused, match="cannot serve this call"):
            layer(x[0])


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
        "one image": (x[0], w),
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


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_what_measures_never_goes_through_what_was_replaced(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """References and PyTorch's own candidate are PyTorch's while it is on: they would search within a search."""
    monkeypatch.setattr("convwright.ops.enable.beyond", None)
    with cw.enabled():
        found = cw.find(f"mb1ic4ih8oc4kh3 dir:{direction}", mode="quick", budget_us=50_000)
        assert found.choice is not None
        with pytest.raises(TypeError):
            F.conv2d(torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3))


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


def test_the_documentation_is_pytorchs() -> None:
    with cw.enabled():
        for name in NAMES:
            assert getattr(F, name).__doc__ == OWN[name].__doc__
            assert getattr(F, name).__name__ == name


def test_threads_see_the_same_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    layers = [nn.Conv2d(4, 6, 3, padding=i).double() for i in range(3)]
    x = randn(2, 4, 8, 8)
    expected = [layer(x).detach() for layer in layers]
    wrong: list[object] = []
    done = threading.Event()

    def work(i: int) -> None:
        while not done.is_set():
            try:
                if not torch.allclose(layers[i](x), expected[i]):
                    wrong.append(i)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for i in range(20):
        with cw.enabled(policy=None if i % 2 else Policy(max_error=3.0)):
            layers[0](x)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


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


SCRIPT = """
import torch, torch.nn.functional as F
(own,) = kept = [F.conv2d]
from torch.nn.functional import conv2d as here
import convwright as cw
cw.enable()
assert own is here is F.conv2d is not kept[0]
own = kept[0]
x, layer = torch.randn(1, 3, 8, 8), torch.nn.Conv2d(3, 4, 3)
for _ in range(3):
    torch.testing.assert_close(layer(x), own(x, layer.weight, layer.bias))
print(cw.last_choice() is not None)
cw.disable()
assert here is F.conv2d is own is kept[0]
"""


def test_a_script_that_knows_nothing_of_it() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr


@pytest.mark.parametrize(
    "more", [{"out": None}, {"activation": "relu"}, {"residual": 0}, {"algorithm": "torch/default"}]
)
def test_what_pytorchs_functions_do_not_take_is_refused_as_they_do(more: dict[str, Any]) -> None:
    x, w = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
    more = {name: torch.empty(1, 4, 6, 6) if name in ("out", "residual") else value for name, value in more.items()}
    with cw.enabled():
        for _ in range(3):
            F.conv2d(x, w)
        with pytest.raises(TypeError, match="conv2d\\(\\) got an unexpected keyword argument"):
            F.conv2d(x, w, **more)


def test_an_algorithm_asked_for_around_a_call_reaches_layers_that_are_not_looked_at() -> None:
    x, w = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
    with cw.enabled():
        for _ in range(200):
            F.conv2d(x, w)
        resting = stand_ins()[1].slots.resting
        assert id(w) in resting
        with cw.algorithms(forward="reference/gemm"):
            assert id(w) not in resting
            for _ in range(3):
                F.conv2d(x, w)
                assert cw.last_choice().candidate.id == "reference/gemm"  # type: ignore[union-attr]
            assert id(w) not in resting
