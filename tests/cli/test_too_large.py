"""A problem that no device holds is told by every command that lists what there is for one elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from convwright.cli.main import main

TEXT = "mb64ic2048ih512oc8kh1"
MODEL = """
import torch

def made():
    layers = torch.nn.Conv2d(2048, 8, 1, bias=False), torch.nn.Conv2d(8, 8, 1, bias=False)
    return torch.nn.Sequential(*layers).to("meta"), torch.empty(64, 2048, 512, 512, device="meta")
"""
SAID = "hole it cannot run there: its operands take 138.0 GB, Tesla T4 has 15.8 GB of memory.\n"


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (["find", TEXT], "W"),
        (["explain", TEXT], "  W"),
        (["bench", TEXT], f"{TEXT}: w"),
        (["tune", "MODEL", "--plan-only"], "0: w"),
        (["advise", "MODEL"], "0: w"),
    ],
)
def test_what_no_device_holds_is_told(
    words: list[str], before: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.py"
    path.write_text(MODEL)
    words = [f"{path}:made" if word == "MODEL" else word for word in words]
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["convwright", *words, "--device", "t4"])
    with pytest.raises(SystemExit) as done:
        main()
    out = capsys.readouterr().out
    assert not done.value.code
    assert out.count("hole it cannot run there") == 1
    assert f"\n{before}{SAID}" in out
