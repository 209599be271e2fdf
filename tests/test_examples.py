"""The programs under examples/ do what they say, and none is left untried."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

from convwright.cli.targets import load

FOLDER = Path(__file__).resolve().parents[1] / "examples"
PROGRAMS = {"first_look", "train_msd_net", "whole_network"}
# Files of functions for a command, which the tests of that command run.
TARGETS = {"advise_model", "two_calls"}
# Relative L2. On a GPU fp32 is computed in TF32 by default, whose roundoff is 2^-11.
ROUNDING = 2**-10 if torch.cuda.is_available() else 1e-6


@pytest.fixture(autouse=True)
def _as_users_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mode that holds where nobody sets one."""
    monkeypatch.delenv("CONVWRIGHT_MODE")


def test_every_example_is_known() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == PROGRAMS | TARGETS


def run(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a program prints."""
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def errors_in(printed: str, marker: str) -> list[float]:
    """The figures behind ``marker`` at the ends of lines, or between commas."""
    words = printed.replace(",", " ").split()
    return [float(words[at + 1]) for at, word in enumerate(words) if word == marker]


def test_first_look(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("first_look", capsys)
    assert "reference/gemm" in printed
    assert "conv2d chose " in printed
    found = [float(line.split()[-1]) for line in printed.splitlines() if "error against float64" in line]
    assert len(found) == 3
    assert all(0 < error < ROUNDING for error in found)
    if not torch.cuda.is_available():
        assert "cuDNN needs an NVIDIA GPU" in printed


def test_whole_network(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("whole_network", capsys)
    engine, torchs = errors_in(printed, "engine")[0], errors_in(printed, "PyTorch")[0]
    assert 0 < engine <= 2 * torchs + 1e-6


def test_train_msd_net(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a few steps; what it promises takes all of them."""
    picture = tmp_path / "found.png"
    runpy.run_path(str(FOLDER / "train_msd_net.py"))["main"](steps=3, depth=2, path=picture)
    printed = capsys.readouterr().out
    assert "% of the pixels are right" in printed
    assert "labels 100.0 % alike" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_two_calls_compute_the_same() -> None:
    one, other = (load(f"{FOLDER / 'two_calls.py'}:{name}")() for name in ("nchw", "nhwc"))
    assert one.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert (one - other).norm() / one.norm() < ROUNDING
