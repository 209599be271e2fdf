"""A model in int8: what is calibrated, what is kept and why, and that the original is left alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw
from convwright.errors import BadInput
from convwright.quantizing.int8_layer import Int8Conv
from quantizing.nets import Net, by_name, images, trained


def test_every_convolution_is_told_with_the_reason_where_it_is_kept(net: Net) -> None:
    made = cw.quantize(net, images())
    layers = by_name(made)
    assert {name: layer.kept for name, layer in layers.items()} == {
        "stem": None,
        "shared": None,
        "up": "is a transposed convolution, and int8 is computed in the forward direction only",
        "other": "is a Standardized with a forward of its own",
        "wide": "computes in torch.float64, which int8 layers cannot return",
        "spare": "is not reached by any sample",
        "hooked": "has hooks, which a layer in int8 would not call",
        "silent": "gets only zeros, which give no range",
        "functional#1": "is a call of a function, not of a module",
    }
    assert [layer.name for layer in made.in_int8] == ["stem", "shared"]
    assert isinstance(made.model.stem, Int8Conv)
    assert type(made.model.up) is nn.ConvTranspose2d
    for name in "up", "other", "wide", "spare", "hooked":
        assert torch.equal(made.model.get_submodule(name).weight, net.get_submodule(name).weight)
    assert repr(made).startswith("<Quantized: 2 of 9 convolutions in int8 on ")
    with torch.no_grad():
        off = made.model(images()[0]) - net(images()[0])
    assert 0 < off.norm() < 0.1 * net(images()[0]).norm()


def test_layers_are_chosen_by_a_pattern(net: Net) -> None:
    made = cw.quantize(net, images(), layers="st*")
    assert [(layer.name, layer.kept) for layer in made.layers] == [("stem", None)]
    assert isinstance(made.model.stem, Int8Conv)
    assert type(made.model.shared) is nn.Conv2d
    assert [layer.name for layer in cw.quantize(net, images(), layers="s*", keep=["stem"]).in_int8] == ["shared"]
    with pytest.raises(BadInput, match="`layers` names 'none', the model's convolutions are 'stem', "):
        cw.quantize(net, images(), layers="none")


def test_the_model_itself_is_not_changed(net: Net) -> None:
    net.train()
    before, state = copy.deepcopy(net.state_dict()), dict(net.__dict__)
    types = [type(module) for module in net.modules()]
    made = cw.quantize(net, images())
    assert [type(module) for module in net.modules()] == types
    assert net.training
    assert not made.model.training
    assert dict(net.__dict__) == state
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert not any(parameter.requires_grad for parameter in made.model.parameters())
    hooks = [name for name, module in made.model.named_modules() if module._forward_hooks]
    assert hooks == ["hooked"]


def test_what_stands_behind_a_convolution_alone_becomes_a_part_of_it(net: Net) -> None:
    made = cw.quantize(net, images())
    assert by_name(made)["stem"].merged == ("norm", "act")
    assert by_name(made)["shared"].merged == ("twice",)  # as often as the convolution, and always behind it
    assert all(type(made.model.get_submodule(name)) is nn.Identity for name in ("norm", "act", "twice"))


@pytest.mark.parametrize("case", ["elsewhere too", "not always", "its output is seen", "of the batch", "hooked"])
def test_what_does_not_stand_behind_it_alone_stays(case: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)
            self.norm = nn.BatchNorm2d(4, track_running_stats=case != "of the batch")
            if case == "hooked":
                self.norm.register_forward_pre_hook(lambda module, args: None)

        def forward(self, x: Tensor) -> Any:
            y = self.conv(x)
            if case == "elsewhere too":
                return self.norm(self.norm(y))
            if case == "not always" and x.shape[-1] == 5:
                return y + y
            return (self.norm(y), y) if case == "its output is seen" else self.norm(y)

    samples = [*images(size=8), *images(size=5)]
    model = trained(Model())
    made = cw.quantize(model, samples)
    assert by_name(made)["conv"].kept is None
    assert by_name(made)["conv"].merged == ()
    assert type(made.model.norm) is nn.BatchNorm2d
    assert made.error is not None
    assert made.error < 0.02


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_error_is_within_what_the_scales_explain(scale: float) -> None:
    """Each input and each weight is off by half a scale at most, and each channel of the weight by half its own."""
    torch.manual_seed(0)
    conv = nn.Conv2d(6, 8, 3, padding=1, groups=2)
    with torch.no_grad():
        conv.weight[0] *= scale
    samples = images(channels=6)
    made = cw.quantize(conv, samples, ranges="largest")
    layer: Any = made.model
    x, w = torch.cat(samples).double(), conv.weight.detach().double()
    of_x = float(layer.input_scale) / 2
    of_w = (w.abs().flatten(1).amax(1) / 127 / 2).view(-1, 1, 1, 1)
    y = F.conv2d(x, w, conv.bias.detach().double(), padding=1, groups=2)
    first = F.conv2d(x.abs(), of_w.expand_as(w), padding=1, groups=2)
    second = F.conv2d(torch.full_like(x, of_x), w.abs() + of_w, padding=1, groups=2)
    bound = (first + second) * (1 + 1e-6) + 1e-5 * y.abs()
    off = (torch.cat([layer(sample) for sample in samples]).double() - y).abs()
    assert bool((off <= bound).all())
    # And that is little: of channels that are a thousand times smaller than another as of the others.
    per_channel = off.pow(2).sum((0, 2, 3)).sqrt() / y.pow(2).sum((0, 2, 3)).sqrt()
    assert float((bound.pow(2).sum((0, 2, 3)).sqrt() / y.pow(2).sum((0, 2, 3)).sqrt()).max()) < 0.5
    assert float(per_channel.max()) < 0.03


def test_a_channel_that_is_far_larger_leaves_the_others_as_they_are() -> None:
    torch.manual_seed(0)
    conv, samples = nn.Conv2d(6, 8, 3), images(channels=6)
    plain = cw.quantize(conv, samples).model(samples[0])
    with torch.no_grad():
        conv.weight[3] *= 1000
    other = cw.quantize(conv, samples).model(samples[0])
    rest = [k for k in range(8) if k != 3]
    assert torch.equal(plain[:, rest], other[:, rest])
    assert not torch.equal(plain[:, 3], other[:, 3])


def test_the_errors_are_those_of_the_samples(net: Net) -> None:
    """Of each layer on the inputs of the model as it is, and of the whole."""
    seen: list[Tensor] = []
    net.stem.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    own = copy.deepcopy(net)
    del net.stem._forward_pre_hooks[next(iter(net.stem._forward_pre_hooks))]
    made = cw.quantize(net, images())
    with torch.no_grad():
        meant = [own.act(own.norm(own.stem(x))) for x in images()]
        given = [made.model.stem(x) for x in images()]
        outputs = [own(x) for x in images()], [made.model(x) for x in images()]
    layer = by_name(made)["stem"]
    assert layer.error == pytest.approx(relative(given, meant), rel=1e-4)
    assert layer.snr_db == pytest.approx(-20 * torch.tensor(relative(given, meant)).log10().item(), rel=1e-3)
    assert layer.largest == max(float(x.abs().max()) for x in images())
    assert made.error == pytest.approx(relative(outputs[1], outputs[0]), rel=1e-3)
    assert made.samples == 3


def relative(given: list[Tensor], meant: list[Tensor]) -> float:
    off, norm = (torch.cat([t.double().flatten() for t in each]) for each in (given, meant))
    return float((off - norm).norm() / norm.norm())


def test_a_layer_that_is_used_twice_has_one_range_over_both_uses(net: Net) -> None:
    inputs: list[float] = []
    own = copy.deepcopy(net)
    own.shared.register_forward_pre_hook(lambda module, args: inputs.append(float(args[0].abs().max())))
    with torch.no_grad():
        for x in images():
            own(x)
    assert len(inputs) == 6
    made = cw.quantize(net, images(), ranges="largest")
    layer = by_name(made)["shared"]
    assert layer.largest == max(inputs)
    assert layer.limit == pytest.approx(max(inputs))
    assert layer.limit > 1.5 * max(inputs[::2])  # the first use alone would have cut the second off


def test_a_module_in_two_places_is_one_layer_in_both() -> None:
    conv = nn.Conv2d(3, 3, 1)
    made = cw.quantize(nn.Sequential(conv, nn.Sigmoid(), nn.Sequential(conv)), images())
    model: Any = made.model
    assert [layer.name for layer in made.layers] == ["0"]
    assert isinstance(model[0], Int8Conv)
    assert model[2][0] is model[0]


def test_ranges_cut_off_what_is_rare_unless_they_reach_to_the_largest() -> None:
    torch.manual_seed(0)
    conv, x = nn.Conv2d(3, 4, 1), torch.randn(4, 3, 128, 128)
    x[0, 0, 0, 0] = 40.0
    (cut,), (whole,) = (cw.quantize(conv, [x], ranges=name).layers for name in ("mse", "largest"))
    assert cut.largest == whole.largest == 40.0
    assert whole.limit == pytest.approx(40.0)
    assert cut.limit is not None
    assert 4.0 < cut.limit < 32.0
    # The error that it makes least is that of the inputs.
    scales = [limit / 127 for limit in (cut.limit, 40.0)]
    errors = [((x / s).round().clamp(-127, 127) * s - x).square().sum() for s in scales]
    assert errors[0] < errors[1]
    assert cw.quantize(conv, [x]).ranges == "mse"


def test_layers_that_are_too_far_off_are_kept(net: Net) -> None:
    free = by_name(cw.quantize(net, images()))
    errors = sorted(float(free[name].error or inf) for name in ("stem", "shared"))
    between = sum(errors) / 2
    made = cw.quantize(net, images(), max_layer_error=between)
    (kept,) = [layer for layer in made.layers if (layer.kept or "").startswith("in int8 it is off by ")]
    assert kept.error == pytest.approx(errors[1])
    assert kept.kept == f"in int8 it is off by {errors[1]:.2g} (relative L2), {between:g} is allowed"
    assert kept.merged == ()
    assert type(made.model.get_submodule(kept.name)) is nn.Conv2d
    assert len(made.in_int8) == 1
    assert len(cw.quantize(net, images(), max_layer_error=inf).in_int8) == 2
    nothing = cw.quantize(net, images(), max_layer_error=1e-9)
    assert nothing.in_int8 == ()
    assert nothing.error == 0.0
    assert nothing.snr_db == inf
    assert torch.equal(nothing.model(images()[0]), net(images()[0]))


def test_layers_can_be_kept_by_name_and_pattern(net: Net) -> None:
    made = cw.quantize(net, images(), keep=["st*"])
    assert by_name(made)["stem"].kept == "is to be kept"
    assert by_name(made)["stem"].error is None
    assert [layer.name for layer in made.in_int8] == ["shared"]


def test_it_goes_to_json_and_says_how_far_it_is(net: Net) -> None:
    told: list[tuple[int, int, str]] = []
    made = cw.quantize(net, images(), progress=lambda done, total, what: told.append((done, total, what)))
    assert [done for done, _, _ in told] == list(range(17))
    assert {total for _, total, _ in told} == {16}
    assert told[0][2] == "convolutions, sample 0"
    assert told[-2:] == [(15, 16, "times"), (16, 16, "")]
    data = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert (data["ranges"], data["max_layer_error"], data["samples"]) == ("mse", 0.1, 3)
    stem = data["layers"][0]
    assert stem["name"] == "stem"
    assert stem["int8"] is True
    assert stem["merged"] == ["norm", "act"]
    assert stem["candidate"] == "unfuse(reference/direct)"
    assert stem["problem"].startswith("g1mb2ic3oc8ih14iw14")  # as it is padded
    assert {layer["name"]: layer["int8"] for layer in data["layers"]}["up"] is False
    json.dumps(cw.quantize(net, images(), max_layer_error=1e-9).to_json(), allow_nan=False)  # whose noise is none


def broken(x: Tensor) -> Iterator[Tensor]:
    x = x.clone()
    x[0, 0, 0, 0] = float("nan")
    yield images()[0]
    yield x


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda net, x: cw.quantize(net, []), "`samples` must hold at least one input, got none"),
        (lambda net, x: cw.quantize(net, x), "`samples` must be an iterable of inputs, each a tensor.*, got Tensor"),
        (lambda net, x: cw.quantize(net, 3), "`samples` must be an iterable of inputs.*, got int"),
        (lambda net, x: cw.quantize(net, [[x]]), "^sample 0: it must be a tensor, a tuple of arguments.* got list"),
        (lambda net, x: cw.quantize(net, broken(x)), "^sample 1 holds a NaN or an infinity, which int8 cannot"),
        (lambda net, x: cw.quantize(net, [x / 0]), "^sample 0 holds a NaN or an infinity"),
        (lambda net, x: cw.quantize(net, [x.to("meta")]), '^sample 0 is on "meta"'),
        (lambda net, x: cw.quantize(net, [x, x[:, :2]]), "^sample 1: the model does not run on its example: Runt"),
        (lambda net, x: cw.quantize(net.forward, [x]), "^`model` must be an nn.Module that is not scripted, got met"),
        (lambda net, x: cw.quantize(torch.jit.script(nn.Conv2d(3, 3, 1)), [x]), "not scripted, got RecursiveScriptMod"),
        (lambda net, x: cw.quantize(nn.LazyConv2d(3, 1), [x]), "gets its shape at the first call: call the model once"),
        (lambda net, x: cw.quantize(net.to("meta"), [x]), "must have its weights, and `free` is on the device"),
        (lambda net, x: cw.quantize(net, [x], keep=["stim"]), "^`keep` names 'stim', the model's convolutions are 'st"),
        (lambda net, x: cw.quantize(net, [x], keep="stem"), "^`keep` must be a sequence of paths .*, got 'stem'"),
        (lambda net, x: cw.quantize(net, [x], keep=3), "^`keep` must be a sequence of paths .*, got 3$"),
        (lambda net, x: cw.quantize(net, [x], keep=["stem", 3]), "^`keep` must hold paths .*, got 3 among them$"),
        (lambda net, x: cw.quantize(net, [x], ranges="best"), "^`ranges` must be one of mse, largest, got 'best'"),
        (lambda net, x: cw.quantize(net, [x], max_layer_error=0.0), "^`max_layer_error` must be above 0"),
        (lambda net, x: cw.quantize(net, [x], policy="fast"), "^`policy` must be a Policy or None"),
        (lambda net, x: cw.quantize(nn.ModuleList([Uncopied()]), [x]), "^`model` cannot be copied: TypeError: no cop"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(net: Net, call: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said) as error:
        call(net, images()[0])
    assert "\n" not in str(error.value)


class Uncopied(nn.Module):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("no copies")


class Writing(nn.Conv2d):
    """One that changes what it is given."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input.mul_(2))


def test_samples_that_a_model_writes_to_are_restored() -> None:
    torch.manual_seed(0)
    sample, model = torch.randn(2, 3, 9, 9), nn.Sequential(nn.Identity(), Writing(3, 4, 3), nn.Conv2d(4, 4, 1))
    before = sample.clone()
    made = cw.quantize(model, [sample])
    assert torch.equal(sample, before)
    assert made.error is not None
    assert made.error < 0.1  # each run has read the same
