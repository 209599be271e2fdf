"""A run in int8 is timed beside the model as it is, so that one sees where it is slower."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import convwright as cw
from convwright.core.finding import Interval
from convwright.measuring.compare import Outcome
from convwright.measuring.paired import Paired
from convwright.quantizing import run_times
from convwright.quantizing.quantized import Quantized
from convwright.report.tables.quantized import print_quantized

X = torch.randn(2, 3, 12, 12)


def printed(made: Quantized) -> str:
    said = io.StringIO()
    print_quantized(made, Console(file=said, width=500))
    return said.getvalue()


def test_both_are_timed_and_the_model_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "BUDGET_US", 1e6)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    made = cw.quantize(model, [X])
    data = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert (made.times is None) == (made.untimed is not None)
    if made.times is None:  # other work on the machine
        assert "stop other work" in str(made.untimed)
    else:
        assert made.times.before_us.value > 0
        assert made.times.rounds > 0
        assert made.times.ratio.value > 1, "on a CPU int8 is computed by readable reference algorithms"
        assert data["times"]["before_us"]["value"] == made.times.before_us.value
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("outcome", "words"), [(Outcome.SLOW, "int8 is slower here"), (Outcome.FAST, "int8 is faster")]
)
def test_the_table_says_which_is_faster(outcome: Outcome, words: str) -> None:
    ratio = Interval(2.0, 1.6, 2.5) if outcome is Outcome.SLOW else Interval(0.5, 0.4, 0.625)
    times = Paired(Interval(100.0, 99.0, 101.0), Interval(200.0, 199.0, 201.0), ratio, outcome, 31)
    said = printed(replace(cw.quantize(nn.Conv2d(3, 4, 3), [X]), times=times, untimed=None))
    assert "A run on the first sample takes 100 µs as it is and 200 µs in int8: " in said
    assert "31 rounds side by side" in said
    assert words in said


def test_where_nothing_is_in_int8_nothing_is_timed() -> None:
    made = cw.quantize(nn.Conv2d(3, 4, 3), [X], max_layer_error=1e-9)
    assert (made.times, made.untimed, made.to_json()["times"]) == (None, None, None)
    assert "A run on the first sample" not in printed(made)


def test_why_there_are_no_times_is_said() -> None:
    class Once(nn.Module):
        """It fails at the runs that are timed."""

        runs: list[int] = []  # noqa: RUF012  copies share it

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.runs.append(1)
            if len(self.runs) > 10:
                raise ValueError("enough")
            return self.conv(x)  # type: ignore[no-any-return]

    made = cw.quantize(Once(), [X])
    assert made.times is None
    assert made.untimed is not None
    assert "ValueError: enough" in made.untimed
    assert "The time of a run could not be measured: ValueError: enough" in printed(made)


def test_the_command_prints_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from convwright.cli.main import main

    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(
        "import torch\ndef pair(): return torch.nn.Conv2d(3, 4, 3), torch.randn(1, 3, 9, 9)\n"
    )
    monkeypatch.setattr(sys, "argv", ["convwright", "quantize", f"{tmp_path / 'own.py'}:pair"])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr().out
    assert not done.value.code
    assert re.search("A run on the first sample takes |The time of a run could not be measured: ", said)


BUSY = "known to ±9% only: other work had the cores for 53% of the time (load average 7 on 2 cores): "


def test_a_busy_machine_is_said_once_without_a_remedy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    own, timed = run_times.measure_together, Interval(0.0, -1.0, 1.0)
    why = f"{BUSY}give a larger budget, or stop other work on the machine; 9 rounds were disturbed: stop it"

    def disturbed(*calls: Any, **asked: Any) -> dict[str, Any]:
        return {name: replace(each, call_us=timed, unstable=why) for name, each in own(*calls, **asked).items()}

    monkeypatch.setattr(run_times, "measure_together", disturbed)
    made = cw.quantize(nn.Conv2d(3, 4, 3), [X])
    said = printed(made).splitlines()[-1]
    assert said == f"The time of a run could not be measured: {BUSY}stop other work on the machine."
    times = Paired(Interval(1, 1, 1), Interval(2, 2, 2), Interval(2, 1.6, 2.5), Outcome.SLOW, 31, why)
    said = printed(replace(made, times=times, untimed=None)).splitlines()[-1]
    assert "int8 is slower here. The machine is too busy to measure times, since other work had the cores" in said
    assert said.endswith("; comparisons rest on ratios of rounds side by side.")
