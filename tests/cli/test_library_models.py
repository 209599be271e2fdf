"""``timm:NAME``, ``torchvision:NAME`` and ``--input``.

The libraries need not be installed here: modules that stand for them, with the functions that are called, are put in
their place.
"""

from __future__ import annotations

import json
import sys
from itertools import cycle
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from convwright.cli.main import main

COMMANDS = {
    "advise": ["--mode", "heuristic"],
    "optimize": ["--mode", "heuristic"],
    "tune": ["--mode", "heuristic"],
    "predict": ["--device", "cpu"],
    "quantize": [],
    "passes": [],
}
MODEL_ALONE = "import torch\ndef alone(): return torch.nn.Conv2d(3, 4, 3).double()\ndef number(): return 3\n"


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the models were asked for."""
    asked: dict[str, object] = {}

    def create_model(name: str, *, pretrained: bool) -> nn.Module:
        asked["timm"] = (name, pretrained)
        return small().train()

    def resnet18(*, weights: object = "default", weights_backbone: object = "default") -> nn.Module:
        asked["torchvision"] = (weights, weights_backbone)
        return small().train()

    def broken() -> nn.Module:
        raise ValueError("no luck")

    timm, torchvision, models = ModuleType("timm"), ModuleType("torchvision"), ModuleType("torchvision.models")
    timm.create_model, timm.list_models = create_model, lambda: ["resnet18", "resnet50", "vgg16"]
    builders = {"resnet18": resnet18, "broken": broken}
    models.list_models, models.get_model_builder = lambda: list(builders), builders.__getitem__
    torchvision.models = models
    for module in (timm, torchvision, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return asked


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line in this process."""
    monkeypatch.setattr(sys, "argv", ["convwright", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("command", "target"), [*zip(COMMANDS, cycle(["timm:resnet18", "torchvision:resnet18"]), strict=False)]
)
def test_every_command_that_takes_a_model_takes_one_by_name(
    target: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, command, target, "--input", "1,3,12,12", *COMMANDS[command])
    assert (code, err) == (0, "")
    assert out


def test_weights_are_random_and_the_shape_is_what_was_given(
    libraries: dict[str, object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in ("timm:resnet50", "torchvision:resnet18"):
        words = ("advise", target, "--input", "2x3x17x19", "--mode", "heuristic", "--json")
        code, out, _ = run(capsys, monkeypatch, *words)
        assert code == 0
        assert "mb2ic3ih17iw19" in json.loads(out)["layers"][0]["problem"].replace("oc4", "")
    assert libraries == {"timm": ("resnet50", False), "torchvision": (None, None)}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_function_may_return_a_model_alone(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(MODEL_ALONE.replace(".double()", ""))
    words = (command, f"{tmp_path / 'own.py'}:alone", *COMMANDS[command])
    assert run(capsys, monkeypatch, *words, "--input", "1,3,12,12")[0] == 0
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--input" in err


def test_the_input_has_the_dtype_of_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(MODEL_ALONE)
    words = ("advise", f"{tmp_path / 'own.py'}:alone", "--input", "1,3,12,12", "--mode", "heuristic", "--json")
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert "dt:fp64" in json.loads(out)["layers"][0]["problem"]


MISTAKES = [
    (["timm:resnet51", "--input", "1,3,9,9"], "timm has no model called 'resnet51', the nearest is 'resnet50'"),
    (["timm:qqq", "--input", "1,3,9,9"], "timm has no model called 'qqq': timm.list_models() lists all"),
    (["timm:", "--input", "1,3,9,9"], "timm has no model called ''"),
    (["torchvision:resnet19", "--input", "1,3,9,9"], "called 'resnet19', the nearest is 'resnet18'"),
    (["torchvision:broken", "--input", "1,3,9,9"], "'torchvision:broken' cannot be made: ValueError: no luck"),
    (["timm:resnet18"], "'timm:resnet18' needs the shape of its input: add --input 1,3,224,224"),
    (["timm:resnet18", "--input", "3,9"], "the model does not run on its example"),
    (["timm:resnet18", "--input", "1,0,9,9"], "--input must be the shape of an input, for example 1,3,224,224, got"),
    (["timm:resnet18", "--input", "big"], "got 'big'"),
    (["timm:resnet18", "--input", "1,3,9,9+"], "got '1,3,9,9+'"),
]


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(("words", "sentence"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes_are_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, "advise", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


@pytest.mark.parametrize("shape", [("--input", "1,3,9,9"), ()], ids=["input", "no input"])
@pytest.mark.parametrize("command", ["passes", "advise"])
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_library_that_is_missing_is_named(
    library: str,
    command: str,
    shape: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("timm", "torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, None)
    code, out, err = run(capsys, monkeypatch, command, f"{library}:resnet18", *shape)
    assert (code, out, err.count("\n")) == (2, "", 1)
    torch_now = f"torch=={torch.__version__.partition('+')[0]}"
    assert f"'{library}:resnet18' needs {library}, which is not installed: pip install {library} {torch_now} (" in err
    assert err.endswith(f"({torch_now} keeps this PyTorch)\n")


def test_a_library_of_another_pytorch_is_named_with_the_one_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("raise RuntimeError('operator timm::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    code, out, err = run(capsys, monkeypatch, "advise", "timm:resnet18", "--input", "1,3,9,9")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "needs timm, which cannot be imported: RuntimeError: operator timm::nms does not exist" in err
    assert f"pip install timm torch=={torch.__version__.partition('+')[0]} installs one for this PyTorch" in err


@pytest.mark.parametrize("command", [*COMMANDS, "time"])
@pytest.mark.parametrize("name", ["folder", "folder:made", "engine"])
def test_a_folder_is_named_as_one(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "engine"):
        (tmp_path / folder).mkdir()
    (tmp_path / "engine" / "plan.json").write_text("{}")
    code, out, err = run(capsys, monkeypatch, command, name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{name.partition(':')[0]!r} is a folder" in err
    assert ("`convwright run`" in err) == (name == "engine")


def test_the_shape_is_of_a_network(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run(capsys, monkeypatch, "predict", "ic8ih9oc8kh3", "--input", "1,3,9,9", "--device", "cpu")
    assert code == 2
    assert "--input is of a network" in err
