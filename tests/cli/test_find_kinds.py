"""``convwright find`` and ``explain`` of problems that are no convolutions."""

from __future__ import annotations

import json
import sys

import pytest

from convwright.cli.main import main

TEXT = 'pointwise "relu(a + b)" mb2ic4ih8'


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["convwright", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--mode", "heuristic", "--device", "cpu", "--dtype", "fp16", "--layout", "channels-last"]
    code, out, err = run(capsys, monkeypatch, "find", f"{TEXT} b:c,fp32", *words)
    assert (code, err) == (0, "")
    assert out.startswith('pointwise "relu(a + b)" mb2ic4ih8iw8 dt:fp16 tag:nhwc b:c,fp32\n')
    assert "torch/default" in out


def test_a_record(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "find", TEXT, "--mode", "heuristic", "--device", "cpu", "--json")
    record = json.loads(out)
    assert (code, record["problem"]) == (0, 'pointwise "relu(a + b)" mb2ic4ih8iw8 dt:fp32 tag:nchw')
    assert record["candidates"][0]["id"] == "torch/default"


def test_pooling(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--mode", "heuristic", "--device", "cpu", "--dtype", "bf16", "--layout", "nhwc", "--refusals"]
    code, out, err = run(capsys, monkeypatch, "find", "pool max mb2ic4ih9 kh3sh2ph1", *words)
    assert (code, err) == (0, "")
    assert out.startswith("pool max mb2ic4ih9iw9 kh3kw3sh2sw2ph1pw1dh0dw0 dt:bf16 tag:nhwc\n")
    assert "torch/into" in out
    assert "triton/pool" in out


def test_a_resize(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "resize linear mb2ic4ih8 oh13",
        "--device",
        "cpu",
        "--mode",
        "quick",
        "--layout",
        "channels-last",
        "--refusals",
    )
    code, out, err = run(capsys, monkeypatch, "find", *words)
    assert (code, err) == (0, "")
    assert out.startswith("resize linear mb2ic4ih8iw8 oh13ow13 dt:fp32 tag:nhwc\n")
    assert "torch/default" in out
    assert "triton/resize: " in out
    code, _, err = run(capsys, monkeypatch, "find", "resize cubic mb2ic4ih8 oh13")
    assert code == 2
    assert "a resize is written like resize nearest mb32ic64ih28 oh56" in err


def test_an_explanation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "explain", TEXT, "--device", "cpu")
    assert code == 0
    assert "`convwright find 'pointwise \"relu(a + b)\" mb2ic4ih8' --device cpu`" in out
    assert "conv2d" not in out


def test_a_reason(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "find", TEXT, "--device", "h200", "--why", "torch/default")
    assert code == 0
    assert out.startswith('torch/default cannot compute pointwise "relu(a + b)"')


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((TEXT, "--direction", "backward_data"), "a pointwise problem's options are dt, tag and its operands a, b"),
        ((TEXT, "--epilogue", "relu"), "got 'ep'"),
        ((f"{TEXT} dt:fp16", "--dtype", "fp32"), "dt is given twice"),
        (("pool max ic4ih8 kh3ph2",), "padding of a pool must be at most half of the window, got 2 for 3 elements"),
        (("pool max ic4ih8 kh3", "--epilogue", "relu"), "a pool's options are dt, tag, ceil, include_pad and divisor"),
        (("reduce mb2ic4",), "no kind of problem is called 'reduce'"),
    ],
)
def test_what_does_not_belong_to_a_kind(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, "find", *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
