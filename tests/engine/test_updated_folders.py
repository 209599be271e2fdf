"""An engine from a folder takes new weights, as in the process that planned it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.engine.saving.saved import PLAN, checksum
from engine.random_network import RandomNetwork
from engine.test_index_constants import Indexed

X = torch.randn(2, 4, 6, 6)


def changed(model: nn.Module) -> nn.Module:
    """The model with other weights; statistics of batch norm stay positive."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.mul_(2.5)
    return model.eval()


def agree(engine: cw.Engine, model: nn.Module, x: torch.Tensor, tolerance: float = 1e-4) -> None:
    ours, own = engine(x), model(x)
    for each, expected in zip(*((y if isinstance(y, tuple) else (y,)) for y in (ours, own)), strict=True):
        torch.testing.assert_close(each, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("made", [Indexed, *(lambda seed=seed: RandomNetwork(seed) for seed in (1, 3, 7))])
def test_it_computes_what_the_changed_model_computes(made: Callable[[], nn.Module], tmp_path: Path) -> None:
    model = made().eval()
    x = X if isinstance(model, Indexed) else torch.randn(2, 4, 8, 8)
    cw.optimize(model, x, mode="heuristic").save(tmp_path / "first")
    engine = cw.load(tmp_path / "first")
    assert isinstance(engine, cw.Engine)
    engine.update(changed(model))
    agree(engine, model, x)
    engine.save(tmp_path / "second")
    again = cw.load(tmp_path / "second")
    assert isinstance(again, cw.Engine)
    agree(again, model, x)
    again.update(changed(model))
    agree(again, model, x)


def test_lower_precision_is_kept(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    cw.optimize(model, X, mode="heuristic", precision="bf16").save(tmp_path)
    engine = cw.load(tmp_path)
    assert isinstance(engine, cw.Engine)
    engine.update(changed(model))
    agree(engine, model, X, tolerance=0.05)


def test_all_buckets_take_them(tmp_path: Path) -> None:
    model = Indexed().eval()
    cw.optimize(model, X, mode="heuristic", buckets=[(1, 4, 6, 6), (4, 4, 6, 6)]).save(tmp_path)
    engine = cw.load(tmp_path)
    engine.update(changed(model))
    for batch in (1, 3, 4):
        x = torch.randn(batch, 4, 6, 6)
        torch.testing.assert_close(engine(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_plan_that_is_made_again_takes_them(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    cw.optimize(model, X, mode="heuristic").save(tmp_path)
    rewrite(tmp_path, lambda plan: plan["fingerprints"].update(pytorch="1.0"))
    engine = cw.load(tmp_path, on_change="replan", mode="heuristic")
    assert isinstance(engine, cw.Engine)
    engine.update(changed(model))
    agree(engine, model, X)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: plan.pop("origin"), "from a folder of an older convwright"),
        (lambda plan: lower_first(plan["origin"]), "the model gives no .*: plan the model again"),
        (lambda plan: plan["origin"]["graph"]["nodes"].pop(0), "holds no engine that can run: "),
        (lambda plan: plan["origin"].pop("graph"), "holds no engine that can run: "),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_the_engine_stays(
    change: Callable[[Any], object], said: str, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).eval()
    cw.optimize(model, X, mode="heuristic").save(tmp_path)
    rewrite(tmp_path, change)
    engine = cw.load(tmp_path)
    assert isinstance(engine, cw.Engine)
    before = engine(X)
    with pytest.raises(cw.BadInput, match=said):
        engine.update(changed(model))
    assert torch.equal(engine(X), before)


def test_another_model_is_refused(tmp_path: Path) -> None:
    cw.optimize(nn.Sequential(nn.Conv2d(4, 8, 3)).eval(), X, mode="heuristic").save(tmp_path)
    with pytest.raises(cw.BadInput, match=r"`0.weight` of fp32 .8, 4, 3, 3., and it has fp32 .6, 4"):
        cw.load(tmp_path).update(nn.Sequential(nn.Conv2d(4, 6, 3)).eval())


def lower_first(origin: Any) -> None:
    origin["dtypes"][origin["graph"]["nodes"][0]["name"]] = "bf16"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (nn.Conv2d(4, 8, 3, stride=2), "`0` of the model is Conv2d.*stride=.2, 2.*, and the engine was planned with "),
        (nn.Sequential(nn.Conv2d(4, 8, 3), nn.SiLU()), "`1` of the model is SiLU.*planned with ReLU"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_model_that_computes_something_else_is_refused(
    other: nn.Module, said: str, is_loaded: bool, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Dropout(0.1)).eval()
    engine = cw.optimize(model, X, mode="heuristic")
    if is_loaded:
        engine.save(tmp_path)
        engine = cw.load(tmp_path)  # type: ignore[assignment]
    before = engine(X)
    with pytest.raises(cw.BadInput, match=said):
        engine.update(nn.Sequential(other, nn.ReLU()).eval() if isinstance(other, nn.Conv2d) else other.eval())
    assert torch.equal(engine(X), before)
    engine.update(nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Dropout(0.9)).eval())  # dropout computes nothing


class Tied(nn.Module):
    """Two convolutions with one weight, a function, a number, a tensor that is not registered, and one that a call
    makes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.two.weight = self.one.weight
        self.act, self.factor, self.offset, self.calls = nn.functional.relu, 2.0, torch.ones(1), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.two(self.one(x))) * self.factor + self.offset


def untie(model: Any) -> None:
    model.two.weight = nn.Parameter(model.two.weight.detach() * 2)


def other_forward(model: Any) -> None:
    model.two.forward = lambda x: x


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (untie, "`two.weight` of the model is a tensor of its own, .* planned with a tensor shared with one.weight"),
        (lambda model: setattr(model, "act", torch.sigmoid), "`act` of the model is torch.*sigmoid, and the .*relu"),
        (lambda model: setattr(model, "factor", 3.0), "`factor` of the model is 3.0, .* planned with 2.0"),
        (lambda model: model.offset.mul_(2), "`offset` of the model is a tensor .* planned with a tensor"),
        (other_forward, "`two.forward` of the model is .*lambda.*, and the engine was planned without it"),
        (lambda model: model.one.register_forward_hook(lambda *_: None), "`one.hooks` of the model is 1"),
    ],
)  # fmt: skip
def test_changes_besides_weights_are_refused(change: Callable[[Any], object], said: str, tmp_path: Path) -> None:
    model, x = Tied().eval(), X[:, :4]
    cw.optimize(model, x, mode="heuristic").save(tmp_path)
    engine = cw.load(tmp_path)
    assert isinstance(engine, cw.Engine)
    model.calls = torch.ones(1)  # type: ignore[assignment]  # made by a call
    torch.nn.init.ones_(model.one.weight)
    engine.update(model)
    with torch.no_grad():
        assert torch.allclose(engine(x), model(x), atol=1e-5)
    change(model)
    with pytest.raises(cw.BadInput, match=said):
        engine.update(model)


def test_a_compiled_model_is_unwrapped_by_the_user() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3)).eval()
    with pytest.raises(cw.BadInput, match=r"the model is wrapped by torch\.compile: give the model itself"):
        cw.optimize(model, X, mode="heuristic").update(torch.compile(model))  # type: ignore[arg-type]


def test_outputs_of_another_model_are_not_called_right() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).eval()
    engine = cw.optimize(model, X, mode="heuristic")
    assert str(engine.compare(model, X)).endswith("no step is over its tolerance")
    other = nn.Sequential(nn.Conv2d(4, 8, 3), nn.SiLU()).eval()
    assert "but outputs are not the model's: the engine was planned with another" in str(engine.compare(other, X))


def test_a_home_is_a_folder_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model = nn.Sequential(nn.Conv2d(4, 8, 3)).eval()
    cw.optimize(model, X, mode="heuristic").save("~/engine")
    assert (tmp_path / "engine" / PLAN).is_file()
    assert isinstance(cw.load("~/engine"), cw.Engine)


def rewrite(folder: Path, change: Callable[[Any], object]) -> None:
    """Change a plan's file, with a checksum that fits."""
    plan = json.loads((folder / PLAN).read_text())
    del plan["checksum"]
    change(plan)
    (folder / PLAN).write_text(json.dumps(plan | {"checksum": checksum(plan)}))
