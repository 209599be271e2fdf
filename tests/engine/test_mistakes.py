"""Mistakes of users of engines: one sentence each, with what to do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.engine.buckets.bucketed import BucketedEngine
from convwright.engine.partial import PartialEngine
from convwright.errors import BadInput, ConvwrightError, Refused

X = torch.randn(2, 3, 8, 8)


def _model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()


class _Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class _Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.fixture(scope="module")
def engine() -> cw.Engine:
    return cw.optimize(_model(), X, mode="heuristic")


@pytest.fixture(scope="module")
def several() -> BucketedEngine:
    return cw.optimize(_model(), X, mode="heuristic", buckets=[1, 2])


@pytest.fixture(scope="module")
def partial() -> PartialEngine:
    made = cw.optimize(nn.Sequential(_Branch(), _model()).eval(), X, mode="heuristic", partial=True)
    assert isinstance(made, PartialEngine)
    return made


def _said(call: Callable[[], object], kind: type[Exception] = BadInput) -> str:
    with pytest.raises(kind) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        ("net.pt", "got 'net.pt': make the model first, then load its weights"),
        (_model().state_dict(), "got a dict: load it into the model, as model.load_state_dict(…)"),
        (nn.Conv2d, "got the class Conv2d: make a model of it, as Conv2d(…).eval()"),
        (lambda x: x, "got a callable (function): make a module that calls it in `forward`"),
    ],
)
def test_what_is_no_model_is_named(model: Any, remedy: str, engine: cw.Engine) -> None:
    for call in (lambda: cw.optimize(model, X), lambda: engine.update(model)):
        assert _said(call) == f"`model` must be an nn.Module, {remedy}"


def test_a_wrapped_model_is_to_be_unwrapped() -> None:
    assert _said(lambda: cw.optimize(nn.DataParallel(_model()), X)) == (
        "the model is wrapped in DataParallel: unwrap it, as model.module"
    )


@pytest.mark.parametrize(
    ("model", "example", "said"),
    [
        (_model(), torch.randn(2, 4, 8, 8), "expected input[2, 4, 8, 8] to have 3 channels, but got 4 channels"),
        (_model(), X.double(), "Input type (double) and bias type (float) should be the same"),
        (_model(), [X], "conv2d() received an invalid combination of arguments;"),
        (_model(), {"x": X}, "conv2d() received an invalid combination of arguments;"),
        (_model(), (X, X), "takes 2 positional arguments but 3 were given"),
        (_Sum().eval(), X, "missing 1 required positional argument: 'y'"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"plan_only": True}, {"partial": True}])
def test_an_example_that_the_model_does_not_take(
    model: nn.Module, example: Any, said: str, options: dict[str, Any]
) -> None:
    sentence = _said(lambda: cw.optimize(model, example, mode="heuristic", **options))
    assert sentence.startswith("the model cannot be called with the example: ")
    assert said in sentence
    got = f", got a {type(example).__name__}" if isinstance(example, list | dict) else ""
    assert sentence.endswith(f"; `example` is a tensor, or a tuple of the model's arguments{got}")


def test_a_model_that_takes_the_example_is_not_said_to_refuse_it() -> None:
    sentence = _said(lambda: cw.optimize(_Branch().eval(), X), Refused)
    assert sentence.startswith("the model cannot be exported as a whole: what it does next depends on the values")


def test_inputs_that_no_engine_takes_are_named() -> None:
    sentence = _said(lambda: cw.optimize(nn.Embedding(10, 4).eval(), torch.tensor([1, 2])), Refused)
    assert sentence.startswith("an engine takes no inputs of torch.int64, and `input` is one: ")
    assert "convolution" not in sentence
    said = _said(lambda: cw.optimize(_model(), torch.randn(0, 3, 8, 8)))
    assert said == "`example` must hold numbers, got a tensor of shape (0, 3, 8, 8): give an image"


@pytest.mark.parametrize("model", [nn.Sequential(), nn.Identity()])
def test_an_engine_without_a_step_says_so(model: nn.Module) -> None:
    engine = cw.optimize(model.eval(), X, mode="heuristic")
    assert torch.equal(engine(X), X)
    assert "0 steps" in engine.explain()


def test_options_of_the_wrong_kind() -> None:
    wrong: Any = {"policy": "fast"}
    assert (
        _said(lambda: cw.optimize(_model(), X, **wrong))
        == "`policy` must be a convwright.Policy, for example Policy(max_error=3), got 'fast'"
    )
    for buckets in (8, "1,8"):
        wrong = {"buckets": buckets}
        said = _said(lambda: cw.optimize(_model(), X, **wrong))  # noqa: B023
        assert said == f"`buckets` must be a list of buckets, for example [1, 8], got {buckets!r}"


@pytest.mark.parametrize("folder", [None, 3, ""])
def test_a_folder_must_be_named(folder: Any, engine: cw.Engine, several: BucketedEngine) -> None:
    for call in (engine.save, several.save, cw.load):
        assert _said(lambda: call(folder)) == f"`folder` must be the path of an engine's folder, got {folder!r}"  # noqa: B023


def test_a_folder_that_cannot_be_written_is_named(engine: cw.Engine) -> None:
    sentence = _said(lambda: engine.save("/proc"))
    assert sentence.startswith("the folder '/proc' cannot be written: ")
    assert sentence.endswith("; choose another folder")


def test_an_engine_is_replaced_by_another(engine: cw.Engine, several: BucketedEngine, tmp_path: Path) -> None:
    (tmp_path / ".keep").touch()  # hidden files do not count
    for made in (engine, several, engine):
        made.save(tmp_path)
        assert torch.equal(cw.load(tmp_path)(X), made(X))
        (tmp_path / "notes.txt").touch()  # an engine's folder may have more


@pytest.mark.parametrize("name", ["weights.safetensors", "plan.json", "notes.txt"])
@pytest.mark.parametrize("text", ["mine", '{"version": 1, "steps": []}'])
def test_files_of_something_else_are_not_replaced(
    name: str, text: str, engine: cw.Engine, several: BucketedEngine, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    for made in (engine, several, cw.optimize(_model(), X, plan_only=True)):
        assert _said(lambda made=made: made.save(tmp_path)) == (
            f"the folder {str(tmp_path)!r} holds other files, such as {name!r}, and no engine that could be replaced: "
            "choose a new or an empty folder"
        )
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == text


_NO_GRADIENT = (
    "an engine is for inference and computes no gradient, and its input requires one: call it in torch.no_grad(), or "
    "give x.detach(); to train, call the model itself"
)


def test_an_input_that_requires_a_gradient_is_refused(
    engine: cw.Engine, several: BucketedEngine, partial: PartialEngine
) -> None:
    x = X.clone().requires_grad_()
    three = torch.cat([x, x[:1]])  # a batch that is padded or split
    for made, given in ((engine, x), (several, x), (several, three), (partial, x)):
        assert _said(lambda made=made, given=given: made(given)) == _NO_GRADIENT
        expected = made(given.detach())
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert torch.equal(made(given), expected)


def test_an_input_that_was_written_with_a_gradient_is_refused_once(engine: cw.Engine) -> None:
    x, made = X.clone().requires_grad_(), engine.clone()
    made.input.copy_(x)
    assert _said(made.run) == _NO_GRADIENT
    made.input.copy_(x.detach())
    assert torch.equal(made.run(), engine(X))
    with torch.no_grad():
        made.input.copy_(x)
        assert torch.equal(made.run(), engine(X))


def test_weights_that_require_gradients_are_none_of_the_inputs(engine: cw.Engine) -> None:
    assert all(each.requires_grad for each in _model().parameters())
    assert not engine(X).requires_grad


_PARTS = "; `partial=True`, or --partial, plans the parts that can be exported"


def test_a_model_with_parts_that_can_be_planned_is_told_so() -> None:
    model = nn.Sequential(_Branch(), _model()).eval()
    said = _said(lambda: cw.optimize(model, X, mode="heuristic"), Refused)
    assert said.startswith(
        "the model cannot be exported as a whole: what it does next depends on the values in a tensor"
    )
    assert said.endswith(_PARTS)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (_Branch(), {}),  # has no part with a convolution
        (nn.Sequential(_Branch(), _model()), {"buckets": [1, 2]}),
        (nn.Sequential(_Branch(), _model()), {"memory_budget": 10**9}),
        (nn.Sequential(_Branch(), _model()), {"precision": "mixed"}),
        (nn.Sequential(_Branch(), _model()), {"plan_only": True}),
        (_model(), {"memory_budget": 1}),
    ],
)
def test_parts_are_not_named_where_they_are_not_planned(model: nn.Module, options: dict[str, Any]) -> None:
    said = _said(lambda: cw.optimize(model.eval(), X, **options), Refused)
    assert "partial" not in said


def test_samples_are_a_list() -> None:
    said = _said(lambda: cw.optimize(_model(), X, precision="mixed", samples=torch.stack([X, X])))
    assert said == "`samples` must be a list of samples, each like `example`, got a Tensor"


def test_a_model_without_weights_is_only_planned(engine: cw.Engine) -> None:
    model = _model().to("meta")
    for call in (lambda: cw.optimize(model, X), lambda: engine.update(model), lambda: engine.compare(model, X)):
        assert 'the model is on "meta", where it has no weights' in _said(call)
    assert cw.optimize(model, X, plan_only=True).time_us.value > 0


def test_load_refuses_options_that_it_would_ignore(tmp_path: Path, engine: cw.Engine) -> None:
    engine.save(tmp_path)
    options: dict[str, Any]
    for options in ({"mode": "full"}, {"store": "none"}, {"policy": cw.Policy()}):
        (name,) = options
        assert _said(lambda: cw.load(tmp_path, **options)) == (  # noqa: B023
            f'`load` plans nothing without on_change="replan", so that {name} would be ignored'
        )
    options = {"policy": 3}
    assert "`policy` must be a convwright.Policy" in _said(lambda: cw.load(tmp_path, **options))
    assert torch.equal(cw.load(tmp_path, on_change="replan", mode="full", store="none")(X), engine(X))


def test_update_refuses_a_model_in_training_mode(engine: cw.Engine, partial: PartialEngine) -> None:
    for each in (engine, partial):
        assert _said(lambda: each.update(_model().train())) == (  # noqa: B023
            "the model is in training mode: call model.eval() first"
        )


def test_an_engine_says_what_it_is(engine: cw.Engine, several: BucketedEngine, partial: PartialEngine) -> None:
    key = engine.facts.label
    assert str(engine) == repr(engine) == f"<Engine: 1 step on {key}, at least {engine.assignment.steps_us:,.0f} µs>"
    assert repr(several) == f"<BucketedEngine: buckets 1, 2 on {key}>"
    assert repr(partial) == "<PartialEngine: engines for 1>"


def test_an_engine_is_no_module(engine: cw.Engine) -> None:
    for name in ("cuda", "to", "eval", "half", "train", "parameters"):
        said = _said(lambda: getattr(engine, name), AttributeError)  # noqa: B023
        assert said.startswith(f"this Engine is no nn.Module and has no {name!r}: ")
        assert said.endswith("change the model and plan it again")
    assert not hasattr(engine, "nonsense")


def test_an_engine_is_saved_and_not_pickled(engine: cw.Engine) -> None:
    for call in (lambda: pickle.dumps(engine), lambda: copy.deepcopy(engine)):
        assert "write it with engine.save(folder)" in _said(call, ConvwrightError)
    assert torch.equal(engine.clone()(X), engine(X))
