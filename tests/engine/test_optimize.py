"""From a model to an engine: every network computes what the model computes, before and after each pass, and saved."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from convwright import torch_api
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.loaded import load
from convwright.engine.network import Network
from convwright.engine.optimize import optimize
from convwright.engine.passes.listed import PASSES, passed
from convwright.engine.reference import reference
from convwright.errors import BadInput, ConvwrightError, Refused
from convwright.settings import Mode
from engine.random_network import RandomNetwork


def network(model: nn.Module, *inputs: Tensor) -> Network:
    return exported(model, inputs, inputs).network


def flat(outputs: Any) -> list[Tensor]:
    return torch_api.flatten(outputs)[0]


def engine(model: nn.Module, *inputs: Tensor) -> Engine:
    """Planned without measuring anything."""
    return optimize(model.eval(), inputs, mode=Mode.HEURISTIC)


def agree(got: Any, model: nn.Module, *inputs: Tensor) -> None:
    """As exact as the model itself, beside the same in float64."""
    with torch.no_grad():
        own = flat(model(*inputs))
        exact = flat(model.double()(*(each.double() for each in inputs)))
    model.float()
    assert len(flat(got)) == len(exact)
    for mine, theirs, right in zip(flat(got), own, exact, strict=True):
        assert mine.shape == right.shape
        scale = right.abs().max().item() or 1.0
        error, allowed = (mine - right).abs().max().item(), (theirs - right).abs().max().item()
        assert error <= 4 * allowed + 2e-6 * scale


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_compute_what_the_model_computes(seed: int) -> None:
    model, x = RandomNetwork(seed), torch.randn(2, 4, 8, 8)
    captured = exported(model, (x,), (x,)).network
    agree(reference(captured, [x]), model, x)
    for change in PASSES.values():
        captured = change(captured).network
        agree(reference(captured, [x]), model, x)
    made = engine(model, x)
    for _ in range(2):
        x = torch.randn(2, 4, 8, 8)
        agree(made(x), model, x)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_saved_engine_computes_the_same_bits(seed: int, tmp_path: Path) -> None:
    model, x = RandomNetwork(seed), torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    made.save(tmp_path / "engine")
    again = load(tmp_path / "engine", "cpu")
    assert again.assignment.steps == made.assignment.steps
    for mine, theirs in zip(flat(again(x)), flat(made(x)), strict=True):
        assert torch.equal(mine, theirs)


class Called(nn.Module):
    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, *self.layers)


IMAGE = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1))


def test_outputs_keep_their_nesting() -> None:
    model = Called(lambda x: OrderedDict(a=x + 1, b=[x, (x * 2,)]))
    got = engine(model, IMAGE)(IMAGE)
    assert type(got) is OrderedDict
    assert list(got) == ["a", "b"]
    assert type(got["b"]) is list
    assert type(got["b"][1]) is tuple
    assert got["b"][0] is IMAGE
    assert_close(got["b"][1][0], IMAGE * 2)


def test_outputs_are_not_written_to_by_the_next_run() -> None:
    conv = nn.Conv2d(4, 4, 3)
    made = engine(Called(lambda x, conv: (conv(x).relu(), conv(x).relu().flatten(1), x.flatten(1)), conv), IMAGE)
    kept = made(IMAGE)
    first = [each.clone() for each in flat(kept)]
    made(IMAGE + 1)
    assert all(torch.equal(mine, before) for mine, before in zip(flat(kept), first, strict=True))


def test_several_inputs_and_layouts() -> None:
    conv = nn.Conv2d(4, 8, 1)
    last = IMAGE.to(memory_format=torch.channels_last)
    model = Called(lambda x, z, conv: conv(x) * 2 + conv(z), conv)
    made = engine(model, last, IMAGE)
    got = made(last, IMAGE)
    agree(got, model, last, IMAGE)
    with torch.no_grad():
        assert got.stride() == model(last, IMAGE).stride()
    assert_close(made(IMAGE, last), got)


def test_one_and_three_dimensions_and_transposed_convolutions() -> None:
    for conv, shape in (
        (nn.Conv1d(4, 6, 3, dilation=2), (2, 4, 12)), (nn.Conv3d(4, 6, 3, stride=2, padding=1), (1, 4, 5, 6, 7)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (1, 4, 5, 6)),
        (nn.ConvTranspose1d(4, 6, 2, stride=2, groups=2), (1, 4, 5)), (nn.Linear(4, 5), (3, 2, 4)),
        (nn.Conv2d(4, 4, (3, 2), padding="same"), (1, 4, 5, 6)),
    ):  # fmt: skip
        model, x = nn.Sequential(conv, nn.ReLU()).eval(), torch.randn(shape)
        agree(engine(model, x)(x), model, x)


def test_inference_mode_and_autocast_change_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).eval()
    made = engine(model, IMAGE)
    expected = made(IMAGE)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(made(IMAGE), expected)


def test_half_precision() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval().bfloat16()
    x = IMAGE.bfloat16()
    got = engine(model, x)(x)
    assert got.dtype is torch.bfloat16
    exact = model.double()(IMAGE.bfloat16().double())
    assert (got - exact).abs().max() < 0.02 * exact.abs().max()


# What passes change.


def kinds(model: nn.Module, *inputs: Tensor) -> list[str]:
    return [node.operation.kind for node in passed(network(model.eval(), *inputs)).network.graph.nodes]


def test_batch_norm_and_scale_become_weights() -> None:
    layers = [nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.Linear(4, 3)]
    model = Called(lambda x, a, norm, b, last: last(b(norm(a(x)) * 3 + 1)) * -0.5, *layers)
    assert kinds(model, IMAGE) == ["conv", "conv", "view", "linear", "view", "pointwise"]
    sentences = passed(network(model, IMAGE)).sentences
    assert "layers.1 is folded into the weights of layers.0." in sentences


def test_what_is_read_twice_is_not_folded() -> None:
    model = Called(lambda x, conv, norm: (y := conv(x), norm(y) + y)[1], nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    assert kinds(model, IMAGE) == ["conv", "pointwise", "pointwise"]


def test_padding_is_the_convolutions() -> None:
    model = Called(lambda x, conv: conv(F.pad(x, (1, 2, 0, 1))), nn.Conv2d(4, 4, 3, padding=1))
    (node,) = passed(network(model, IMAGE)).network.graph.nodes
    assert node.operation.padding == ((1, 2), (2, 3))  # type: ignore[union-attr]


def test_what_is_computed_twice_is_computed_once() -> None:
    model = Called(lambda x: F.max_pool2d(x, 2) + F.max_pool2d(x, 2).relu())
    assert kinds(model, IMAGE) == ["pool", "pointwise", "pointwise"]


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.MaxPool1d(3, 2, 1), (2, 4, 9)),
        (nn.MaxPool2d((3, 2), 2, (1, 0), dilation=2, ceil_mode=True), (2, 4, 9, 8)),
        (nn.MaxPool3d(2), (2, 4, 4, 5, 6)),
        (nn.AvgPool1d(3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 4, 10)),
        (nn.AvgPool2d(2, divisor_override=3), (2, 4, 8, 6)),
        (nn.AvgPool3d((2, 3, 1), 2), (2, 4, 4, 5, 6)),
    ],
)
def test_pooling_is_a_problem(layer: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    model = nn.Sequential(layer, nn.ReLU())
    assert kinds(model, x) == ["pool", "pointwise"]
    made = engine(model, x)
    agree(made(x), model, x)
    agree(reference(network(model, x), [x]), model, x)


@pytest.mark.parametrize("mode", [Mode.HEURISTIC, Mode.QUICK])
def test_a_network_that_pools(mode: Mode) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 1), nn.AvgPool2d(2)
    ).eval()
    x = torch.randn(2, 4, 20, 20)
    agree(optimize(model, x, mode=mode)(x), model, x)


def test_what_no_problem_pools_stays_pytorchs() -> None:
    assert kinds(Called(lambda x: F.avg_pool2d(x, 2, divisor_override=-3)), IMAGE) == ["foreign"]
    assert kinds(Called(lambda x: F.max_pool2d(x, 2)), IMAGE[0]) == ["foreign"], "an image without a batch"


def test_constants_are_computed_once() -> None:
    model = Called(lambda x, conv: x + F.relu(conv.weight).sum(), nn.Conv2d(4, 4, 1))
    assert kinds(model, IMAGE) == ["view", "pointwise"] or kinds(model, IMAGE) == ["pointwise"]


# What is refused.


def test_what_cannot_be_exported_is_one_sentence() -> None:
    model = Called(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(Refused, match="cannot be exported as a whole"):
        engine(model, IMAGE)


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(BadInput, match="training mode"):
        optimize(nn.Conv2d(4, 4, 1), IMAGE, mode=Mode.HEURISTIC)


def test_other_inputs_are_refused() -> None:
    made = engine(nn.Conv2d(4, 4, 1), IMAGE)
    for wrong in (torch.randn(1, 4, 6, 6), IMAGE.double(), "x", None):
        with pytest.raises(BadInput, match=r"must be torch\.float32"):
            made(wrong)
    with pytest.raises(BadInput, match="takes 1 tensor, got 2"):
        made(IMAGE, IMAGE)


def test_integers_between_layers_are_refused() -> None:
    with pytest.raises(Refused, match="a tensor of int64, and a network holds fp64"):
        engine(Called(lambda x: x.argmax(1)), IMAGE)


# What a folder may hold.


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    engine(nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()), IMAGE).save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """The folder of an engine, which a test may change."""
    return Path(copytree(saved, tmp_path, dirs_exist_ok=True))


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    change(plan)
    (folder / "plan.json").write_text(json.dumps(plan))


def test_a_changed_plan_is_refused(folder: Path) -> None:
    changed(folder, lambda plan: plan["steps"].clear())
    with pytest.raises(BadInput, match="checksum differs"):
        load(folder, "cpu")


def test_other_versions_are_refused(folder: Path) -> None:
    changed(folder, lambda plan: plan.update(version=99))
    with pytest.raises(BadInput, match="version 99"):
        load(folder, "cpu")


def test_changed_or_missing_weights_are_refused(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    held = bytearray(weights.read_bytes())
    held[-1] ^= 1
    weights.write_bytes(held)
    with pytest.raises(BadInput, match="checksum differs"):
        load(folder, "cpu")
    weights.write_bytes(held[:40])
    with pytest.raises(BadInput, match="checksum differs"):
        load(folder, "cpu")
    weights.unlink()
    with pytest.raises(BadInput, match=r"holds no weights\.safetensors"):
        load(folder, "cpu")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', "\0"])
def test_a_foreign_folder_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"holds no plan\.json"):
        load(tmp_path, "cpu")
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ConvwrightError):
        load(tmp_path, "cpu")


def test_new_weights_are_taken_without_a_search() -> None:
    model, other = RandomNetwork(3), RandomNetwork(3)
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    before, steps = flat(made(x)), made.assignment.steps
    for parameter in model.parameters():
        parameter.data.fill_(float("nan"))
    assert all(map(torch.equal, flat(made(x)), before))  # the engine has weights of its own
    made.update(other)
    agree(made(x), other, x)
    assert made.assignment.steps == steps


def test_only_weights_that_fit_are_taken() -> None:
    made = engine(nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()), IMAGE)
    for other, said in (
        (nn.Sequential(nn.Conv2d(4, 6, 3)), r"`0.weight` of fp32 .8, 4, 3, 3., and it has fp32 .6, 4"),
        (nn.Sequential(nn.ReLU(), nn.Conv2d(4, 8, 3)), "`0.weight` of fp32 .*, and it has none"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=said):
            made.update(other.eval())


def test_a_clone_has_memory_of_its_own_and_the_same_weights() -> None:
    model, x = RandomNetwork(5), torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    other = made.clone()
    assert other._weights is made._weights
    assert other._program.arena.memory.data_ptr() != made._program.arena.memory.data_ptr() or not made.arena_bytes
    inputs = [torch.randn(2, 4, 8, 8) for _ in range(8)]
    expected = [flat(made(each)) for each in inputs]
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(lambda each=each: [flat(each(x)) for _ in range(5) for x in inputs]) for each in (made, other)
        ]
        for run in runs:
            for got, right in zip(run.result(), expected * 5, strict=True):
                assert all(map(torch.equal, got, right))


def test_copies_that_no_plan_uses_are_not_searched_for() -> None:
    searched = list[int]()

    def progress(done: int, of: int, what: str) -> None:
        if what == "searching" and not done:
            searched.append(of)

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    optimize(model, torch.randn(1, 3, 12, 12), mode="heuristic", progress=progress)
    assert searched[0] == 4  # two groups in two layouts
    assert sum(searched[1:]) <= 2  # of eight copies
