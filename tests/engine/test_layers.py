"""Every convolution of a model is seen, by its name, as the problem it is; and the model is left as it was."""

from __future__ import annotations

import random
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.epilogue import Epilogue
from convwright.core.tensor_spec import Layout
from convwright.eager.asking.describe import problem_of, transposed_problem_of
from convwright.eager.calls.posed import Wanted
from convwright.engine.capture.example import Subject
from convwright.engine.capture.layers import LayerCall, convolutions_of, record
from convwright.errors import BadInput, Refused
from engine.net import Net, X


def named(layers: tuple[LayerCall, ...]) -> list[tuple[str, int]]:
    return [(layer.name, layer.calls) for layer in layers]


def sequential() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2),
        nn.Hardswish(),
    )


def test_modules_go_by_their_paths_and_pose_what_conv2d_would_be_asked() -> None:
    model = sequential()
    first, second = convolutions_of(model, X)
    middle = model[0](X)
    assert (first.name, second.name) == ("0.0", "1")
    assert first.problem == problem_of(X, model[0][0].weight.detach())
    conv = model[1]
    assert second.problem == problem_of(middle, conv.weight.detach(), conv.bias.detach(), stride=2, padding=1, groups=2)
    assert (first.has_bias, second.has_bias) == (False, True)
    assert second.problem.epilogue == Epilogue(bias=True)
    assert not any(any(layer.wanted) for layer in (first, second))


@pytest.mark.parametrize(("rank", "kind"), [(1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d)])
def test_every_rank(rank: int, kind: type[nn.Module]) -> None:
    model, x = kind(2, 4, 3, dilation=2, padding="same"), torch.randn(1, 2, *[7] * rank)
    (layer,) = convolutions_of(model, x)
    assert layer.name == kind.__name__
    assert layer.problem == problem_of(x, model.weight.detach(), model.bias.detach(), dilation=2, padding="same")


@pytest.mark.filterwarnings("ignore:Using padding")
def test_padding_that_is_not_the_same_on_both_sides_stays_one_convolution() -> None:
    (layer,) = convolutions_of(nn.Conv2d(3, 4, 2, padding="same"), X)
    assert layer.problem.padding == ((0, 1), (0, 1))
    assert layer.problem.x.shape == (2, 3, 9, 9)


def test_strides_alignment_and_dtype_are_the_tensors_own() -> None:
    buffer = torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last)
    (layer,) = convolutions_of(nn.Conv2d(3, 4, 3), buffer[:, 1:4])
    assert layer.problem.x.strides == (8 * 81, 1, 8 * 9, 8)
    assert layer.problem.x.alignment == 4
    assert layer.problem.y.layout is Layout.NHWC
    (layer,) = convolutions_of(nn.Conv2d(3, 4, 3, dtype=torch.float64), X.double())
    assert layer.problem.dtype is DType.FP64


def test_one_image_without_a_batch() -> None:
    (layer,) = convolutions_of(nn.Conv2d(3, 4, 3), X[0])
    assert layer.problem.x.shape == (1, 3, 9, 9)


def test_autocast_decides_the_dtype() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        (layer,) = convolutions_of(nn.Conv2d(3, 4, 3), X)
    assert layer.problem.dtype is DType.BF16
    assert layer.has_bias


TRANSPOSED = [(1, nn.ConvTranspose1d), (2, nn.ConvTranspose2d), (3, nn.ConvTranspose3d)]


@pytest.mark.parametrize(("rank", "kind"), TRANSPOSED)
def test_a_transposed_convolution_is_a_backward_data_problem(rank: int, kind: type[nn.Module]) -> None:
    model, x = kind(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), torch.randn(1, 4, *[5] * rank)
    (layer,) = convolutions_of(model, x, backward=True)
    assert layer.problem.direction is Direction.BACKWARD_DATA
    assert layer.problem.output.shape == model(x).shape
    assert layer.problem == transposed_problem_of(
        x, model.weight.detach(), stride=2, padding=1, output_padding=1, groups=2
    )
    assert layer.has_bias
    (layer,) = convolutions_of(model, x.clone().requires_grad_(), backward=True)
    directions = [problem.direction for problem in layer.problems()]
    assert directions == [Direction.BACKWARD_DATA, Direction.FORWARD, Direction.BACKWARD_WEIGHT]


def test_a_layer_that_runs_often_is_counted_and_one_of_two_sizes_stands_twice() -> None:
    model = Net(lambda net, x: [net.conv(x), net.conv(x), net.conv(x[..., 1:])], conv=nn.Conv2d(3, 3, 3))
    assert named(convolutions_of(model, X)) == [("conv", 2), ("conv", 1)]


def test_functions_are_numbered_and_a_shared_parameter_is_one_layer() -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        y = F.conv2d(x, net.w, padding=1)
        y = F.conv2d(y, net.w, padding=1)
        y = F.conv2d(y, torch.ones(3, 3, 1, 1))
        return net.inner(F.conv2d(y, torch.ones(3, 3, 1, 1)))

    inner = Net(lambda net, x: F.conv2d(x, net.w), w=nn.Parameter(torch.ones(2, 3, 1, 1)))
    model = Net(forward, w=nn.Parameter(torch.ones(3, 3, 3, 3)), inner=inner)
    found = named(convolutions_of(model, X))
    assert found == [("functional#1", 2), ("functional#2", 1), ("functional#3", 1), ("inner.functional#1", 1)]
    assert named(convolutions_of(lambda x: F.conv2d(x, torch.ones(3, 3, 1, 1)), X)) == [("functional#1", 1)]


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    "compiled",
    [torch.jit.script, lambda model: torch.jit.trace(model, X), torch.compile],
    ids=["scripted", "traced", "compiled"],
)
def test_compiled_models_show_the_same_problems(compiled: Any) -> None:
    model = sequential().eval()
    expected = [layer.problem for layer in convolutions_of(model, X)]
    assert [layer.problem for layer in convolutions_of(compiled(model), X)] == expected


def test_a_compiled_model_keeps_its_names() -> None:
    assert named(convolutions_of(torch.compile(sequential().eval()), X)) == [("0.0", 1), ("1", 1)]


OWN_WEIGHTS: dict[str, tuple[Any, bool]] = {
    "module": (lambda: nn.Conv2d(3, 4, 3), True),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3), True),
    "parameter": (lambda: Net(lambda net, x: F.conv2d(x, net.w), w=nn.Parameter(torch.ones(2, 3, 1, 1))), True),
    "function": (lambda: nn.Conv2d(3, 4, 3).__call__, True),
    "frozen": (lambda: with_buffer(Net(lambda net, x: F.conv2d(x, net.w))), True),
    "traced": (lambda: torch.jit.trace(nn.Conv2d(3, 4, 3), X), True),
    "compiled": (lambda: torch.compile(nn.Conv2d(3, 4, 3)), True),
    "weight_norm": (lambda: parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), False),
    "spectral_norm": (lambda: parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), False),
    "spectral_norm of old": (lambda: nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)), False),
    "computed": (lambda: Net(lambda net, x: F.conv2d(x, 2 * net.w), w=nn.Parameter(torch.ones(2, 3, 1, 1))), False),
    "made": (lambda: lambda x: F.conv2d(x, torch.ones(2, 3, 1, 1)), False),
}


def with_buffer(net: nn.Module) -> nn.Module:
    net.register_buffer("w", torch.ones(2, 3, 1, 1))
    return net


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(("model", "own"), OWN_WEIGHTS.values(), ids=OWN_WEIGHTS.keys())
def test_a_weight_that_is_made_in_each_run_is_told_from_one_that_stays(model: Any, own: bool) -> None:
    (layer,) = convolutions_of(model(), X)
    assert layer.own_weight is own


def test_what_autocast_makes_of_a_weight_does_not_stay() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        (cast,) = convolutions_of(nn.Conv2d(3, 4, 3), X)
        (as_it_is,) = convolutions_of(nn.Conv2d(3, 4, 3, dtype=torch.bfloat16), X.bfloat16())
    assert (cast.own_weight, as_it_is.own_weight) == (False, True)


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_whatever_grad_mode_the_caller_is_in(context: Any) -> None:
    with context():
        assert named(convolutions_of(sequential(), X)) == [("0.0", 1), ("1", 1)]


def test_operators_and_functional_transforms() -> None:
    w = torch.randn(4, 3, 3, 3)
    window = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    expected = problem_of(X, w)
    for model in (
        lambda x: torch.convolution(x, w, None, *window),
        lambda x: torch.ops.aten.convolution(x, w, None, *window),
        lambda x: torch.ops.aten.conv2d(x, w),
    ):
        (layer,) = convolutions_of(model, X)
        assert layer.problem == expected
    (layer,) = convolutions_of(torch.func.vmap(lambda x: F.conv2d(x, w)), X[None])
    assert layer.problem.y.shape == (2, 4, 7, 7)


def test_a_model_without_memory_poses_its_problems_too() -> None:
    found = convolutions_of(sequential().to("meta"), X.to("meta"))
    assert [layer.problem for layer in found] == [layer.problem for layer in convolutions_of(sequential(), X)]


def test_keyword_arguments_and_tuples() -> None:
    model = Net(lambda net, x, *, twice: net.conv(x) * twice, conv=nn.Conv2d(3, 3, 3))
    assert named(convolutions_of(model, {"x": X, "twice": 2})) == [("conv", 1)]
    model = Net(lambda net, x, y: net.conv(x) + net.conv(y), conv=nn.Conv2d(3, 3, 3))
    assert named(convolutions_of(model, (X, X))) == [("conv", 2)]


def test_the_gradients_that_a_training_step_needs() -> None:
    model = sequential()
    model[1].weight.requires_grad_(False)
    first, second = convolutions_of(model, X, backward=True)
    assert first.wanted == Wanted(w=True)
    assert second.wanted == Wanted(x=True, bias=True)
    assert [problem.direction for problem in second.problems()] == [Direction.FORWARD, Direction.BACKWARD_DATA]
    gradient = list(second.problems())[1]
    assert not gradient.epilogue
    assert gradient.y.shape == second.problem.y.shape


def test_nothing_of_the_model_changes() -> None:
    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = sequential()
            self.table = nn.Embedding(4, 3, max_norm=0.1)
            self.dropout = nn.Dropout()
            self.register_buffer("count", torch.zeros(()))
            self.seen = 0

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            self.count = self.count + 1
            self.last = x
            random.random()
            return self.dropout(self.net(x)).sum() + self.table(torch.arange(4)).sum()

    model = Stateful()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    torch.manual_seed(1)
    random.seed(1)
    before = torch.get_rng_state(), random.getstate()
    for backward in (False, True):
        convolutions_of(model, X, backward=backward)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(parameter.grad, torch.ones_like(parameter)) for parameter in model.parameters())
    assert (model.seen, hasattr(model, "last"), model.training) == (0, False, True)
    assert [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()] == hooks


def test_a_model_that_fails_is_restored_too_and_its_error_is_said() -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        net.bn(net.conv(x))
        raise KeyError("mine")

    model = Net(forward, conv=nn.Conv2d(3, 3, 3), bn=nn.BatchNorm2d(3))
    with pytest.raises(BadInput, match="does not run on its example: KeyError: 'mine'") as raised:
        convolutions_of(model, X)
    assert isinstance(raised.value.__cause__, KeyError)
    assert model.bn.num_batches_tracked == 0
    assert not model.conv._forward_hooks


def test_an_error_of_convwright_passes_through_unchanged() -> None:
    own = Refused("this one cannot serve it")

    def forward(net: Any, x: Tensor) -> Tensor:
        raise own

    with pytest.raises(Refused) as raised:
        convolutions_of(Net(forward), X)
    assert raised.value is own


def test_no_activation_outlives_its_use() -> None:
    alive: list[int] = []

    def forward(net: Any, x: Tensor) -> Tensor:
        refs = []
        for _ in range(3):
            x = torch.tanh(net.conv(x))
            refs.append(weakref.ref(x))
        alive.append(sum(ref() is not None for ref in refs))
        return x

    convolutions_of(Net(forward, conv=nn.Conv2d(3, 3, 3, padding=1)), X)
    assert alive == [1]


def test_what_is_no_problem_is_left_out_with_its_reason() -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        net.none(x[:0])
        return net.odd(x.to(torch.complex64))

    model = Net(forward, none=nn.Conv2d(3, 3, 3), odd=nn.Conv2d(3, 3, 3, dtype=torch.complex64))
    recording = record(Subject.of(model, X))
    assert recording.layers == ()
    reasons = dict(recording.left_out)
    assert "empty" in reasons["none"]
    assert "complex64" in reasons["odd"]


MISTAKES: list[tuple[Any, Any, str]] = [
    (3, X, "`model` must be an nn.Module or another callable, got int"),
    (nn.Conv2d(3, 3, 3), [X], "`example` must be a tensor, a tuple of arguments or a dict .*, got list"),
    (nn.Conv2d(3, 3, 3), {1: X}, "got dict"),
    (nn.Conv2d(4, 3, 3), X, "^the model does not run on its example: RuntimeError: Given groups=1, [^\\n]*$"),
    (nn.Conv2d(3, 3, 3), {"image": X}, "the model does not run on its example: TypeError: .* 'image'"),
    (nn.Conv2d(3, 3, 3), X.double(), "the model does not run on its example: RuntimeError: "),
    (nn.LazyConv2d(3, 3), X, "`weight` of the model gets its shape at the first call"),
]


@pytest.mark.parametrize(("model", "example", "sentence"), MISTAKES, ids=[words for _, _, words in MISTAKES])
def test_mistakes(model: Any, example: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        convolutions_of(model, example)


WITHOUT_DYNAMO = """
import sys, torch
import convwright as cw
model, x = torch.nn.Conv2d(3, 8, 3), torch.ones(1, 3, 16, 16)
cw.tune(model, x, mode="heuristic")
cw.advise(model, x, mode="heuristic")
print("torch._dynamo" in sys.modules)
"""


def test_to_look_at_a_model_loads_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT_DYNAMO], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


class Writing(nn.Conv2d):
    """One that changes what it is given."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input.mul_(2))


def wide() -> Tensor:
    """A slice, which keeps how it lies in memory."""
    return torch.randn(2, 6, 9, 9)[:, 1:4]


@pytest.mark.parametrize("example", [wide(), (wide(),), {"input": wide()}])
def test_an_example_that_a_model_writes_to_is_restored(example: Any) -> None:
    (given,) = Subject.of(nn.Identity(), example).given()
    before = given.clone()
    (layer,) = convolutions_of(Writing(3, 4, 3), example)
    assert layer.problem.x.strides == given.stride() == (486, 81, 9, 1)
    assert torch.equal(given, before)


def test_an_example_that_cannot_be_written_to_is_no_trouble() -> None:
    x = torch.full((1, 1, 9, 9), float("nan")).expand(2, 3, 9, 9)
    assert len(convolutions_of(nn.Conv2d(3, 4, 3), x)) == 1
    with torch.inference_mode():
        inference = torch.ones(2, 3, 9, 9)
        convolutions_of(Writing(3, 4, 3), inference)
    assert torch.equal(inference, torch.ones(2, 3, 9, 9))
