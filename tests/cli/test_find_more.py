"""``convwright find`` with ``--why`` and ``--kernels``: what is printed, JSON, and what does not go together."""

from __future__ import annotations

import json
import sys

import pytest

from convwright.backends.cudnn.library import Missing, load
from convwright.cli.main import main

SMALL = "ic4ih8oc4kh3sh2"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["convwright", "find", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.mark.first_cases(1)
@pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")
@pytest.mark.parametrize("device", ["h200", "a100", "t4"])
def test_cudnns_own_reason(device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["mb32ic256ih14oc256kh3ph1", "--dtype", "fp16", "--layout", "nhwc", "--device", device, "--why", "engine-5"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    assert out.startswith("cudnn/engine-5 cannot compute g1mb32")
    assert "\n  wDesc->dimA[1] != 1\n" in out


@pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")
@pytest.mark.parametrize(
    "words",
    [
        ("mb1ic64ih56oc64kh3ph1 dt:int8:int8:int8 tag:nhwc",),
        ("mb1ic64ih56oc64kh3ph1", "--dtype", "s8:s8:s8", "--layout", "nhwc"),
        ("--input", "1,64,56,56", "--weight", "64,64,3,3", "--padding", "1", "--dtype", "s8:s8:s8", "--layout", "nhwc"),
    ],
)
def test_engines_for_int8_elsewhere(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *words, "--device", "h200", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert " dt:int8:int8:int8 " in found["problem"]
    engines = [row for row in found["candidates"] if row["id"].startswith("cudnn/engine-")]
    assert len(engines) >= 4
    assert all(row["arithmetic"] == "int8" and row["workspace_bytes"] is not None for row in engines)


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [SMALL, "--device", "cpu", "--why", "reference/winograd", "--json"]
    code, out, _ = run(capsys, monkeypatch, *words)
    data = json.loads(out)
    assert (code, data["serves"], data["causes"]) == (0, False, [])
    assert data["reason"].startswith("stride (2, 2)")


@pytest.mark.parametrize(
    "option", [("--budget", "1"), ("--isolate",), ("--energy",), ("--kernels",), ("--max-workspace", "0")]
)
def test_what_would_be_ignored_is_a_mistake(
    option: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, SMALL, "--why", "engine-5", *option)
    assert (code, out) == (2, "")
    assert err == f"convwright: --why neither measures nor chooses, so that {option[0]} would be ignored\n"


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("cpu", "only a GPU runs kernels, and "),
        ("h200", "kernels are listed by running candidates, and NVIDIA H200 is not in this machine\n"),
    ],
)
def test_kernels_are_a_gpus(
    device: str, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, SMALL, "--device", device, "--kernels")
    assert (code, out) == (2, "")
    assert err.startswith(f"convwright: {sentence}")
    assert err.count("\n") == 1


def test_tf32_is_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for word, wanted in (("--no-tf32", False), ("--tf32", True)):
        code, out, _ = run(capsys, monkeypatch, "mb8ic64ih56oc64kh3ph1", "--device", "h200", word, "--json")
        assert code == 0
        rows = json.loads(out)["candidates"]
        assert any(row["permitted"] for row in rows if row["arithmetic"] == "tf32") == wanted
        assert any(row["permitted"] for row in rows if row["arithmetic"] == "fp32")
        assert not any(row["permitted"] for row in rows if row["arithmetic"] == "fp16-acc32")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--budget", "3"], "--budget"),
        (["--energy"], "--energy"),
        (["--isolate"], "--isolate"),
        (["--trust", "verify"], "--trust verify"),
    ],
)
def test_what_is_for_measuring_is_refused_where_nothing_is_measured(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, "ic16ih8oc16kh3", "--device", "h200", *words)
    assert code == 2
    assert f"NVIDIA H200 is not in this machine: nothing is measured, so that {name} would be ignored" in err
    code, _, err = run(capsys, monkeypatch, SMALL, "--device", "cpu", "--mode", "heuristic", *words)
    assert code == 2
    assert f"mode heuristic measures nothing, so that {name} would be ignored" in err


def test_a_mode_that_measures_is_refused_where_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, "ic16ih8oc16kh3", "--device", "h200", "--mode", "quick")
    assert code == 2
    assert "NVIDIA H200 is not in this machine: nothing is measured, so that --mode quick would be ignored" in err


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("cudnn/engine-1[bad", 2, "a configuration is written in brackets, for example cudnn/engine-38[k2=1], got"),
        ("reference/gemm[oops]", 0, "it has no such configuration; reference/gemm is one"),
    ],
)
def test_a_configuration_that_there_is_not_is_none(
    name: str, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, out, err = run(capsys, monkeypatch, "ic16ih8oc16kh3", "--device", "h200", "--why", name)
    assert ended == code
    assert said in out + err
