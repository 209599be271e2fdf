"""``convwright advise`` on the example's models: text, JSON, and one sentence for a mistake."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from convwright.cli.main import main
from convwright.settings import Mode

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "advise_model.py"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["convwright", "advise", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_a_table_and_a_summary(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{EXAMPLE}:resnet_like", "--device", "h200", "--top", "3"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    assert "stages.0.conv1" in out
    assert "ic64oc64ih56kh3ph1" in out
    assert "8 more distinct problems are not shown." in out
    assert "20 convolutions, 11 of them distinct: none of these candidates takes less than" in out
    assert "NVIDIA H200 is not in this machine" in out


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{EXAMPLE}:small_in_training", "--backward", "--mode", "heuristic", "--json"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["backward"]
    assert {"stem", "stages.1.shortcut.0"} <= {name for layer in data["layers"] for name in layer["layers"]}
    assert data["layers"][0]["now_us"] is None


def test_measured_on_this_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("_MODEL_BUDGET_US", "_WHATIF_BUDGET_US"):
        monkeypatch.setattr(f"convwright.advising.advise.{name}", {Mode.QUICK: 100_000.0})
    own = tmp_path / "own.py"
    own.write_text("import torch\n\n\ndef made():\n    return torch.nn.Conv2d(2, 4, 1), torch.ones(1, 2, 4, 4)\n")
    code, out, _ = run(capsys, monkeypatch, f"{own}:made")
    assert code == 0
    assert "1 convolution takes" in out
    assert "of the model's" in out


@pytest.mark.parametrize("where", [["--mode", "heuristic"], ["--device", "h200"]])
def test_of_a_model_without_convolutions_one_sentence_is_said(
    where: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text("import torch\n\n\ndef made():\n    return torch.nn.Linear(4, 4), torch.ones(1, 4)\n")
    code, out, _ = run(capsys, monkeypatch, f"{own}:made", *where)
    assert code == 0
    assert out.splitlines()[1:] == ["No supported convolution runs in this model."]


@pytest.mark.parametrize("command", ["advise", "tune"])
def test_before_the_first_search_it_says_what_it_does(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own: Path
) -> None:
    from contextlib import contextmanager

    told: list[str] = []

    @contextmanager
    def bar(first: str = "") -> Iterator[Callable[[int, int, str], None]]:
        told.append(first)
        yield lambda done, total, what: told.append(what)

    monkeypatch.setattr("convwright.report.words.progress.progress_bar", bar)
    monkeypatch.setattr(sys, "argv", ["convwright", command, f"{own}:made", "--mode", "heuristic"])
    with pytest.raises(SystemExit):
        main()
    assert told[:3] == ["loading PyTorch", "making the model", "recording the model"]


def test_what_a_model_prints_is_no_part_of_the_json(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{own}:made", "--mode", "heuristic", "--json")
    assert code == 0
    assert json.loads(out)["mode"] == "heuristic"
    assert err.split() == ["imported", "made", "ran"]


def test_a_model_that_does_not_run_is_one_sentence(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{own}:narrow", "--mode", "heuristic", "--json")
    assert (code, out) == (2, "")
    sentence = err.removeprefix("imported\n")
    assert sentence.startswith("convwright: the model does not run on its example: RuntimeError: Given groups=1, ")
    assert sentence.count("\n") == 1


MISTAKES = [
    (["nowhere.py:made"], "nowhere.py"),
    ([str(EXAMPLE)], "function"),
    ([f"{EXAMPLE}:ResNetLike"], "widths"),
    (["torch.hub:get_dir"], "must return (model, example), got str"),
    ([f"{EXAMPLE}:torch.get_num_threads"], "is built in or of Python's standard library, so it does not make a model"),
    (["builtins:breakpoint"], "'builtins:breakpoint' is built in or of Python's standard library, so it does not make"),
    ([f"{EXAMPLE}:small", "--mode", "slow"], "'slow'"),
    ([f"{EXAMPLE}:small", "--device", "gtx480"], "'gtx480'"),
    ([f"{EXAMPLE}:small", "--top", "0"], "`top`"),
]


@pytest.mark.parametrize(("words", "named"), MISTAKES, ids=[" ".join(words[:1])[-30:] for words, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, out) == (2, "")
    assert err.startswith("convwright: ")
    assert err.count("\n") == 1
    assert named in err
