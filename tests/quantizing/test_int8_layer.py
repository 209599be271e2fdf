"""A layer in int8 computes exactly what it says, and is a module like others."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw
from convwright.core.error_bound import exact_bound
from convwright.engine.capture.merged import Merged
from convwright.errors import BadInput
from convwright.quantizing.int8_layer import Int8Conv

# Powers of 2, so that every product and sum below is exact, in whatever precision it is computed.
INPUT_SCALE, WEIGHT_SCALES = 2.0**-5, (2.0**-6, 2.0**-2)
LIMIT = 127 * INPUT_SCALE


def whole(*shape: int, most: int = 127, seed: int = 0) -> Tensor:
    return torch.randint(-most, most + 1, shape, generator=torch.Generator().manual_seed(seed)).double()


def conv_of(rank: int = 2, channels: int = 4, outputs: int = 6, **more: Any) -> Any:
    """A convolution whose weight is whole numbers times a scale, one of two, for each output channel."""
    conv: Any = getattr(nn, f"Conv{rank}d")(channels, outputs, **{"kernel_size": 3, **more})
    numbers = whole(*conv.weight.shape, seed=1)
    numbers.view(outputs, -1)[:, 0] = 127
    scales = torch.tensor(WEIGHT_SCALES, dtype=torch.float64).repeat(outputs)[:outputs]
    with torch.no_grad():
        conv.weight.copy_(numbers * scales.view(-1, *[1] * (rank + 1)))
        if conv.bias is not None:
            conv.bias.copy_(whole(outputs, most=1000, seed=2))
    return conv


def expected(x: Tensor, conv: Any) -> Tensor:
    """The definition, in int64: inputs to the nearest whole number, ties to even, cut off at ±127."""
    steps, floors = x.double() / INPUT_SCALE, torch.floor(x.double() / INPUT_SCALE)
    apart = steps - floors
    up = (apart > 0.5) | ((apart == 0.5) & (floors.long() % 2 == 1))
    x8 = (floors.long() + up.long()).clamp(-127, 127)
    w8 = torch.empty_like(conv.weight, dtype=torch.int64)
    scales = torch.empty(len(w8), dtype=torch.float64)
    for k, row in enumerate(conv.weight.detach().double()):
        scales[k] = row.abs().max() / 127
        w8[k] = (row / scales[k]).long()
    padding = conv.padding
    if conv.padding_mode != "zeros":
        x8, padding = F.pad(x8.double(), conv._reversed_padding_repeated_twice, mode=conv.padding_mode).long(), 0
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[conv.weight.dim() - 2]
    sums = function(x8.double(), w8.double(), None, conv.stride, padding, conv.dilation, conv.groups)
    each = (-1, *[1] * (conv.weight.dim() - 2))
    y = sums * (INPUT_SCALE * scales).view(each)
    return y if conv.bias is None else y + conv.bias.detach().double().view(each)


CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "plain": ({}, (2, 4, 9, 8)),
    "no bias": ({"bias": False}, (2, 4, 9, 8)),
    "strided": ({"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}, (1, 4, 9, 11)),
    "same": ({"padding": "same", "kernel_size": 4}, (1, 4, 9, 8)),
    "grouped": ({"groups": 2}, (2, 4, 9, 8)),
    "depthwise": ({"groups": 4, "outputs": 4, "padding": 1}, (2, 4, 9, 8)),
    "circular": ({"padding": 2, "padding_mode": "circular"}, (2, 4, 9, 8)),
    "reflect": ({"padding": 1, "padding_mode": "reflect"}, (2, 4, 9, 8)),
    "one image": ({"padding": 1}, (4, 9, 8)),
    "1x1": ({"kernel_size": 1, "stride": 2}, (2, 4, 9, 8)),
    "rank 1": ({"rank": 1, "padding": 1}, (2, 4, 13)),
    "rank 3": ({"rank": 3, "padding": 1}, (1, 4, 5, 4, 6)),
    "an empty batch": ({}, (0, 4, 9, 8)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_it_is_exact(case: str, dtype: torch.dtype) -> None:
    options, shape = CASES[case]
    conv = conv_of(**options)
    # Multiples of a quarter of the scale, a few beyond the limit: ties, and values that are cut off.
    x = (whole(*shape, most=560, seed=3) * INPUT_SCALE / 4).to(dtype)
    y = Int8Conv(Merged(conv), LIMIT)(x)
    assert y.dtype is dtype
    exact = expected(x, conv)
    assert y.shape == exact.shape
    # fp32 holds these sums; anything else holds them rounded once.
    assert torch.equal(y, exact.float().to(dtype))


@pytest.mark.parametrize(
    "activation", [nn.ReLU(), nn.SiLU(), nn.GELU(), nn.Hardswish()], ids=lambda a: type(a).__name__
)
def test_an_activation_is_a_part_of_it(activation: nn.Module) -> None:
    conv, x = conv_of(), whole(2, 4, 9, 8, seed=3).float() * INPUT_SCALE / 16
    layer = Int8Conv(Merged(conv, None, activation), LIMIT)
    y, meant = layer(x), activation(expected(x, conv))
    problem = cw.ConvProblem.parse(f"mb2ic4ih9iw8oc6kh3 dt:int8 ep:scale+bias+{layer.activation}")
    bound = exact_bound(problem) * 2.0**-24 * expected(x, conv).abs()
    assert bool(((y.double() - meant).abs() <= bound).all())


def test_an_output_lies_as_pytorchs_does() -> None:
    conv = conv_of(padding=1)
    layer, x = Int8Conv(Merged(conv), LIMIT), torch.randn(2, 4, 9, 8)
    last = x.contiguous(memory_format=torch.channels_last)
    for given in (x, last, torch.randn(2, 4, 9, 16)[..., ::2]):
        assert layer(given).stride() == conv(given).stride()
    assert torch.equal(layer(last), layer(x))
    moved, layer = conv.to(memory_format=torch.channels_last), layer.to(memory_format=torch.channels_last)
    assert layer(x).stride() == moved(x).stride()


def test_inputs_of_ever_new_sizes_are_served_with_few_weights_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    conv = conv_of(channels=2, outputs=2)
    layer = Int8Conv(Merged(conv), LIMIT)
    for size in [*range(3, 20), 3, 4]:
        x = whole(1, 2, size, 5, seed=size).float() * INPUT_SCALE
        assert torch.equal(layer(x).double(), expected(x, conv))
    assert len(layer._calls._ready) == 8


@pytest.mark.parametrize("how", ["copied", "pickled", "loaded"])
def test_copied_pickled_or_loaded_it_is_the_same(how: str) -> None:
    conv, x = conv_of(), torch.randn(2, 4, 9, 8)
    layer: Any = Int8Conv(Merged(conv, None, nn.ReLU()), LIMIT, cw.Policy(deterministic=True))
    meant = layer(x)
    if how == "copied":
        again = copy.deepcopy(layer)
    elif how == "pickled":
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        again = torch.load(buffer, weights_only=False)
    else:
        again = Int8Conv(Merged(nn.Conv2d(4, 6, 3), None, nn.ReLU()), 1.0)
        assert not torch.equal(again(x), meant)  # which packs the weight that is then written over
        again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x), meant)
    assert again.weight_int8 is not layer.weight_int8
    assert sorted(layer.state_dict()) == ["bias", "input_scale", "scale", "weight_int8"]


def test_a_state_in_floating_point_is_not_taken_for_one_in_int8() -> None:
    conv = conv_of()
    with pytest.raises(RuntimeError, match="weight_int8"):
        Int8Conv(Merged(conv), LIMIT).load_state_dict(conv.state_dict())


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double"])
def test_it_is_never_cast(cast: str) -> None:
    layer, x = Int8Conv(Merged(conv_of()), LIMIT), torch.randn(2, 4, 9, 8)
    meant = layer(x)
    moved = getattr(layer, cast)()
    assert moved is layer
    assert {str(tensor.dtype) for tensor in layer.buffers()} == {"torch.int8", "torch.float32"}
    assert torch.equal(layer(x), meant)


def test_autocast_stores_as_it_would_have_pytorchs() -> None:
    conv, x = conv_of(), torch.randn(2, 4, 9, 8)
    layer = Int8Conv(Merged(conv), LIMIT)
    meant = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype is conv(x).dtype is torch.bfloat16
    assert torch.equal(y, meant.bfloat16())


def test_it_says_by_what_it_is_computed_and_what_it_is() -> None:
    layer = Int8Conv(Merged(conv_of(groups=2, padding=1), None, nn.ReLU()), LIMIT)
    assert layer.choices == {}
    layer(torch.randn(2, 4, 9, 8))
    assert layer.choices == {"forward": "unfuse(reference/direct)"}
    assert layer.limit == LIMIT
    said = "Int8Conv(4, 6, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), groups=2, activation=relu)"
    assert repr(layer) == said


def test_a_compiler_leaves_it_alone() -> None:
    model, x = nn.Sequential(nn.ReLU(), Int8Conv(Merged(conv_of()), LIMIT), nn.ReLU()), torch.randn(2, 4, 9, 8)
    meant = model(x)
    assert torch.equal(torch.compile(model, backend="eager")(x), meant)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda layer, x: layer(x.requires_grad_()), "is for inference and computes no gradient: call it in"),
        (lambda layer, x: layer(x.double()), "takes an input of torch.float32, torch.float16, torch.bfloat16"),
        (lambda layer, x: layer(x.to("meta")), "`input` must be on cpu like the weight, got one on meta"),
        (lambda layer, x: layer(x[:, :3]), "channels"),
        (lambda layer, x: layer(x[..., :2, :2]), "the filter reaches over 3 elements"),
        (lambda layer, x: layer([x]), "`input` must be a tensor, got list"),
        (lambda layer, x: layer(nn.parameter.Buffer(x).as_subclass(Foreign)), "its input is a Foreign, and no plain"),
        (lambda layer, x: torch.jit.trace(layer, x), r"torch\.jit traces it"),
        (lambda layer, x: torch.jit.script(layer), r"torch\.jit\.script cannot compile an int8 layer"),
        (lambda layer, x: torch.func.vmap(layer)(x), "it is inside a transform of torch.func, such as vmap"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_one_sentence(call: Any, said: str) -> None:
    layer = Int8Conv(Merged(conv_of()), LIMIT)
    with pytest.raises(BadInput, match=said) as error:
        call(layer, torch.randn(2, 4, 9, 8))
    assert "\n" not in str(error.value)


class Foreign(Tensor):
    """A tensor of some library."""


def test_a_gradient_is_an_error_only_where_one_is_wanted() -> None:
    layer, x = Int8Conv(Merged(conv_of()), LIMIT), torch.randn(2, 4, 9, 8, requires_grad=True)
    with torch.no_grad():
        assert not layer(x).requires_grad
    with torch.inference_mode():
        layer(x)
    layer(x.detach())
