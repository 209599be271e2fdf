"""Operands that want to be told of PyTorch's functions, or have no sizes to compare, meet what they expect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.operator_schemas import normalize_function
from torch.nn import functional as F
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

import convwright as cw
from convwright.eager import enable
from convwright.errors import Refused
from eager.prefer import GEMM, TORCH, prefer, randn


class Told(Tensor):
    """Remembers which functions it was told of, and with what arguments."""

    calls: list[tuple[Any, int, tuple[str, ...]]] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append((func, len(args), tuple(kwargs or ())))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture(params=[TORCH, GEMM])
def _served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, a candidate serves calls like this one already."""
    prefer(monkeypatch, request.param)
    with cw.enabled():
        for _ in range(3):
            F.conv2d(randn(2, 3, 8, 8), WEIGHT, padding=1)
        yield


WEIGHT = randn(4, 3, 3, 3)


@pytest.mark.usefixtures("_served")
@pytest.mark.parametrize("calls", [
    lambda told: F.conv2d(told, WEIGHT, padding=1),
    lambda told: F.conv2d(input=told, weight=WEIGHT, padding=1),
    lambda told: F.conv2d(randn(2, 3, 8, 8), WEIGHT.as_subclass(Told), padding=1),
])  # fmt: skip
def test_a_subclass_is_told_of_the_call_as_it_was_made(calls: Callable[[Tensor], Tensor]) -> None:
    told = randn(2, 3, 8, 8).as_subclass(Told)

    def seen() -> list[tuple[Any, int, tuple[str, ...]]]:
        Told.calls.clear()
        calls(told)
        return [*Told.calls]

    under = seen()
    cw.disable()
    own = seen()
    assert under == own
    assert len(own) == 1


@pytest.mark.usefixtures("_served")
def test_a_traced_call_stands_in_the_graph_as_it_was_written() -> None:
    graph = fx.symbolic_trace(lambda x: F.conv2d(x, WEIGHT, padding=1)).graph
    node = next(node for node in graph.nodes if node.op == "call_function")
    assert (node.target, dict(node.kwargs)) == (torch.conv2d, {"padding": 1})
    assert len(node.args) == 2


@pytest.mark.parametrize("transposed", [False, True])
def test_the_passes_of_a_graph_know_the_arguments(transposed: bool) -> None:
    with cw.enabled():
        function = F.conv_transpose2d if transposed else F.conv2d
        told = normalize_function(function, (1, 2), {"padding": 3}, normalize_to_only_use_kwargs=True)
    assert told is not None
    rest = {"output_padding": 0, "groups": 1, "dilation": 1} if transposed else {"dilation": 1, "groups": 1}
    expected = {"input": 1, "weight": 2, "bias": None, "stride": 1, "padding": 3} | rest
    assert list(told.kwargs.items()) == list(expected.items())


def test_an_algorithm_that_was_asked_for_cannot_serve_a_subclass() -> None:
    told = randn(2, 3, 8, 8).as_subclass(Told)
    with cw.enabled(), cw.algorithms(forward=GEMM), pytest.raises(Refused, match="an operand is a Told"):
        F.conv2d(told, WEIGHT)


@pytest.mark.parametrize(("layer", "shape"), [
    (nn.Conv1d(3, 4, 3), (2, 3, 9)),
    (nn.Conv2d(3, 4, 3, padding="same"), (2, 3, 9, 9)),
    (nn.Conv3d(3, 4, 3, stride=2), (2, 3, 5, 5, 5)),
])  # fmt: skip
def test_gradients_of_each_sample_are_pytorchs(layer: nn.Module, shape: tuple[int, ...]) -> None:
    def gradients() -> list[Tensor]:
        call_for_per_sample_grads(layer)(randn(*shape, dtype=torch.float32)).sum().backward()
        found = [parameter.grad_sample for parameter in layer.parameters()]  # type: ignore[attr-defined]
        for parameter in layer.parameters():
            del parameter.grad_sample  # type: ignore[attr-defined]
        return found

    own = gradients()
    with cw.enabled():
        torch.testing.assert_close(gradients(), own)
    with cw.enabled(), cw.algorithms(forward=GEMM, strict=False):
        torch.testing.assert_close(gradients(), own)
    with cw.enabled(), cw.algorithms(forward=GEMM), pytest.raises(Refused, match="an operand is a ExpandedWeight"):
        gradients()


class Functional(nn.Module):
    """One convolution that is a function's, whose parameters are its own."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.transposed, self.weight = transposed, nn.Parameter(randn(4, 4, 3, 3, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        if self.transposed:
            return F.conv_transpose2d(x, self.weight, None, [1, 1], [0, 0], [0, 0], 1, [1, 1])
        return F.conv2d(x, self.weight, None, [1, 1], [0, 0], [1, 1], 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:must run observer")
@pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="PyTorch has no fbgemm")
@pytest.mark.parametrize("transposed", [False, True])
def test_a_quantized_graph_is_pytorchs(transposed: bool) -> None:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    def operators() -> list[str]:
        with torch.random.fork_rng():
            x = randn(2, 4, 8, 8, dtype=torch.float32)
            prepared = prepare_fx(Functional(transposed).eval(), get_default_qconfig_mapping("fbgemm"), (x,))
            prepared(x)
            return [str(node.target) for node in convert_fx(prepared).graph.nodes]

    own = operators()
    assert any("quantized.conv" in operator for operator in own)
    with cw.enabled():
        assert operators() == own
    assert operators() == own


ENTERED_IN_A_TABLE = """
import torch, convwright as cw
cw.enable()
from torch.ao.quantization.fx._lower_to_native_backend import STATIC_LOWER_FUNCTIONAL_MAP as table
print(torch.conv2d in table, torch.nn.functional.conv2d in table)
"""


def test_what_pytorch_enters_in_tables_while_it_is_on_is_its_own() -> None:
    run = subprocess.run([sys.executable, "-c", ENTERED_IN_A_TABLE], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "True False\n"), run.stderr


def test_what_compares_functions_sees_them_as_they_are_when_it_is_over() -> None:
    with cw.enabled():
        pass
    for module in enable._comparing():
        assert getattr(module, "F", F) is F
        assert getattr(module, "torch", torch) is torch


def test_what_another_thread_asks_for_changes_nothing_for_a_subclass() -> None:
    asks, asked = Event(), Event()

    def ask() -> None:
        with cw.algorithms(forward=GEMM):
            asks.set()
            asked.wait(30)

    other = Thread(target=ask)
    other.start()
    try:
        assert asks.wait(30)
        Told.calls.clear()
        with cw.enabled():
            F.conv2d(randn(2, 3, 8, 8).as_subclass(Told), WEIGHT, padding=1)
    finally:
        asked.set()
        other.join()
    ((function, given, named),) = Told.calls
    assert (function, given, named) == (torch.conv2d, 2, ("padding",))


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_nested_tensor_is_pytorchs_to_refuse(
    algorithm: str, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sizes cannot be compared: a look at them would end the process."""
    function, own = (cw.conv_transpose2d, F.conv_transpose2d) if transposed else (cw.conv2d, F.conv2d)
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 8, 8), randn(4, 4, 3, 3)
    nested = torch.nested.nested_tensor([x[0], x[1]])
    for weight in (w, randn(4, 4, 3, 3, seed=1)):
        with pytest.raises(NotImplementedError, match="aten::convolution") as theirs:
            own(nested, weight)
        for _ in range(3):
            with pytest.raises(NotImplementedError, match="aten::convolution") as ours:
                function(nested, weight)
            assert str(ours.value) == str(theirs.value)
            function(x, w)
