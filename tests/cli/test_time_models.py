"""What is timed where a target or a call gives a model: a run of it, or a sentence that says what else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.cli.main import main
from convwright.errors import IgnoredWarning

SOURCE = """
import torch
made = []
class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        made.append(self)
        self.runs = 0
        self.weight = torch.nn.Parameter(torch.ones(1000))
    def forward(self, x):
        self.runs += 1
        assert not torch.is_grad_enabled()
        return (self.weight * x).exp()
def pair(): return Counted(), torch.ones(1000)
def alone(): return Counted()
def broken(): return Counted(), torch.ones(7)
def other():
    assert torch.is_grad_enabled()
    return torch.ones(10)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "timed_models.py").write_text(SOURCE)
    return str(tmp_path / "timed_models.py")


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["convwright", "time", *words, "--budget", "0.05"])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_a_model_with_its_example_is_made_once_and_run(
    own: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{own}:pair", f"{own}:other")
    assert (code, err) == (0, "")
    assert f"{own}:pair: the model that it returns, run on its example without gradients" in out
    assert f"{own}:other: the model" not in out
    (made,) = sys.modules["timed_models"].made
    assert made.runs > 3
    code, out, _ = run(capsys, monkeypatch, f"{own}:pair", "--json")
    assert code == 0
    assert list(json.loads(out)["timings"]) == [f"{own}:pair"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("alone", "returns a model (Counted) without an example, so only making it"), ("broken", "RuntimeError")],
)
def test_a_model_that_cannot_be_run_is_refused(
    name: str, sentence: str, own: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{own}:{name}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


@pytest.mark.parametrize("device", [None, "cpu"])
def test_measure_says_that_a_model_does_not_run(device: str | None) -> None:
    model, x = nn.Linear(4, 4), torch.ones(1, 4)
    with pytest.warns(
        IgnoredWarning, match=r"^the call returns a model \(Linear\): this is the time to make it"
    ) as seen:
        cw.measure(lambda: model, device=device, budget_us=1000)
    assert [each.filename for each in seen] == [__file__]
    with pytest.warns(IgnoredWarning, match=r"^the call 'two' returns a model \(Linear\)") as seen:
        cw.measure_together({"one": lambda: x, "two": lambda: (model, x)}, device=device, budget_us=1000)
    assert [each.filename for each in seen] == [__file__]


def test_a_model_alone_is_no_call() -> None:
    with pytest.raises(cw.BadInput, match=r"^a model is timed on an input, as lambda: model\(x\), got Linear alone$"):
        cw.measure(nn.Linear(4, 4))

    class Own(nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.ones(10)

    assert cw.measure(Own(), budget_us=1000).samples > 0
