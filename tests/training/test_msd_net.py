"""A mixed-scale dense network computes and learns what the plain network of PyTorch's modules does, in one buffer."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.errors import BadInput, Refused
from convwright.graph.operations import Join

IN, OUT, DEPTH, WIDTH = 2, 3, 4, 2
SIZES = {2: (12, 11), 3: (6, 7, 8)}


class Plain(nn.Module):
    """The same network, written as one would: every layer reads a concatenation of all that there is."""

    def __init__(self, rank: int = 2, padding_mode: str = "zeros", dilations: tuple[int, ...] = (1, 2, 3)) -> None:
        super().__init__()
        conv, self.channel_dim = {2: nn.Conv2d, 3: nn.Conv3d}[rank], -rank - 1
        self.layers = nn.ModuleList()
        for number in range(DEPTH):
            d = dilations[number % len(dilations)]
            reads = IN + WIDTH * number
            self.layers.append(conv(reads, WIDTH, 3, padding=d, dilation=d, padding_mode=padding_mode))
        self.last = conv(IN + WIDTH * DEPTH, OUT, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(F.relu(layer(torch.cat(found, self.channel_dim))))
        return self.last(torch.cat(found, self.channel_dim))


def pair(rank: int = 2, padding_mode: str = "zeros", dtype: torch.dtype = torch.float32) -> tuple[Any, Plain, Tensor]:
    """An MSDNet, the plain network with the same weights, and an input."""
    torch.manual_seed(0)
    model = cw.nn.MSDNet(IN, OUT, DEPTH, WIDTH, (1, 2, 3), spatial_dims=rank, padding_mode=padding_mode).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    plain = Plain(rank, padding_mode).to(dtype)
    plain.load_state_dict(model.state_dict())
    return model, plain, torch.randn(2, IN, *SIZES[rank], dtype=dtype)


def learned(model: nn.Module, x: Tensor, dy: Tensor) -> list[Tensor]:
    """The output, and the gradients of the input and of all parameters."""
    x = x.detach().requires_grad_()
    y = model(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *model.parameters()], dy.to(y.dtype))]


def check(model: nn.Module, plain: nn.Module, x: Tensor) -> None:
    """Errors beside float64 are at most twice the plain network's."""
    dy = torch.randn(x.shape[0], OUT, *x.shape[2:])
    exact = learned(copy.deepcopy(plain).double(), x.double(), dy)
    for ours, theirs, right in zip(learned(model, x, dy), learned(plain, x, dy), exact, strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        error, own = ((each.double() - right).norm() / right.norm() for each in (ours, theirs))
        assert error <= max(2 * own, 2 * torch.finfo(x.dtype).eps)


CASES = [(2, "zeros"), (2, "reflect"), (3, "zeros"), (3, "reflect")]


@pytest.mark.parametrize(("rank", "padding_mode"), CASES)
def test_outputs_and_gradients(rank: int, padding_mode: str) -> None:
    model, plain, x = pair(rank, padding_mode)
    check(model, plain, x)
    with torch.no_grad():
        assert_close(model(x), plain(x))
        assert_close(model(x[0]), plain(x[0]))  # without a batch


@pytest.mark.parametrize("rank", [2, 3])
def test_by_an_algorithm_that_is_asked_for(rank: int) -> None:
    model, plain, x = pair(rank)
    name = "reference/gemm"
    with cw.algorithms(forward=name, backward_data=name, backward_weight=name):
        check(model, plain, x)
        with torch.no_grad():
            assert_close(model(x), plain(x))
        choice = cw.last_choice()
    assert choice is not None
    assert choice.candidate.id == name


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_an_algorithm_that_refuses_is_an_error(direction: str) -> None:
    model, _, x = pair()
    with cw.algorithms(**{direction: "cudnn/fft"}), pytest.raises(Refused, match="cudnn/fft"):
        model(x)


def test_channels_last() -> None:
    model, plain, x = pair()
    for each in (model, plain):
        each.to(memory_format=torch.channels_last)
    check(model, plain, x.contiguous(memory_format=torch.channels_last))


@pytest.mark.parametrize(("rank", "padding_mode"), CASES)
def test_gradcheck(rank: int, padding_mode: str) -> None:
    model, _, _ = pair(rank, padding_mode, torch.float64)
    x = torch.randn(1, IN, *(4, 5, 4)[:rank], dtype=torch.float64, requires_grad=True)
    operands = x, *model.parameters()
    assert torch.autograd.gradcheck(lambda x, *_: model(x), operands, fast_mode=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, *_: model(x), operands, fast_mode=True)


def test_a_backward_pass_keeps_one_buffer() -> None:
    model, _, x = pair()
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        y = model(x)
    others = {each.untyped_storage().data_ptr() for each in (x, *model.parameters())}
    assert sum(size for at, size in kept.items() if at not in others) == (IN + WIDTH * DEPTH) * x[:, :1].nbytes
    y.sum().backward()


def test_gradients_add_up_and_a_graph_may_be_used_again() -> None:
    model, plain, x = pair()
    for each in (model, plain):
        y = each(x).square().sum()
        y.backward(retain_graph=True)
        y.backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("trained", [("last",), ("layers.2", "last"), ("layers.1.bias",)])
def test_only_some_parameters_learn(trained: tuple[str, ...]) -> None:
    model, plain, x = pair()
    for each in (model, plain):
        for name, parameter in each.named_parameters():
            parameter.requires_grad_(name.startswith(trained))
        each(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert (ours.grad is None) is (theirs.grad is None)
        if theirs.grad is not None:
            assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    model, plain, x = pair()
    with torch.autocast("cpu", dtype):
        check(model, plain, x)
        assert model(x).dtype is dtype


def hooked(model: nn.Module) -> nn.Module:
    model.layers[1].register_forward_hook(lambda module, given, y: 2 * y)
    return model


def converted(model: nn.Module) -> nn.Module:
    return cw.convert(model)


@pytest.mark.parametrize("changed", [hooked, converted, lambda model: model])
@pytest.mark.parametrize("watched", [nullcontext, lambda: torch.autograd.forward_ad.dual_level()])
def test_what_needs_modules_or_pytorchs_operators(changed: Callable[..., Any], watched: Callable[..., Any]) -> None:
    model, plain, x = pair()
    model, plain = changed(model), changed(plain) if changed is hooked else plain
    with watched():
        assert_close(model(x), plain(x))


def test_exported_it_is_made_of_convolutions_and_concatenations() -> None:
    model, plain, x = pair()
    program = torch.export.export(model.eval(), (x,))
    operators = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert operators.count("aten.conv2d.default") == DEPTH + 1
    assert operators.count("aten.cat.default") == DEPTH
    assert_close(program.module()(x), plain(x))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_compiled_and_traced() -> None:
    model, plain, x = pair()
    compiled, dy = torch.compile(model, backend="aot_eager", fullgraph=True), torch.randn(2, OUT, *SIZES[2])
    for ours, theirs in zip(learned(compiled, x, dy), learned(plain, x, dy), strict=True):
        assert_close(ours, theirs)
    assert_close(torch.jit.trace(model, x)(x), plain(x))


def test_transforms_of_functions() -> None:
    model, plain, x = pair()
    for_each = [
        vmap(grad(lambda p, x, m=each: functional_call(m, p, (x,)).square().sum()), (None, 0))(
            dict(each.named_parameters()), x
        )
        for each in (model, plain)
    ]
    for name, ours in for_each[0].items():
        assert_close(ours, for_each[1][name])


def test_one_weight_and_one_bias_for_each_layer() -> None:
    model = cw.nn.MSDNet(1, 2, depth=12, spatial_dims=3)
    state = model.state_dict()
    assert list(state) == [f"{layer}.{part}" for layer in (*(f"layers.{i}" for i in range(12)), "last")
                           for part in ("weight", "bias")]  # fmt: skip
    assert [tuple(state[f"layers.{i}.weight"].shape) for i in (0, 11)] == [(1, 1, 3, 3, 3), (1, 12, 3, 3, 3)]
    assert [layer.dilation[0] for layer in model.layers] == [*range(1, 11), 1, 2]


def test_copies_and_pickles() -> None:
    model, plain, x = pair()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_close(again(x), plain(x))


def test_no_images() -> None:
    model, plain, x = pair()
    assert model(x[:0]).shape == plain(x[:0]).shape


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"depth": 0}, "`depth` must be a whole number above 0, got 0"),
        ({"width": 1.5}, "`width` must be a whole number above 0, got 1.5"),
        ({"dilations": ()}, "`dilations` must be whole numbers above 0, got 0"),
        ({"spatial_dims": 1}, "`spatial_dims` must be 2 or 3, got 1"),
        ({"padding_mode": "same"}, "`padding_mode` must be 'zeros' or 'reflect', got 'same'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        cw.nn.MSDNet(1, 1, **arguments)


def test_bad_input() -> None:
    model, _, x = pair()
    with pytest.raises(BadInput, match=r"the input must be \(N, 2, H, W\) or \(2, H, W\), got shape \(2, 1, 12, 11\)"):
        model(x[:, :1])


@pytest.mark.parametrize(("rank", "depth"), [(2, 3), (3, 2)])
def test_an_engine_joins_where_the_parts_lie(rank: int, depth: int) -> None:
    """Its arena is the one buffer of all layers."""
    torch.manual_seed(0)
    model, x = cw.nn.MSDNet(1, 2, depth, spatial_dims=rank).eval(), torch.randn(1, 1, *[16] * rank)
    engine = cw.optimize(model, x, mode="heuristic")
    joins = [step for step in engine.assignment.steps if step.name.startswith("cat")]
    assert len(joins) == depth
    assert all(isinstance(step.operation, Join) for step in joins)
    assert engine.arena_bytes == (1 + depth) * x.nbytes
    exact = copy.deepcopy(model).double()(x.double())
    error, own = ((each.double() - exact).norm() for each in (engine(x), model(x)))
    assert error <= 2 * own
