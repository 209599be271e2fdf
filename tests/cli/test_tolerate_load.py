"""`--tolerate-load`: on a busy machine comparisons rest on ratios, and one sentence says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from convwright.cli.main import main

Run = Callable[..., tuple[int, str, str]]
WHY = "unstable: 2 rounds were timed, other work had the cores for 60% of the time: stop it"
SAID = "since other work had the cores for 60% of the time; comparisons rest on ratios of rounds side by side."


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in a folder that has a model, on a machine that is always busy."""
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.doubt", lambda timing, look_us: WHY)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(
        "import torch\ndef pair(): return torch.nn.Conv2d(3, 4, 3).eval(), torch.randn(1, 3, 9, 9)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["convwright", *words])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return command


BUSY = [
    ["find", "ic8ih12oc8kh3", "--mode", "quick"],
    ["bench", "ic8ih12oc8kh3"],
    ["tune", "own.py:pair", "--mode", "quick"],
]


@pytest.mark.parametrize("words", BUSY, ids=[words[0] for words in BUSY])
def test_one_sentence_says_what_comparisons_rest_on(words: list[str], run: Run) -> None:
    code, out, _ = run(*words, "--tolerate-load", "--budget", "0.2")
    assert code == 0
    assert out.count(SAID) == 1
    assert "stop it" not in out
    code, out, _ = run(*words, "--budget", "0.2")
    assert code == 0
    assert "tolerate_load=True (--tolerate-load) compares all the same, by ratios of rounds side by side." in out


def test_a_benchmark_is_not_ambiguous_for_the_load_alone(run: Run) -> None:
    """Nothing was timed beside PyTorch's own call that may be faster, so that nothing is open."""
    words = ["bench", "ic8ih12oc8kh3", "--json", "--budget", "0.2"]
    for tolerate in ([], ["--tolerate-load"]):
        (result,) = json.loads(run(*words, *tolerate)[1])["results"]
        assert result["unstable"] == WHY
        assert result["tolerates_load"] == bool(tolerate)
        if not tolerate:
            assert result["outcome"] == "ambiguous"
        elif result["choice"] != result["baseline"]:
            assert result["rounds"] > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("find ic8ih12oc8kh3 --mode heuristic", "mode heuristic measures nothing, so that --tolerate-load would be"),
        ("bench ic8ih12oc8kh3 --mode heuristic", "mode heuristic measures nothing, so that --tolerate-load would be"),
        ("tune own.py:pair --plan-only", "--plan-only measures nothing, so that --tolerate-load would be"),
        ("advise own.py:pair --mode heuristic", "mode heuristic measures nothing, so that `tolerate_load` would be"),
    ],
)
def test_where_nothing_is_measured_no_load_is_tolerated(words: str, sentence: str, run: Run) -> None:
    code, _, err = run(*words.split(), "--tolerate-load")
    assert (code, err.splitlines()[-1]) == (2, f"convwright: {sentence} ignored")
