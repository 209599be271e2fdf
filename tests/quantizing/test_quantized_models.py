"""Models in int8 in other precisions, layouts and forms: copied, converted, compiled, made in inference mode."""

from __future__ import annotations

import copy
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.errors import BadInput
from convwright.quantizing.int8_layer import Int8Conv
from quantizing.nets import Net, images, trained


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_models_in_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 1)
    model = trained(nn.Sequential(*layers)).to(dtype)
    samples = [x.to(dtype) for x in images()]
    made = cw.quantize(model, samples)
    assert len(made.in_int8) == 2
    assert made.model(samples[0]).dtype is dtype
    assert made.error is not None
    assert made.error < 0.03
    problem = made.layers[0].problem
    assert problem is not None
    assert problem.y.dtype == ("fp16" if dtype is torch.float16 else "bf16")


def test_channels_last_and_other_sizes_than_the_samples(net: Net) -> None:
    last = copy.deepcopy(net).to(memory_format=torch.channels_last)
    samples = [x.contiguous(memory_format=torch.channels_last) for x in images()]
    ours, made = cw.quantize(net, images()), cw.quantize(last, samples)
    assert isinstance(made.model.stem, Int8Conv)
    y = made.model.stem(samples[0])
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y, ours.model.stem(images()[0]))
    for size in (5, 24):
        x = torch.randn(1, 3, size, size + 3, generator=torch.Generator().manual_seed(5))
        with torch.no_grad():
            meant = net(x)
            assert (made.model(x) - meant).norm() < 0.1 * meant.norm()


def test_the_model_goes_on_without_no_grad_and_can_be_copied(net: Net) -> None:
    made = cw.quantize(net, images())
    y = made.model(images()[0])
    assert not y.requires_grad
    again = copy.deepcopy(made.model)
    assert torch.equal(again(images()[0]), y)
    other = cw.quantize(net, images(1)).model
    other.load_state_dict(made.model.state_dict())
    assert torch.equal(other(images()[0]), y)
    with pytest.raises(BadInput, match="an int8 layer is for inference"):
        made.model(images()[0].requires_grad_())


def test_arguments_by_position_and_name_and_models_with_several_outputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor, *, weight: float = 1.0) -> dict[str, Any]:
            y = self.conv(input=x) * weight
            return {"first": x, "second": [y, y.argmax()]}

    model = Two().eval()
    made = cw.quantize(model, [{"x": images()[0], "weight": 2.0}, (images()[1],)])
    alone = cw.quantize(model.conv, images(2))
    assert made.error == pytest.approx(float(alone.error or inf), rel=0.5)  # of the worst output
    assert made.layers[0].largest == alone.layers[0].largest


def test_a_converted_model_can_be_quantised(net: Net) -> None:
    plain, converted = cw.quantize(net, images()), cw.quantize(cw.convert(copy.deepcopy(net)), images())
    assert [layer.kept for layer in converted.layers] == [layer.kept for layer in plain.layers]
    x = images()[0]
    assert torch.equal(converted.model.stem(x), plain.model.stem(x))  # type: ignore[operator]


def test_a_model_in_int8_can_be_advised_and_compiled_ones_are_taken_as_they_were_written(net: Net) -> None:
    made = cw.quantize(torch.compile(net, backend="eager"), images())  # type: ignore[arg-type]
    assert type(made.model) is Net
    advice = cw.advise(made.model, images()[0], mode="heuristic")
    names = {name for layer in advice.layers for name in layer.names}
    assert {"up", "functional#1"} <= names
    assert names.isdisjoint({"stem", "shared"})


def test_a_weight_that_is_made_of_others_is_taken_as_it_is() -> None:
    conv, x = nn.Conv2d(3, 4, 1), images()[0]
    meant = cw.quantize(conv, [x]).model(x)
    normed = torch.nn.utils.parametrizations.weight_norm(copy.deepcopy(conv))
    made = cw.quantize(normed, [x])
    assert isinstance(made.model, Int8Conv)
    torch.testing.assert_close(made.model(x), meant, rtol=0, atol=0.01 * float(meant.abs().max()))


def test_made_in_inference_mode_it_is_the_same(net: Net) -> None:
    with torch.inference_mode():
        made = cw.quantize(net, images())
    assert not any(tensor.is_inference() for tensor in (*made.model.parameters(), *made.model.buffers()))
    assert torch.equal(made.model(images()[0]), cw.quantize(net, images()).model(images()[0]))


def test_a_weight_or_an_input_inside_that_is_not_finite_keeps_its_layer() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)).eval()
    with torch.no_grad():
        model[0].weight[0, 0] = inf
    made = cw.quantize(model, images())
    assert [layer.kept for layer in made.layers] == [
        "holds a NaN or an infinity in its weight", "gets a NaN or an infinity",
    ]  # fmt: skip
