"""`convwright predict` of a model, and `convwright optimize --plan-only`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.cli.choices import Precision, WholePrecision, precision_of
from convwright.cli.main import main

Run = Callable[..., tuple[int, str, str]]

MODEL = """
import torch

def small():
    print("a model is made")
    layers = torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    return torch.nn.Sequential(*layers).eval(), torch.ones(2, 16, 16, 16)
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Exit code, stdout and stderr of `convwright …`, in a folder that has a model."""
    (tmp_path / "models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["convwright", *words])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return command


def test_a_table_of_layers_and_totals(run: Run) -> None:
    code, out, _ = run("predict", "models.py:small", "--device", "h200", "--dtype", "fp16")
    assert code == 0
    layers = nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    model, x = nn.Sequential(*layers).eval().half(), torch.ones(2, 16, 16, 16).half()
    printed = [line.rstrip() for line in out.splitlines()]
    assert printed == ["a model is made", *str(cw.predict(model, x, device="h200")).splitlines()]
    columns = ["step", "runs", "type", "layout", "µs", "between", "memory", "known", "limit"]
    assert printed[1].split()[: len(columns)] == columns
    assert "planned for NVIDIA H200, without running anything" in out
    assert "predicted: " in out
    _, rows, _ = run("predict", "models.py:small", "--device", "h200", "--dtype", "fp16", "--csv")
    assert {"result_bytes", "workspace_bytes"} <= set(rows.splitlines()[0].split(","))


def test_json_alone_is_on_stdout(run: Run) -> None:
    code, out, err = run("predict", "models.py:small", "--device", "h200", "--batch", "8", "--json")
    found = json.loads(out)
    assert code == 0
    assert "a model is made" in err
    assert set(found["time_us"]) == {"value", "low", "high"}
    assert found["time_us"]["low"] < found["time_us"]["value"] < found["time_us"]["high"]
    assert all(set(found[figure]) == {"value", "low", "high"} for figure in ("power_w", "energy_mj"))
    assert found["memory_bytes"] > 8 * 16 * 16 * 16 * 4
    assert all("mb8" in step["operation"] for step in found["steps"])


@pytest.mark.parametrize("kind", [WholePrecision, Precision])
@pytest.mark.parametrize(
    ("alias", "precision"), [("half", "fp16"), ("float16", "fp16"), ("FP16", "fp16"), ("bfloat16", "bf16")]
)
def test_a_precision_has_the_aliases_of_a_dtype(alias: str, precision: str, kind: Any) -> None:
    assert precision_of(kind, alias) is kind(precision)


@pytest.mark.parametrize("command", [("predict",), ("optimize", "--plan-only")], ids=["predict", "optimize"])
def test_commands_take_an_alias_as_the_precision(command: tuple[str, ...], run: Run) -> None:
    words = (*command, "models.py:small", "--device", "h200", "--precision")
    shown, half, other = (run(*words, precision) for precision in ("fp16", "half", "bfloat16"))
    assert shown[0] == other[0] == 0
    assert half == shown != other
    code, out, err = run(*words, "float8")
    assert (code, out) == (2, "")
    assert err.startswith("convwright: --precision must be one of fp16, bf16, tf32")
    assert err.endswith(", got 'float8'\n")


def test_a_plan_goes_to_a_folder(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(
        "optimize", "models.py:small", "--plan-only", "--device", "h200", "--dtype", "fp16", "--out", "plan"
    )
    assert code == 0
    assert "planned for NVIDIA H200" in out
    assert sorted(each.name for each in (tmp_path / "plan").iterdir()) == ["plan.json", "weights.safetensors"]
    code, _, err = run("run", "plan", "--device", "cpu")
    assert code == 1
    assert "plan was planned from predictions for NVIDIA H200" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("predict", "ic8ih8oc8kh3", "--batch", "2"), "--batch is of a network (module:function)"),
        (("predict", "models.py:small", "--layout", "nhwc"), "--layout is of a problem, and a network was given"),
        (("predict", "models.py:small", "--batch", "0"), "`batch` must be a whole number above 0, or None, got 0"),
        (("predict", "models.py:small", "--device", "abacus"), "got 'abacus'"),
        (("optimize", "models.py:small", "--device", "h200"), "h200 is a device to plan for with --plan-only"),
        (("optimize", "models.py:small", "--plan-only", "--buckets", "1,2"), "so that --buckets would be ignored"),
        (("optimize", "models.py:small", "--plan-only", "--kernels", "--out", "x"), "so that --kernels would be"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, words: tuple[str, ...], said: str) -> None:
    code, _, err = run(*words)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["--explain", "--deterministic", "--objective=energy"])
def test_options_of_a_problem_are_refused_for_a_network(run: Run, option: str) -> None:
    code, out, err = run("predict", "models.py:small", "--device", "h200", option)
    assert (code, out) == (2, "")
    assert err == (
        f"convwright: {option.partition('=')[0]} is of a problem, and a network was given: leave it out, or give the "
        "problem of one layer (`--json` has it as `operation`)\n"
    )


def test_totals_of_some_layers_and_of_all_are_named(run: Run) -> None:
    _, out, _ = run("predict", "models.py:small", "--device", "h200", "--layer", "2")
    _, data, _ = run("predict", "models.py:small", "--device", "h200", "--json")
    steps = json.loads(data)["steps"]
    (time_us,) = (step["time_us"]["value"] for step in steps if step["name"] == "2")
    lines = out.splitlines()
    place = lines.index(f"steps like '2': 1 of {len(steps)} steps, {time_us:,.1f} µs together")
    assert lines[place + 1] == "the whole network:"
    assert any(line.startswith("predicted: ") for line in lines[place + 2 :])
    _, whole, _ = run("predict", "models.py:small", "--device", "h200")
    assert "the whole network:" not in whole
