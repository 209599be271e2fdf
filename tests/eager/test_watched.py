"""Whoever must see PyTorch's own functions sees them: functorch, autocast, subclasses, modes, fake tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.testing import assert_close

import convwright as cw
from convwright.errors import BadInput, Refused
from eager.layer import Layer
from eager.prefer import BOTH, GEMM, count_calls, prefer, randn


@BOTH
def test_vmap_and_functional_gradients(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(3, 2, 4, 6, 6), randn(6, 4, 3, 3)
    cw.conv2d(x[0], w)  # what is remembered of this must not serve the batched call

    def ours(x: Tensor, w: Tensor) -> Tensor:
        return cw.conv2d(x, w, padding=1, activation="relu").square().sum()

    def theirs(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=1).relu().square().sum()

    for transform in (
        lambda f: torch.vmap(f, (0, None)),
        lambda f: torch.func.vmap(torch.func.grad(f, (0, 1)), (0, None)),
        lambda f: lambda x, w: torch.func.grad(f, (0, 1))(x[0], w),
        lambda f: lambda x, w: torch.func.jvp(f, (x[0], w), (x[1], w)),
        lambda f: lambda x, w: torch.func.hessian(f)(x[0, :1, :, :3, :3], w[:1])[0, 0],
    ):
        assert_close(transform(ours)(x, w), transform(theirs)(x, w))
    assert_close(cw.conv2d(x[0], w), F.conv2d(x[0], w))


def test_forward_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.autograd import forward_ad

    x, w, tangent = randn(2, 4, 6, 6), randn(6, 4, 3, 3), randn(2, 4, 6, 6, seed=5)
    cw.conv2d(x, w)
    with forward_ad.dual_level():
        y = cw.conv2d(forward_ad.make_dual(x, tangent), w)
        assert_close(forward_ad.unpack_dual(y).tangent, F.conv2d(tangent, w))


@BOTH
def test_autocast(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = (randn(*shape, dtype=torch.float32, grad=True) for shape in ((2, 4, 9, 8), (6, 4, 3, 3), (6,)))
    for inside in (False, True, False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            ours, theirs = cw.conv2d(x, w, b), F.conv2d(x, w, b)
        assert ours.dtype == theirs.dtype == (torch.bfloat16 if inside else torch.float32)
        tolerance = {"rtol": 0.02, "atol": 0.1} if inside else {"rtol": 1e-4, "atol": 1e-4}
        assert_close(ours, theirs, **tolerance)
        made = [torch.autograd.grad(y.float().sum(), (x, w, b)) for y in (ours, theirs)]
        assert [gradient.dtype for gradient in made[0]] == [torch.float32] * 3
        assert_close(*made, rtol=0.02, atol=0.5 if inside else 1e-3)


def test_autocast_leaves_float64_alone() -> None:
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = cw.conv2d(x, w), F.conv2d(x, w)
    assert ours.dtype == theirs.dtype
    assert_close(ours, theirs)


def test_autocast_reconciles_mixed_operands() -> None:
    x, w = randn(2, 4, 9, 8, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))


@BOTH
def test_inference_mode(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    outside = randn(2, 4, 9, 8), randn(6, 4, 3, 3, grad=True)
    for _ in range(2):
        with torch.inference_mode():
            inside = outside[0] + 1, outside[1] * 2
            for x, w in (outside, inside):
                assert_close(cw.conv2d(x, w, activation="relu"), F.conv2d(x, w).relu())
        assert cw.conv2d(*outside).requires_grad


@BOTH
def test_fake_tensors(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    real = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(tensor) for tensor in real]
        y = cw.conv2d(*fake, padding=1, activation="relu")
    assert tuple(y.shape) == (2, 6, 9, 8)
    assert type(y) is not Tensor
    assert called == []


def test_meta_tensors() -> None:
    x, w = (torch.empty(shape, device="meta") for shape in ((2, 4, 9, 8), (6, 4, 3, 3)))
    y = cw.conv2d(x, w, padding=1)
    assert (y.device.type, tuple(y.shape)) == ("meta", (2, 6, 9, 8))


class Seen(Tensor):
    """Notes the functions that it is given to."""

    functions: list[str]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if hasattr(cls, "functions"):
            cls.functions.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


@BOTH
@pytest.mark.parametrize("which", [0, 1])
def test_subclasses(which: int, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    operands = [randn(2, 4, 9, 8), randn(6, 4, 3, 3)]
    expected = F.conv2d(*operands)
    cw.conv2d(*operands)
    operands[which] = operands[which].as_subclass(Seen)
    Seen.functions = []
    y = cw.conv2d(*operands)
    assert type(y) is Seen
    assert "conv2d" in Seen.functions
    assert_close(y.as_subclass(Tensor), expected)


def test_dispatch_modes_see_the_convolution() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen: list[str] = []
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    cw.conv2d(x, w)
    with Log():
        cw.conv2d(x, w)
        with pytest.raises(Refused, match="reference/gemm cannot serve this call"):
            cw.conv2d(x, w, algorithm=GEMM)
    assert "aten.convolution.default" in seen


def test_a_residual_without_memory() -> None:
    x, w = torch.empty(2, 6, 9, 9, device="meta"), torch.empty(8, 6, 3, 3, device="meta")
    assert cw.conv2d(x, w, padding=1, residual=torch.empty(2, 8, 9, 9, device="meta")).shape == (2, 8, 9, 9)


class OnlyLayers(Tensor):
    """Takes the function of a layer, and no other."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") != "conv2d":
            raise TypeError("only functions of layers")
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def test_a_tensor_that_takes_functions_of_layers_only() -> None:
    layer, x = nn.Conv2d(4, 6, 3), randn(2, 4, 9, 8, dtype=torch.float32)
    given, expected = x.as_subclass(OnlyLayers), layer(x)
    for made in (cw.convert(layer)(given), cw.conv2d(given, layer.weight, layer.bias)):
        with torch._C.DisableTorchFunctionSubclass():
            assert_close(made.as_subclass(Tensor), expected)


def test_a_weight_without_values_is_refused() -> None:
    with pytest.raises(BadInput, match="`weight` must have values, got an UninitializedParameter"):
        cw.conv2d(randn(2, 4, 9, 8), nn.UninitializedParameter())


@pytest.mark.parametrize("made", ["function", "convert"])
def test_gradients_of_each_sample(made: str) -> None:
    layer, x = nn.Conv2d(4, 6, 3), randn(5, 4, 9, 8, dtype=torch.float32)
    ours = cw.convert(nn.Conv2d(4, 6, 3)) if made == "convert" else Layer()
    call_for_per_sample_grads(layer)(x).square().sum().backward()
    expected = [parameter.grad_sample for parameter in layer.parameters()]
    for mine, theirs in zip(ours.parameters(), layer.parameters(), strict=True):
        mine.data = theirs.detach().clone()
    call_for_per_sample_grads(ours)(x).square().sum().backward()
    assert_close([parameter.grad_sample for parameter in ours.parameters()], expected)
