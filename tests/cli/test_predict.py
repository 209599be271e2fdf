"""``convwright predict`` and ``convwright learn``."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from convwright import strict_json
from convwright.cli.main import main
from prediction.made_observations import observations

TEXT = "mb8ic64ih28oc64kh3ph1"
Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*words: str | Path) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["convwright", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_a_table_for_a_device_that_is_not_here(run: Run) -> None:
    code, out, _ = run("predict", TEXT, "--dtype", "fp16", "--device", "a100", "--no-refusals")
    assert not code
    assert "NVIDIA A100" in out
    assert "predicted, nothing ran" in out
    assert "a measured time may differ by a factor of four" in out
    assert "refused" not in out


def test_a_shipped_model_says_how_far_it_was_off(run: Run) -> None:
    code, out, _ = run("predict", TEXT, "--dtype", "fp16", "--device", "h200", "--no-refusals")
    assert not code
    assert "Times are predicted by a shipped model of" in out
    assert "on problems that it had not seen" in out


def test_the_same_as_data(run: Run) -> None:
    _, out, _ = run("predict", TEXT, "--device", "a100", "--json", "--max-workspace", "0")
    found = json.loads(out)
    assert found["model"] == {"origin": "data sheet", "rows": None, "error": None}
    first = found["candidates"][0]
    assert (first["id"], first["allowed"]) == (found["choice"], True)
    assert first["predicted"]["time_us"]["low"] < first["predicted"]["time_us"]["value"]
    assert any("bytes of workspace, 0 are allowed" in each["reason"] for each in found["candidates"])


def test_what_a_time_is_made_of(run: Run) -> None:
    _, out, _ = run("predict", TEXT, "--device", "h200", "--explain", "--algorithm", "torch/default")
    assert out.startswith("torch/default")
    assert "physical estimate" in out
    _, out, _ = run("predict", TEXT, "--device", "a100", "--explain", "--json")
    made = json.loads(out)
    assert made["predicted_us"] == pytest.approx(made["physics_us"] * made["factors"][0][1])


def test_a_sweep_is_printed_and_drawn(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "sweep.png"
    code, out, _ = run("predict", TEXT, "--device", "h200", "--sweep", "ih=28:30", "--plot", picture)
    assert not code
    assert [line.partition(":")[0] for line in out.splitlines()[:3]] == ["ih=28", "ih=29", "ih=30"]
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--plot", "a.png"), "--plot draws a sweep: give --sweep too"),
        (("--sweep", "ih=8:9", "--explain"), "--explain is about one problem, --sweep about several"),
        (("--algorithm", "cudnn/gemm"), "--algorithm says which candidate is explained: give --explain too"),
        (("--model", "nowhere.npz"), "nowhere.npz cannot be read as a time model"),
        (("--sweep", "ih=8:9", "--plot", "a.txt"), "the name of a picture must end in .png, .svg, .pdf, got 'a.txt'"),
        (("--objective", "beauty"), "objective must be one of"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, words: tuple[str, ...], said: str) -> None:
    code, out, error = run("predict", TEXT, "--device", "h200", *words)
    assert (code, out) == (2, "")
    assert said in error


def test_learning_prints_how_far_the_model_is_off(run: Run, tmp_path: Path) -> None:
    kept, out = tmp_path / "kept.jsonl.gz", tmp_path / "h200.npz"
    with gzip.open(kept, "wt") as file:
        file.writelines(strict_json.dumps(each.to_json()) + "\n" for each in observations(26))
    code, said, _ = run("learn", "--device", "h200", "--observations", kept, "--out", out)
    assert not code
    assert "NVIDIA H200: a model of 104 measured candidates" in said
    assert {"MAPE", "covered"} <= set(said.split())
    _, said, _ = run("predict", TEXT, "--device", "h200", "--model", out, "--no-refusals")
    assert "given model of 104 measured candidates" in said


def test_a_store_without_findings_is_one_sentence(run: Run, tmp_path: Path) -> None:
    code, _, error = run("learn", "--device", "h200", "--store", tmp_path / "new.sqlite")
    assert code == 2
    assert "needs at least 100 measured candidates, got 0" in error
