"""Tables in other forms, their first rows, some layers, and another store."""

from __future__ import annotations

import csv
import io
import sys
from enum import StrEnum
from pathlib import Path
from typing import get_args

import pytest
import typer.main

from convwright import option_names
from convwright.cli import choices
from convwright.cli.choices import SearchMode
from convwright.cli.main import app, main
from convwright.core.direction import Direction
from convwright.core.epilogue import Activation
from convwright.engine.loaded import OnChange
from convwright.engine.precision.lowering import Precision
from convwright.engine.running.failure import OnFailure
from convwright.measuring.cache import Cache
from convwright.placement.question import Objective as PlacementObjective
from convwright.quantizing.calibration import Ranges
from convwright.settings import Mode, Trust

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3)
        self.d1 = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))

    def forward(self, x):
        return self.d1(self.stem(x))

def net():
    return Net().eval(), torch.ones(1, 2, 8, 8)
"""
FIND = ("find", "ic2ih6oc4kh3", "--device", "cpu", "--mode", "heuristic")


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line in this process."""
    monkeypatch.setattr(sys, "argv", ["convwright", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "nets.py").write_text(MODEL)
    return f"{tmp_path / 'nets.py'}:net"


def test_rows_of_find_as_csv_and_markdown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, *FIND, "--csv")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows[0]["candidate"] == "torch/default"
    assert rows[0]["call_us"] == ""
    code, out, err = run(capsys, monkeypatch, *FIND, "--markdown", "--top", "2")
    assert (code, err) == (0, "")
    head, _, first, _second = out.splitlines()
    assert head.startswith("| candidate | ")
    assert first.startswith("| torch/default | ")
    code, out, _ = run(capsys, monkeypatch, *FIND, "--top", "1")
    assert code == 0
    assert f"and {len(rows) - 1} more, which --top hides" in out


def test_one_form_at_once_and_no_row_less_than_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, said in (
        (("--json", "--csv"), "convwright: a command prints one form, got --json and --csv\n"),
        (("--top", "0"), "convwright: --top takes a whole number above 0, got 0\n"),
    ):
        assert run(capsys, monkeypatch, *FIND, *words) == (2, "", said)


def test_find_and_tune_keep_what_they_find_in_the_store_that_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str
) -> None:
    path = str(tmp_path / "named.sqlite")
    quick = ("--mode", "quick", "--budget", "0.3", "--store", path)
    assert run(capsys, monkeypatch, *FIND[:4], *quick)[0] == 0
    assert run(capsys, monkeypatch, "tune", model, *quick)[0] == 0
    code, out, err = run(capsys, monkeypatch, "store", "--store", path, "--json")
    assert (code, err) == (0, "")
    assert path in out


def test_layers_are_chosen_by_a_pattern(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    code, out, err = run(capsys, monkeypatch, "tune", model, "--plan-only", "--layer", "d1.*", "--csv")
    assert (code, err) == (0, "")
    assert {row["layers"] for row in csv.DictReader(io.StringIO(out))} == {"d1.0", "d1.2"}
    code, out, err = run(capsys, monkeypatch, "tune", model, "--plan-only", "--layer", "x*")
    assert (code, out) == (2, "")
    assert err.endswith("no layer is called like 'x*'; there are stem, d1.0 +1\n")
    code, out, err = run(capsys, monkeypatch, "predict", model, "--device", "h200", "--layer", "d1.*", "--markdown")
    assert (code, err) == (0, "")
    head, _, *rows = out.splitlines()
    assert head.startswith("| step | runs |")
    assert [row.split()[1] for row in rows] == ["d1.0+d1.1", "d1.2"]


def test_the_words_of_options_are_those_of_the_library() -> None:
    modes = [str(mode) for mode in Mode if mode is not Mode.OFF]
    assert list(SearchMode) == list(get_args(option_names.ModeName)) == modes
    assert list(choices.PlacementAim) == list(PlacementObjective)
    assert list(choices.Precision) == list(Precision)
    assert list(choices.WholePrecision) == [each for each in Precision if each is not Precision.MIXED]


@pytest.mark.parametrize(
    ("names", "members"),
    [
        ("TrustName", Trust),
        ("DirectionName", Direction),
        ("ActivationName", Activation),
        ("CacheName", Cache),
        ("RangesName", Ranges),
        ("PrecisionName", Precision),
        ("OnFailureName", OnFailure),
        ("OnChangeName", OnChange),
        ("PlacementObjectiveName", PlacementObjective),
    ],
)
def test_the_words_in_signatures_are_those_of_the_library(names: str, members: type[StrEnum]) -> None:
    assert list(get_args(getattr(option_names, names))) == list(members)


def test_every_command_has_a_group_and_one_short_line() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        line = command.get_short_help_str(limit=1000)
        assert command.rich_help_panel, name
        assert 10 < len(line) <= 80, (name, line)
        assert line.endswith("."), name
