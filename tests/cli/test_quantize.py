"""``convwright quantize``: a table, JSON, and what is wrong in one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from convwright.cli.main import main
from convwright.store.store import Store

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "advise_model.py"
SOURCE = """
import torch

print("imported")


def model():
    print("made")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1))


def samples():
    for seed in range(3):
        yield torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def nothing():
    return []


def forgets():
    model()


def three():
    return 3


class Leaves(torch.nn.Conv2d):
    def forward(self, x):
        raise SystemExit(4)


def leaves():
    return Leaves(3, 8, 3), torch.ones(1, 3, 8, 8)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["convwright", "quantize", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_a_table_with_what_is_kept_and_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, f"{EXAMPLE}:small", "--keep", "stem", "--keep", "stages.1.*")
    assert (code, err) == (0, "")
    title, head, *rows = out.splitlines()
    assert title.endswith(" · ranges mse")
    assert head.split() == [
        "layer",
        "problem",
        "with",
        "largest",
        "limit",
        "rel.",
        "L2",
        "SNR",
        "dB",
        "in",
        "int8",
        "by",
    ]
    cells = {row.split()[0]: row.split() for row in rows[:6]}
    assert cells["stages.0.conv1"][1:3] == ["mb2ic16oc16ih8kh3ph1", "stages.0.bn1"]
    assert cells["stages.0.conv1"][-1] == "unfuse(reference/direct)"
    assert 30 < float(cells["stages.0.conv1"][-2]) < 60  # decibels
    assert cells["stem"][-1] == "–"
    assert rows[-4:-2] == [
        "4 kept in their own precision:",
        "  stem, stages.1.conv1, stages.1.conv2, stages.1.shortcut.0: is to be kept",
    ]
    assert rows[-2].startswith("2 of 6 convolutions in int8; the model's outputs on 1 sample are off by ")


def test_json_and_samples_of_their_own(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        f"{mine}:model",
        "--samples",
        f"{mine}:samples",
        "--ranges",
        "largest",
        "--max-layer-error",
        "0.5",
        "--json",
    ]
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 0
    data = json.loads(out)
    assert (data["samples"], data["ranges"], data["max_layer_error"]) == (3, "largest", 0.5)
    assert [(layer["name"], layer["merged"], layer["int8"]) for layer in data["layers"]] == [
        ("0", ["1"], True), ("2", [], True),
    ]  # fmt: skip
    assert data["layers"][0]["limit"] == pytest.approx(data["layers"][0]["largest"])
    assert set(err.split()) == {"imported", "made"}


def test_samples_of_their_own_stand_in_for_the_example(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capsys, monkeypatch, f"{EXAMPLE}:small", "--samples", f"{mine}:samples", "--json")
    assert (code, json.loads(out.removeprefix("imported\n"))["samples"]) == (0, 3)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{mine}:model"], "returned no example beside the model, so --samples must say where inputs are"),
        (["{mine}:model", "--samples", "{mine}:nothing"], "`samples` must hold at least one input, got none"),
        (["{mine}:model", "--samples", "{mine}:others"], "has no attribute 'others'"),
        (["{mine}:samples"], "mine.py:samples' must return a model, or (model, example), got generator"),
        (["{mine}:three"], "mine.py:three' must return a model, or (model, example), got int"),
        (["{mine}:forgets", "--samples", "{mine}:samples"], "must return a model, or (model, example), got NoneType"),
        (
            ["{mine}:model", "--samples", "{mine}:forgets"],
            "mine.py:forgets' must return an iterable of inputs, got None",
        ),
        (["{example}:small", "--samples", "{mine}:forgets"], "must return an iterable of inputs, got NoneType"),
        (["{mine}:leaves"], "mine.py:leaves' ended the program by sys.exit(4)"),
        (["{example}:small", "--samples", "{mine}:three"], "must return an iterable of inputs, got int"),
        (["{example}:small", "--keep", "stim"], "`keep` names 'stim', the model's convolutions are 'stem', "),
        (["{example}:small", "--ranges", "best"], "`ranges` must be one of mse, largest, got 'best'"),
        (["{example}:small", "--max-layer-error", "-1"], "`max_layer_error` must be above 0 (relative L2), got -1.0"),
        (["{example}:small", "--max-workspace", "-1"], "such as 64MB or 1GiB, got '-1'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, *(word.format(mine=mine, example=EXAMPLE) for word in words))
    assert code == 2
    assert err.startswith("convwright: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("is_kept", [True, False])
def test_ctrl_c_says_how_far_it_came(
    is_kept: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("convwright.quantizing.quantize.merged", interrupted)
    monkeypatch.setattr(Store, "unkept", None if is_kept else "findings are kept in memory only")
    code, out, err = run(capsys, monkeypatch, f"{EXAMPLE}:small")
    assert (code, out) == (130, "")
    kept = "searches that were done are remembered" if is_kept else "findings are kept in memory only"
    assert err == f"convwright: stopped before the model was calibrated; {kept}\n"
