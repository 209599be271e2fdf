"""Amounts of memory on the command line, with and without a unit."""

from __future__ import annotations

import sys
from typing import get_type_hints

import pytest

from convwright.cli.main import app, main
from convwright.cli.workspace import MaxWorkspace, nbytes

AMOUNTS = {
    "0": 0, "4096": 4096, "8B": 8, "512kB": 512_000, "512KB": 512_000, "64mb": 64_000_000, "64 MB": 64_000_000,
    "1.5GB": 1_500_000_000, "1TB": 10**12, "1KiB": 1024, "0.5MiB": 1 << 19, "1GIB": 1 << 30, "2tib": 1 << 41,
}  # fmt: skip


@pytest.mark.parametrize(("text", "amount"), AMOUNTS.items(), ids=AMOUNTS.keys())
def test_amounts_as_people_write_them(text: str, amount: int) -> None:
    assert nbytes(text) == amount


NO_AMOUNTS = ["", "MB", "-1", "-1MB", "1.5", "1.", "1e9", "64M", "64Mb!", "1iB", "64PB", "\u0663MB", "9" * 30]


@pytest.mark.parametrize("text", NO_AMOUNTS)
def test_what_is_no_amount_is_said_in_one_sentence(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["convwright", "find", "ic4ih6oc4kh3", f"--max-workspace={text}"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"with a unit such as 64MB or 1GiB, got {text!r}" in err


def test_all_commands_with_the_option_take_the_same() -> None:
    hints = {each.name: get_type_hints(each.callback, include_extras=True) for each in app.registered_commands}
    options = {name: hint["max_workspace"] for name, hint in hints.items() if "max_workspace" in hint}
    assert set(options) == {"advise", "bench", "emit-c", "explain", "find", "optimize", "predict", "quantize", "tune"}
    assert all(option == MaxWorkspace for option in options.values())
