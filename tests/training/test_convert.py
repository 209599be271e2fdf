"""A converted model is the model that it was, computed by what was chosen layer by layer."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.testing import assert_close

import convwright as cw
from convwright.engine.capture.layers import convolutions_of
from convwright.errors import BadInput, IgnoredWarning, Refused
from convwright.training.converted import Converted
from convwright.tuning import stored_plan


class Standardized(nn.Conv2d):
    """A convolution that does more than PyTorch's, as some libraries have it."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return F.conv2d(input, self.weight - self.weight.mean(), self.bias)


class Centred(nn.Conv2d):
    """The same, by the function that a forward of PyTorch's calls."""

    def _conv_forward(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:  # noqa: A002
        return super()._conv_forward(input, weight - weight.mean(), bias)


class Named(nn.Conv2d):
    """One that does not."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, padding_mode="circular")
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding="same", groups=2), nn.ReLU(), Named(8, 8, 1))
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1)
        self.head = Standardized(4, 2, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.up(self.body(self.stem(x)), output_size=(16, 16)))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(3)
    return Net()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))


CHOICES: dict[str, Any] = {
    "stem": "reference/gemm",
    "body.*": {"forward": "reference/direct", "backward_weight": "reference/gemm"},
    "body.2": "reference/gemm",
    "up": "reference/gemm",
}


def test_it_computes_what_the_model_did_and_learns_the_same(net: Net, x: torch.Tensor) -> None:
    own = copy.deepcopy(net)
    converted = cw.convert(net, choices=CHOICES)
    assert converted is net
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    for _ in range(3):
        y, expected = net(ours), own(theirs)
        torch.testing.assert_close(y, expected)
        y.square().sum().backward()
        expected.square().sum().backward()
    for mine, its in zip([ours, *net.parameters()], [theirs, *own.parameters()], strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-4, atol=1e-4)


def test_a_layer_says_by_what_it_is_computed(net: Net, x: torch.Tensor) -> None:
    cw.convert(net, choices=CHOICES)
    assert net.stem.choices == {}
    net(x).sum().backward()
    assert net.stem.choices == {"forward": "reference/gemm", "backward_weight": "torch/default"}
    assert net.body[0].choices == {
        "forward": "reference/direct", "backward_data": "torch/default", "backward_weight": "reference/gemm",
    }  # fmt: skip
    assert net.body[2].choices["forward"] == "reference/gemm"
    assert net.up.choices["backward_data"] == "reference/gemm"
    with torch.no_grad():
        net(x)
    assert net.body[0].choices == {"forward": "reference/direct"}


def test_the_named_algorithm_is_what_runs(net: Net, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    own = stored_plan._leaf

    def leaf(candidate: Any, *rest: Any) -> Any:
        ran.append(candidate.id)
        return own(candidate, *rest)

    monkeypatch.setattr(stored_plan, "_leaf", leaf)
    cw.convert(net, choices={"body.0": "reference/direct"})
    with torch.no_grad():
        net(x)
    assert "reference/direct" in ran


def test_it_is_still_the_same_model(net: Net, x: torch.Tensor) -> None:
    names, keys = [name for name, _ in net.named_modules()], list(net.state_dict())
    cw.convert(net, choices=CHOICES)
    assert [name for name, _ in net.named_modules()] == names
    assert list(net.state_dict()) == keys
    assert isinstance(net.stem, nn.Conv2d)
    assert isinstance(net.body[2], Named)
    assert type(net.stem).__name__ == "Conv2d"
    assert type(net.head) is Standardized
    assert "Conv2d(3, 8, kernel_size=(3, 3)" in repr(net)


def test_taken_back_it_leaves_no_trace(net: Net, x: torch.Tensor) -> None:
    before = {name: dict(module.__dict__) for name, module in net.named_modules()}
    types = [type(module) for module in net.modules()]
    cw.revert(cw.convert(cw.convert(net), choices=CHOICES))
    assert [type(module) for module in net.modules()] == types
    assert {name: set(module.__dict__) for name, module in net.named_modules()} == {
        name: set(state) for name, state in before.items()
    }
    cw.convert(net)(x)
    cw.revert(net)
    assert not any(isinstance(module, Converted) for module in net.modules())
    assert "_seen" not in net.stem.__dict__


@pytest.mark.parametrize("how", ["copied", "pickled"])
def test_it_can_be_copied_and_pickled(how: str, net: Net, x: torch.Tensor) -> None:
    cw.convert(net, choices=CHOICES)
    expected = net(x)
    if how == "copied":
        again = copy.deepcopy(net)
    else:
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        again = torch.load(buffer, weights_only=False)
    assert isinstance(again.stem, Converted)
    assert again.stem.weight is not net.stem.weight
    torch.testing.assert_close(again(x), expected)
    assert again.stem.choices["forward"] == "reference/gemm"


def test_one_layer_alone_is_a_model(x: torch.Tensor) -> None:
    layer = cw.convert(nn.Conv2d(3, 4, 3), choices={"": "reference/gemm"}, policy=cw.Policy(deterministic=True))
    with torch.no_grad():
        layer(x)
    assert layer.choices == {"forward": "reference/gemm"}  # type: ignore[operator]


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_other_ranks(rank: int, transposed: bool) -> None:
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{rank}d")
    layer = kind(4, 6, 3)
    x = torch.randn(2, 4, *[7] * rank)
    expected = layer(x)
    torch.testing.assert_close(cw.convert(layer, choices={"": "reference/gemm"})(x), expected)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"steam": "reference/gemm"}, "`choices` names 'steam', the model's convolutions are 'stem', 'body.0', 'bod"),
        ({"head": "reference/gemm"}, "`choices` names 'head', which is a Standardized with a forward of its own"),
        ({"stem": 3}, r"`choices\['stem'\]` must be an algorithm, or one for each direction, got 3"),
        ({"stem": {"sideways": "reference/gemm"}}, "`direction` must be|direction must be"),
        ({3: "reference/gemm"}, "`choices` must be a mapping from paths of layers to algorithms, got {3: 'ref"),
        ("reference/gemm", "`choices` must be a mapping from paths of layers to algorithms, got 'reference/gemm'"),
    ],
)  # fmt: skip
def test_bad_choices_are_one_sentence_and_change_nothing(net: Net, choices: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        cw.convert(net, choices=choices)
    assert not any(isinstance(module, Converted) for module in net.modules())


def test_a_layer_that_computes_something_else_is_left_alone(x: torch.Tensor) -> None:
    layer = Centred(3, 4, 3)
    expected = layer(x)
    assert not isinstance(cw.convert(layer), Converted)
    torch.testing.assert_close(layer(x), expected)
    with pytest.raises(BadInput, match="which is a Centred with a forward of its own"):
        cw.convert(layer, choices={"*": "reference/gemm"})


def test_an_algorithm_that_refuses_says_so(net: Net, x: torch.Tensor) -> None:
    cw.convert(net, choices={"stem": "reference/winograd"})
    with pytest.raises(Refused, match="Winograd's tiles need stride 1"):
        net(x)


def test_what_cannot_be_converted_yet_or_scripted_says_so() -> None:
    for change in (cw.convert, cw.revert):
        with pytest.raises(BadInput, match=r"^`model` must be an nn\.Module, got list$"):
            change([nn.ReLU()])  # type: ignore[type-var]
    with pytest.raises(BadInput, match=r"^`0\.weight` of the model gets its shape at the first call"):
        cw.convert(nn.Sequential(nn.LazyConv2d(4, 3)))
    with pytest.warns(IgnoredWarning, match="`convert` changed nothing: the model has no convolution layer"):
        cw.convert(nn.ReLU())
    model = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    with pytest.raises(BadInput, match=r"torch\.jit\.script: call `cw\.revert` on the model before$"):
        torch.jit.script(cw.convert(model))
    assert torch.jit.script(cw.revert(model))(torch.ones(1, 3, 5, 5)).shape == (1, 4, 3, 3)


class Doubled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


PUT_ON = {
    "parametrized": lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()),
    "normed": parametrizations.weight_norm,
}


@pytest.mark.parametrize("then", ["", "revert", "again", "remove", "remove revert", "revert remove", "copy"])
@pytest.mark.parametrize("how", list(PUT_ON))
@pytest.mark.parametrize("converted_first", [True, False])
def test_what_was_put_on_a_layers_class_stays(converted_first: bool, how: str, then: str) -> None:
    layer, x = Named(6, 4, 3), torch.randn(2, 6, 9, 9)
    steps = [lambda: cw.convert(layer, choices={"": "reference/gemm"}), lambda: PUT_ON[how](layer)]
    for step in steps if converted_first else steps[::-1]:
        step()
    expected = F.conv2d(x, layer.weight, layer.bias)
    assert layer.choices == {}
    assert_close(layer(x), expected)
    assert layer.choices["forward"] == "reference/gemm"
    for word in then.split():
        if word == "revert":
            cw.revert(layer)
        elif word == "again":
            cw.convert(layer, choices={"": "reference/direct"})
        elif word == "remove":
            parametrize.remove_parametrizations(layer, "weight")
        else:
            layer = copy.deepcopy(layer)
    assert_close(layer(x), expected)
    assert isinstance(layer, Converted) == ("revert" not in then)
    assert isinstance(layer, Named)
    assert parametrize.is_parametrized(layer) == ("remove" not in then)
    if then in ("", "again"):
        assert layer.choices["forward"] == ("reference/direct" if then else "reference/gemm")
        with pytest.raises(RuntimeError, match="only supported through state_dict"):
            pickle.dumps(layer)


def test_a_class_that_others_put_on_a_converted_layer_is_kept_when_that_is_reverted() -> None:
    class Sharded:
        pass

    layer = cw.convert(nn.Conv2d(6, 4, 3))
    layer.__class__ = type("ShardedConv2d", (Sharded, type(layer)), {})
    cw.revert(layer)
    assert isinstance(layer, Sharded)
    assert type(layer).__mro__[1:3] == (Sharded, nn.Conv2d)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_what_goes_by_the_exact_types_of_modules_finds_them_when_the_model_is_reverted() -> None:
    fuse = torch.ao.quantization.fuse_modules
    model = cw.convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval())
    with pytest.raises(AssertionError, match="did not find fuser method"):
        fuse(model, [["0", "1"]])
    assert type(fuse(cw.revert(model), [["0", "1"]])[0]) is torch.ao.nn.intrinsic.ConvReLU2d


def test_a_tracer_leaves_a_converted_layer_whole(net: Net, x: torch.Tensor) -> None:
    cw.convert(net, choices={"stem": "reference/gemm"})
    expected = net(x)
    traced = torch.fx.symbolic_trace(net)
    assert next(node.target for node in traced.graph.nodes if node.op == "call_module") == "stem"
    assert_close(traced(x), expected)
    assert net.stem.choices["forward"] == "reference/gemm"  # type: ignore[attr-defined]


def test_choices_are_those_of_the_dtype_that_autocast_computes_in() -> None:
    layer = cw.convert(nn.Conv2d(6, 4, 3), choices={"": "reference/gemm"})
    with torch.autocast("cpu"), torch.no_grad():
        layer(torch.randn(2, 6, 9, 9))
    assert layer.choices == {"forward": "reference/gemm"}
    last = cw.last_choice()
    assert last is not None
    assert last.candidate.problem.dtype == "bf16"


@pytest.mark.parametrize("given", [{"dtype": torch.complex64}, {"device": "meta"}])
def test_where_only_pytorch_serves_there_is_nothing_to_choose(given: dict[str, Any]) -> None:
    layer = cw.convert(nn.Conv2d(6, 4, 3, **given))
    layer(torch.ones(2, 6, 9, 9, **given))
    assert layer.choices == {}


def test_after_an_export_there_is_nothing_that_was_seen() -> None:
    layer, x = cw.convert(nn.Conv2d(6, 4, 3)), torch.randn(2, 6, 9, 9)
    torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert layer.choices == {}


NAMED = pytest.mark.parametrize(
    "choices",
    [{"stem": "reference/gemm"}, {"stem": {"forward": "reference/gemm", "backward_weight": "reference/direct"}}],
)


@NAMED
def test_a_converted_model_is_seen_tuned_advised_and_quantized(
    choices: dict[str, Any], net: Net, x: torch.Tensor
) -> None:
    expected = [layer.name for layer in convolutions_of(net, x)]
    cw.convert(net, choices=choices)
    assert [layer.name for layer in convolutions_of(net, x, backward=True)] == expected
    assert len(cw.tune(net, x, plan_only=True).problems) == len(cw.advise(net, x, mode="heuristic").layers) > 0
    assert [layer.name for layer in cw.quantize(net.eval(), [x]).layers]


def test_a_policys_arithmetic_is_left_aside_while_a_model_is_seen(net: Net, x: torch.Tensor) -> None:
    cw.convert(net, policy=cw.Policy(arithmetic={"fp32"}))
    assert convolutions_of(net, x)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("named", ["itself", "by direction"])
def test_an_algorithm_of_the_call_is_part_of_a_graph(transposed: bool, named: str) -> None:
    layer = nn.ConvTranspose2d(6, 4, 3) if transposed else nn.Conv2d(6, 4, 3)
    direction, x = "backward_data" if transposed else "forward", torch.randn(2, 6, 9, 9)
    expected = layer(x)
    cw.convert(layer, choices={"": "reference/gemm" if named == "itself" else {direction: "reference/gemm"}})
    assert_close(torch.compile(layer, fullgraph=True, backend="eager")(x), expected)
    last = cw.last_choice()
    assert last is not None
    assert last.candidate.id == "reference/gemm"


def test_algorithms_for_gradients_end_a_graph_or_are_an_error_that_names_the_cure() -> None:
    layer, x = nn.Conv2d(6, 4, 3), torch.randn(2, 6, 9, 9)
    expected = layer(x)
    cw.convert(layer, choices={"": {"backward_weight": "reference/direct"}})
    with pytest.raises(Exception, match=r"algorithms for gradients are no part of a graph: .* `cw\.revert`"):
        torch.compile(layer, fullgraph=True, backend="eager")(x)
    assert_close(torch.compile(layer, backend="eager")(x), expected)
