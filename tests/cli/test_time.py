"""``convwright time``: a table, JSON, verdicts, and one sentence with exit code 2 for a user's mistake."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from convwright.cli.main import main
from convwright.core.finding import Interval
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timing import Timing

SOURCE = """
import torch
def once(): return torch.ones(2000).exp()
def often():
    for _ in range(8): y = torch.ones(2000).exp()
    return y
def nothing(): sum(range(2000))
def prints(): print("a word of its own")
def fails(): raise ValueError("no [bold]luck[/]")
def ends(): raise SystemExit(3)
def ends_later(left=[2]):
    left[0] -= 1
    if not left[0]: raise SystemExit("enough")
async def waits(): return torch.ones(2000).exp()
def hands_out(): yield torch.ones(2000).exp()
async def hands_out_later(): yield torch.ones(2000).exp()
"""
QUICK = ["--budget", "0.05"]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "made.py").write_text(SOURCE)
    return str(tmp_path / "made.py")


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line in this process."""
    monkeypatch.setattr(sys, "argv", ["convwright", "time", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_a_table(made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, f"{made}:once", *QUICK)
    assert (code, err) == (0, "")
    head, row = out.splitlines()[:2]
    assert head.split() == ["call", "µs", "±", "%", "overhead", "µs", "samples"]
    assert row.startswith(f"{made}:once ")
    assert 0.5 < float(row.split()[1].replace(",", "")) < 1e4
    measured, versions = out.splitlines()[-2:]
    assert device_facts("cpu").name in measured
    assert re.search(r" · measured [\d-]{10} · cache hot · \d+ samples, 95 % intervals$", measured)
    assert versions.startswith(f"torch {torch.__version__} · oneDNN ")


def test_what_is_said_of_a_call_has_its_name(
    made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(made).write_text(SOURCE.replace("once", "a"))
    _, out, _ = run(capsys, monkeypatch, f"{made}:a", "--budget", "0.01", "--precision", "0.001")
    assert re.search(rf"^(may be )?unstable: {re.escape(made)}:a: known to ±", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("halfwidth", "disturbed", "words"),
    [
        (3.0, False, "may be unstable"),
        (24.0, False, "may be unstable"),
        (26.0, False, "unstable"),
        (3.0, True, "unstable"),
    ],
)
def test_unstable_is_what_a_search_would_not_believe(
    halfwidth: float, disturbed: bool, words: str, made: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from convwright.measuring import timer

    us, said = Interval(100.0, 100.0 - halfwidth, 100.0 + halfwidth), "known to less only: give a larger budget"
    timed = Timing(us, None, 50, (100.0,) * 50, said, 0, disturbed=disturbed)
    monkeypatch.setattr(timer, "measure_together", lambda calls, **_: dict.fromkeys(calls, timed))
    _, out, _ = run(capsys, monkeypatch, f"{made}:once", *QUICK)
    assert f"\n{words}: {made}:once: {said}\n" in out


def test_calls_are_compared_under_a_load_with_one_sentence_about_it(
    made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from convwright.measuring import timer

    why = "2 rounds, too many to discard, were disturbed: other work had the cores for 60% of the time: stop it"
    slow, fast = (
        Timing(Interval(us, 10.0, 900.0), None, 50, (us,) * 50, why, 0, disturbed=True) for us in (90.0, 30.0)
    )
    timings = {f"{made}:often": slow, f"{made}:once": fast}
    monkeypatch.setattr(timer, "measure_together", lambda calls, **_: {name: timings[name] for name in calls})
    code, out, _ = run(capsys, monkeypatch, *timings, "--tolerate-load", *QUICK)
    assert code == 0
    assert "fast: takes 0.333 times as long, 95 % 0.333 to 0.333, 50 rounds" in out
    assert out.count("other work") == 1
    assert (
        "since other work had the cores for 60% of the time; comparisons rest on ratios of rounds side by side." in out
    )
    _, out, _ = run(capsys, monkeypatch, *timings, *QUICK)
    assert out.count("other work") == 1
    assert "\nThe machine is too busy to measure: other work had the cores for 60% of the time: stop it." in out
    _, out, _ = run(capsys, monkeypatch, f"{made}:once", *QUICK)
    assert f"\nunstable: {made}:once: {why}\n" in out, "a call alone has no ratio, so --tolerate-load is no remedy"
    code, _, err = run(capsys, monkeypatch, f"{made}:once", "--tolerate-load", *QUICK)
    assert (code, err) == (
        2, "convwright: --tolerate-load compares two calls or more: give another target\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "overhead_us", "cells"),
    [
        (Interval(28611.07, 28000.0, 29000.0), -4450.0, ["28,611.1", "1.7", "–"]),
        (Interval(28611.07, 28000.0, 29000.0), 1200.0, ["28,611.1", "1.7", "–"]),
        (Interval(28611.07, 28610.0, 28612.0), 1200.0, ["28,611.1", "0.0", "1,200.0"]),
        (Interval(2.5, 2.49, 2.51), 1.234, ["2.50", "0.4", "1.23"]),
    ],
)
def test_figures_are_written_as_elsewhere_and_what_may_be_0_is_a_dash(
    call: Interval, overhead_us: float, cells: list[str], made: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from convwright.measuring import timer

    timed = Timing(call, overhead_us, 50, (2.5,) * 50, None, 0)
    monkeypatch.setattr(timer, "measure_together", lambda calls, **_: dict.fromkeys(calls, timed))
    _, out, _ = run(capsys, monkeypatch, f"{made}:once", *QUICK)
    assert out.splitlines()[1].split()[1:] == [*cells, "50"]
    assert out.splitlines()[2].startswith("overhead µs: what timing itself costs once in each sample")


def test_ctrl_c_ends_it_with_one_line(
    made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from convwright.measuring import timer

    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(timer, "measure_together", interrupted)
    code, out, err = run(capsys, monkeypatch, f"{made}:once", *QUICK)
    assert (code, out) == (130, "")
    assert err.startswith("convwright: stopped before all was timed")
    assert err.count("\n") == 1


def test_json(made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{made}:once", f"{made}:often", "--budget", "1", "--threads", "1", "--json"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    found = json.loads(out)
    once, often = (found["timings"][f"{made}:{name}"] for name in ("once", "often"))
    assert once["call_us"]["low"] <= once["call_us"]["value"] <= once["call_us"]["high"]
    assert once["conditions"]["threads"] == "1"
    assert once["peak_extra_bytes"] is None
    (verdict,) = found["verdicts"].values()
    assert verdict["outcome"] == "slow"
    assert verdict["ratio"]["value"] == pytest.approx(often["call_us"]["value"] / once["call_us"]["value"], rel=0.3)


def test_what_a_target_prints_is_no_part_of_the_json(
    made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{made}:prints", "--device", "cpu", "--json", *QUICK)
    assert code == 0
    assert json.loads(out)["timings"]
    assert "a word of its own" in err


def test_a_comparison_is_a_column(
    made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(
        capsys, monkeypatch, f"{made}:once", f"{made}:often", f"{made}:nothing", "--device", "cpu", *QUICK
    )
    head, first, second, _third = out.splitlines()[:4]
    assert code == 0
    assert "beside the first" in head
    assert " times as long, 95 % " in second
    assert "times" not in first


def test_what_was_asked_for_and_cannot_be_known_is_said(
    made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from convwright.measuring import timer
    from convwright.measuring.energy import NoCounter

    monkeypatch.setattr(timer, "counter_of", lambda _: NoCounter())
    monkeypatch.setattr(timer, "peak_extra_bytes", lambda call, device: 3 * 2**20)
    code, out, _ = run(capsys, monkeypatch, f"{made}:once", "--energy", "--memory", *QUICK)
    assert code == 0
    assert "3072" in out
    assert out.splitlines()[-1] == "unknown here, since nothing that can be read counts it: energy"


def test_two_states_of_a_project_are_compared_with_one_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name, size in (("old", 1), ("new", 1000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.py").write_text("from sizes import SIZE\ndef f(): sum(range(100 * SIZE))")
        (tmp_path / name / "sizes.py").write_text(f"SIZE = {size}")
    words = [f"{tmp_path}/old/run.py:f", f"{tmp_path}/new/run.py:f", "--device", "cpu", "--json", *QUICK]
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    (verdict,) = json.loads(out)["verdicts"].values()
    assert verdict["ratio"]["value"] > 10


def test_an_import_that_may_be_either_states_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.py").write_text("def f(): import sizes")
        (tmp_path / name / "sizes.py").write_text("")
    words = [f"{tmp_path}/old/run.py:f", f"{tmp_path}/new/run.py:f", "--device", "cpu", *QUICK]
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"convwright: 'sizes' may be {tmp_path}/old/sizes.py or {tmp_path}/new/sizes.py: ")


def test_a_cold_cache(made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, f"{made}:once", "--cache", "cold", *QUICK)
    assert code == 0
    assert "cache cold" in out


MISTAKES = [
    (["hello"], "'hello'"),
    (["there_is_none:f"], "ModuleNotFoundError"),
    (["{made}:absent"], "no attribute 'absent'"),
    (["{made}:fails"], "raised ValueError: no [bold]luck[/]"),
    (["{made}:ends"], "made.py:ends' is called without arguments and ended the program by sys.exit(3)"),
    (["{made}:once", "{made}:ends_later"], "made.py:ends_later' ended the program by sys.exit('enough')"),
    (["{made}:waits"], "made.py:waits' must do its work when it is called, and returned an unfinished coroutine: "),
    (
        ["{made}:once", "{made}:hands_out"],
        "made.py:hands_out' must do its work when it is called, and returned an unfi",
    ),
    (["{made}:hands_out_later"], "and returned an unfinished async_generator: "),
    (["{made}:once", "{made}:once"], "each target can be given once"),
    (["{made}:once", "--budget", "0"], "--budget takes a finite number above 0, got 0"),
    (["{made}:once", "--budget", "nan"], "--budget takes a finite number above 0, got nan"),
    (["{made}:once", "--precision", "0"], "--precision takes a finite number above 0, got 0"),
    (["{made}:once", "--precision", "nan"], "--precision takes a finite number above 0, got nan"),
    (["{made}:once", "--cache", "network"], "warm"),
    (["{made}:once", "--cache", "cool"], "'cool'"),
    (["{made}:once", "--cache", "cold", "--energy"], "hot cache"),
    (["{made}:once", "--threads", "0"], "`threads`"),
    (["{made}:once", "--threads", "100000"], "`threads` must be at most"),
    (["{made}:once", "--device", "gtx480"], "'gtx480'"),
]


@pytest.mark.parametrize(("words", "named"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], named: str, made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *(word.format(made=made) for word in words))
    assert (code, out) == (2, "")
    assert err.startswith("convwright: ")
    assert err.count("\n") == 1
    assert named in err
