"""What tuning a model found: how much of it is remembered, and a table for terminals of any width."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from convwright.advising.advice import Advice
from convwright.advising.advice_text import title
from convwright.advising.tuned import Tuned, TunedProblem, tune
from convwright.core.direction import Direction
from convwright.core.finding import Finding, Interval, PairedRatio
from convwright.core.policy import Policy
from convwright.engine.capture.distinct import Posed
from convwright.engine.capture.layers import LayerCall
from convwright.report.tables.tuned import print_tuned, tuned_data, tuned_sheet
from convwright.settings import Mode
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings
from convwright.tuning.kernels import BEING_COMPILED
from tuning.made import CPU, PROBLEM, candidate, finding

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tune.md"
OWN = finding("torch/default", 14_801.4)
FAST = finding("cudnn/engine-38", 19_888.9, (("k2", 8), ("k13", 1), ("k14", 4), ("k18", 0)))
LOOKED = Finding(candidate("reference/gemm"), note="unstable: a call took 32 ms at a first look: wait")
SHORT = Finding(candidate("reference/gemm"), note="out of memory")
WAITING = Finding(candidate("triton/direct"), note=BEING_COMPILED)


def shaken(row: Finding) -> Finding:
    assert row.measurement is not None
    return replace(row, measurement=replace(row.measurement, doubt="unstable: 2 rounds: wait"))


def problem(name: str, *rows: Finding) -> TunedProblem:
    found = Findings(PROBLEM, CPU, Policy(), Mode.QUICK, choose(rows, rows[0], Policy()), (), rows[0])
    return TunedProblem(Posed(PROBLEM, (LayerCall(name, PROBLEM, False, 1),)), found, 0.25)


def printed(*problems: TunedProblem, width: int = 300) -> list[str]:
    out = StringIO()
    print_tuned(Tuned(CPU, Mode.QUICK, problems, (), 5.2), Console(file=out, width=width))
    return out.getvalue().splitlines()


def test_what_a_choice_gains_stands_with_what_it_rests_on() -> None:
    fast = finding("a/b", 7_000.0)
    assert fast.measurement is not None
    ratio = PairedRatio(OWN.candidate.id, Interval(0.5, 0.4, 0.625), 31)
    paired = problem("a", OWN, replace(fast, measurement=replace(fast.measurement, paired=ratio)))
    head, row = printed(paired)[1:3]
    assert "torch µs  times faster          95 %  rounds" in head
    assert "14,801.4          2.00  1.60 to 2.50      31" in row
    (data,) = tuned_data(Tuned(CPU, Mode.QUICK, (paired,), (), 5.2))
    assert (data["times_faster"], data["times_faster_low"], data["times_faster_high"]) == (2.0, 1.6, 2.5)
    assert data["rounds"] == 31
    assert "times faster" not in printed(DONE)[1], "PyTorch's own call is the choice"


DONE, SHAKEN, OPEN = problem("a", OWN), problem("b", shaken(OWN)), problem("c", OWN, LOOKED)
QUIET, COMPILES = "run it again when the machine is quiet.", "was waiting for kernels to compile"
CASES = [
    ([DONE], "The result is remembered."),
    ([DONE, DONE], "All are remembered."),
    ([SHAKEN], f"The result is not remembered, since the search was disturbed: {QUIET}"),
    ([DONE, DONE, SHAKEN, OPEN], f"2 of 4 are remembered; the others were disturbed: {QUIET}"),
    ([DONE, OPEN], f"1 of 2 is remembered; the other was disturbed: {QUIET}"),
    ([SHAKEN, OPEN], f"None of 2 is remembered; all were disturbed: {QUIET}"),
    (
        [DONE, problem("d", OWN, WAITING)],
        f"1 of 2 is remembered; the other {COMPILES}: run it again.",
    ),
    (
        [DONE, SHAKEN, problem("d", OWN, SHORT)],
        f"1 of 3 is remembered; 1 was disturbed, 1 was short of time or memory: {QUIET}",
    ),
]


@pytest.mark.parametrize(("problems", "said"), CASES, ids=[said for _, said in CASES])
def test_the_last_line_says_how_many_are_remembered_and_why_others_are_not(
    problems: list[TunedProblem], said: str
) -> None:
    assert printed(*problems)[-1].endswith(f"shared workspace: 0 B. {said}")


def test_in_python_too_a_count_of_one_is_singular() -> None:
    assert repr(Tuned(CPU, Mode.QUICK, (DONE,), (), 5.2)) == "<Tuned: 1 problem on this CPU, 1 thread, 0 known before>"
    assert "on this CPU, 1 thread: torch/default of 1 candidate>" in repr(DONE.findings)
    advice = Advice(CPU, Mode.QUICK, False, (), None, None, None, (), (), ())
    assert title(advice).startswith("this CPU, 1 thread · ")
    assert repr(advice) == "<Advice: 0 problems on this CPU, 1 thread, 0 suggestions>"


def test_nothing_is_called_remembered_that_no_file_keeps() -> None:
    out, why = StringIO(), "findings are kept in memory only, since a disk is full"
    print_tuned(Tuned(CPU, Mode.QUICK, (DONE, SHAKEN), (), 5.2, why), Console(file=out, width=300))
    assert out.getvalue().endswith(f"shared workspace: 0 B. What was measured now is not remembered: {why}.\n")


def table(width: int) -> list[str]:
    lines = printed(problem("stages.0.conv1", FAST), problem("stages.1.shortcut.0", FAST), width=width)
    return lines[1 : next(index for index, line in enumerate(lines) if "rounds" in line or "samples" in line)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 300])
def test_a_table_fits_and_says_which_layer_it_is_of_and_what_it_takes(width: int) -> None:
    head, *rows = table(width)
    assert all(len(row) <= width for row in (head, *rows))
    assert head.split()[0] == "layers"
    assert "19,888.9" in rows[0]
    assert ("search s" in head) == (width == 300)
    assert "torch µs" in head or width < 60


def test_a_configuration_is_cut_short_where_there_is_less_room() -> None:
    assert "cudnn/engine-38[k2=8,k13=1,k14=4,k18=0]" in table(300)[1]
    assert "cudnn/engine-38[k2=8,k13=1,k14=4,…]" in table(140)[1]


def test_a_plan_fits_and_keeps_the_workspace() -> None:
    model = torch.nn.Conv2d(64, 64, 3, padding=1).to("meta")
    planned = tune(model, torch.empty(1, 64, 56, 56, device="meta"), device="h200", plan_only=True)
    out = StringIO()
    print_tuned(planned, Console(file=out, width=80))
    head, *rows = out.getvalue().splitlines()[1:]
    assert {"layers", "candidate", "workspace"} <= set(head.split())
    assert all(len(row) <= 80 for row in (head, *rows))


def test_the_table_on_the_page_is_what_the_command_prints() -> None:
    page = PAGE.read_text()
    versions = next(line.strip() for line in page.splitlines() if line.startswith("    nothing was measured · "))
    layers = torch.nn.ModuleList(
        [
            torch.nn.Conv2d(64, 64, 3, padding=1, bias=False),
            torch.nn.Conv2d(512, 512, 3, padding=1, bias=False),
            torch.nn.Conv2d(256, 512, 1, 2, bias=False),
        ]
    ).to("meta")

    class Shown(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
            return [layer(x) for layer, x in zip(self.layers, inputs, strict=True)]

    inputs = tuple(torch.empty(1, c, n, n, device="meta") for c, n in ((64, 56), (512, 7), (256, 14)))
    out = StringIO()
    print_tuned(tune(Shown(), inputs, device="h200", plan_only=True), Console(file=out, width=149))
    lines = out.getvalue().splitlines()
    if versions not in lines:
        pytest.skip("other versions are installed than those of the page")
    told = {cells(line)[1]: cells(line)[3:] for line in lines if " ic" in line}
    shown = {cells(line)[1]: cells(line)[3:] for line in page.splitlines() if re.match(r" {4}stages\.\S+.* ic\d", line)}
    assert shown == told, "convwright tune examples/advise_model.py:resnet_like --device h200 --plan-only prints it"
    first = next(iter(shown.values()))
    assert f"`{first[0]}` means" in " ".join(page.split())
    assert lines[-1].rpartition(";")[2] in page


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def tuned_in_directions() -> Tuned:
    gradient = replace(PROBLEM, direction=Direction.BACKWARD_WEIGHT)
    second = problem("d1.conv", FAST)
    posed = Posed(gradient, (LayerCall("d1.conv", gradient, False, 1),))
    return Tuned(CPU, Mode.QUICK, (problem("stem", OWN), replace(second, posed=posed)), (), 5.2)


@pytest.mark.parametrize("width", [60, 80, 300])
def test_directions_are_shown_where_rows_differ_in_them(width: int) -> None:
    out = StringIO()
    print_tuned(tuned_in_directions(), Console(file=out, width=width))
    _, head, first, *rest = out.getvalue().splitlines()
    assert "direction" in head
    assert "forward" in first
    assert any("backward_weight" in line for line in rest)
    assert "direction" not in table(width)[0]


def test_rows_as_data_and_as_markdown() -> None:
    first, second = tuned_data(tuned_in_directions())
    assert (first["layers"], first["direction"], first["call_us"]) == ("stem", "forward", 14_801.4)
    assert (second["layers"], second["direction"]) == ("d1.conv", "backward_weight")
    assert "| stem | forward |" in tuned_sheet(tuned_in_directions(), 300).markdown()
