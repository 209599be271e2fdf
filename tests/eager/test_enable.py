"""enable(): unmodified models compute the same through ours, errors are PyTorch's own, and off leaves no trace."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.policy import Policy, Weights
from convwright.eager.calls.call import CONV2D, FORMS, stand_ins
from convwright.eager.enable import _looking, is_enabled
from convwright.errors import BadInput
from convwright.settings import settings
from eager.prefer import GEMM, count_calls, prefer, randn
from eager.resnet import ResNet, trained
from forked import Program

OWN = {form.name: form.own for form in FORMS}


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
    with cw.enabled():
        trained(model, x)  # modules are imported at the first time
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


def given(*args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, named


X, W = torch.ones(1, 2, 8), torch.ones(2, 2, 3)
MISTAKEN = [
    given(), given("a"), given("a", "b"), given(X), given(weight=W), given(X, "w"), given(None, W), given([1], [2]),
    given(X, W, 3), given(X, W, bias=3), given(X, W, stride="a"), given(X, W, None, "a"), given(X, W, groups="a"),
    given(X, W, foo=1), given(X, W, policy=None), given(X, W, activation="relu"), given(X, W, input=X),
    given(X, W, None, 1, 0, 1, 1, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("skip_lookup", [False, True])
@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
@pytest.mark.parametrize("mistake", MISTAKEN, ids=lambda each: f"{len(each[0])} {list(each[1])}")
def test_arguments_of_wrong_types_are_refused_by_pytorch(
    mistake: tuple[tuple[Any, ...], dict[str, Any]], name: str, skip_lookup: bool
) -> None:
    args, named = mistake
    with pytest.raises(TypeError) as own:
        OWN[name](*args, **named)
    with cw.enabled():
        for _ in range(40 if skip_lookup else 0):
            getattr(F, name)(X, W)
        with pytest.raises(TypeError) as ours:
            getattr(F, name)(*args, **named)
    assert (type(ours.value), str(ours.value)) == (type(own.value), str(own.value))
    assert ours.value.__context__ is None


@pytest.mark.parametrize("mistake", [
    {"output_padding": (1, 2), "dilation": 2}, {"output_padding": 1, "dilation": 2, "bias": randn(4)},
])  # fmt: skip
def test_a_wrong_transposed_call_is_refused_by_pytorch(mistake: dict[str, Any]) -> None:
    x, w = randn(1, 2, 4, 4), randn(2, 3, 3, 3)
    with pytest.raises(RuntimeError) as own:
        F.conv_transpose2d(x, w, **mistake)
    with cw.enabled(), pytest.raises(RuntimeError) as ours:
        F.conv_transpose2d(x, w, **mistake)
    assert (type(ours.value), str(ours.value)) == (type(own.value), str(own.value))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            cw.conv_transpose2d(x, w, **mistake)


def test_algorithms_are_obeyed() -> None:
    layer, x = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 8, 8)
    with cw.enabled():
        with cw.algorithms(forward=GEMM):
            layer(x.clone())
            last = cw.last_choice()
        assert last is not None
        with pytest.raises(cw.BadInput, match="no algorithm is called 'magic'"), cw.algorithms(forward="magic"):
            layer(x)
        with cw.algorithms(forward="triton/implicit-gemm"), pytest.raises(cw.Refused, match="NVIDIA"):
            layer(x)
        with cw.algorithms(forward="triton/implicit-gemm", strict=False):
            assert_close(layer(x), OWN["conv2d"](x, layer.weight, layer.bias))
        with cw.algorithms(forward=GEMM), pytest.raises(cw.Refused, match=r"since its input is torch\.complex64"):
            F.conv2d(x.to(torch.complex64), layer.weight.to(torch.complex64))


def test_what_pytorch_takes_and_no_problem_can_say_is_pytorchs_or_refused() -> None:
    x, w = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3)
    named: dict[str, Any] = {"padding": b"same"}
    why = "`padding` must be an int or a tuple of ints, got b'same'"
    with cw.enabled():
        for around in ({}, {"forward": GEMM, "strict": False}, {"backward_weight": GEMM}):
            with cw.algorithms(**around):  # type: ignore[arg-type]
                assert_close(F.conv2d(x, w, **named), OWN["conv2d"](x, w, **named))
        with cw.algorithms(forward=GEMM), pytest.raises(cw.Refused, match=f"^{GEMM} cannot serve .*, since {why}$"):
            F.conv2d(x, w, **named)


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_what_measures_never_goes_through_what_was_replaced(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """References and PyTorch's own candidate are PyTorch's while it is on: they would search within a search."""
    monkeypatch.setattr("convwright.eager.enable.slow_path", None)
    with cw.enabled():
        found = cw.find(f"mb1ic4ih8oc4kh3 dir:{direction}", mode="quick", budget_us=50_000)
        assert found.choice is not None
        with pytest.raises(TypeError):
            F.conv2d(torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3))


def test_the_documentation_is_pytorchs() -> None:
    with cw.enabled():
        for name in OWN:
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


SCRIPT = """
import torch
torch.set_num_threads(1)  # in a forked child
import torch.nn.functional as F
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_script_that_knows_nothing_of_it() -> None:
    run = Program(SCRIPT)
    assert (run.communicate(), run.returncode) == ("True\n", 0)


def test_an_algorithm_asked_for_around_a_call_reaches_layers_that_are_not_looked_at() -> None:
    x, w = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
    with cw.enabled():
        for _ in range(200):
            F.conv2d(x, w)
        skip_lookup = stand_ins()[1].slots.skip_lookup
        assert id(w) in skip_lookup
        with cw.algorithms(forward="reference/gemm"):
            assert id(w) not in skip_lookup
            for _ in range(3):
                F.conv2d(x, w)
                assert cw.last_choice().candidate.id == "reference/gemm"  # type: ignore[union-attr]
            assert id(w) not in skip_lookup


def test_under_a_policy_every_call_is_looked_at() -> None:
    """PyTorch's own function is right for whatever it is given, and not always allowed."""
    x, w, policy = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3), Policy(max_workspace_bytes=0)
    with cw.enabled(policy=policy):
        for _ in range(100):
            F.conv2d(x, w)
        assert id(w) not in stand_ins()[1].slots.skip_lookup
    for _ in range(100):
        cw.conv2d(x, w, policy=policy)
    assert id(w) not in CONV2D.slots.skip_lookup


def test_a_hook_that_fails_is_called_once() -> None:
    layer, x, called = nn.Conv2d(6, 8, 3), torch.randn(2, 6, 9, 9), []

    def fails(tensor: torch.Tensor) -> torch.Tensor:
        called.append(tensor)
        raise RuntimeError("disk full")

    for call in (layer, lambda x: cw.conv2d(x, layer.weight, layer.bias)):
        with cw.enabled():
            for _ in range(40):
                call(x)
            for _ in range(40):
                called.clear()
                with (
                    pytest.raises(RuntimeError, match="disk full"),
                    torch.autograd.graph.saved_tensors_hooks(fails, lambda tensor: tensor),
                ):
                    call(x)
                assert len(called) == 1


def test_what_is_wrong_with_the_environment_is_said_where_it_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quik")
    settings.cache_clear()
    with pytest.raises(BadInput, match=r"CONVWRIGHT_MODE must be one of .*, got 'quik'"):
        cw.enable()
    assert not is_enabled()
    monkeypatch.undo()
    settings.cache_clear()


def test_a_weight_that_was_used_can_be_swapped() -> None:
    layer, x = nn.Conv2d(6, 8, 3), torch.randn(2, 6, 9, 9)
    with torch.no_grad(), cw.enabled():
        for _ in range(3):
            layer(x)
    torch.utils.swap_tensors(layer.weight, nn.Parameter(torch.zeros(8, 6, 3, 3)))
    assert_close(layer(x), layer.bias.detach()[:, None, None].expand(2, 8, 7, 7))


@pytest.mark.parametrize("policy", [Policy(objective="energy"), Policy(objective="energy", deterministic=True)])
def test_a_policy_that_cannot_be_kept_is_the_error_of_conv2d(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    settings.cache_clear()
    x, w = randn(1, 2, 6, 6), randn(3, 2, 3, 3)
    with pytest.raises(BadInput, match="energy needs mode full") as said:
        cw.conv2d(x, w, policy=policy)
    with cw.enabled(policy=policy):
        layer = nn.Conv2d(2, 3, 3, dtype=torch.float64)
        for call in (lambda: F.conv2d(x, w), lambda: layer(x)):
            with pytest.raises(BadInput) as refused:
                call()
            assert str(refused.value) == str(said.value)
        with pytest.raises(RuntimeError, match="expected input"):  # what is wrong is said in PyTorch's words
            F.conv2d(x, randn(3, 4, 3, 3))
        assert F.conv2d(x.to(torch.complex128), w.to(torch.complex128)).shape == (1, 3, 4, 4)
