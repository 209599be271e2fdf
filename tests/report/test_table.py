"""The table for people: nothing that was found out is missing from it."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from convwright.core.candidate import Refusal
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.report.tables.findings import findings_data, findings_sheet, print_findings
from convwright.settings import Mode
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings
from tuning.made import CPU, PROBLEM, candidate, finding

ROUNDING = "(rounds_sums): sums of some of the products may be rounded to fewer bits before they are added up"
ROWS = [
    finding("torch/default", 100.0),
    finding("reference/gemm", 50.0, workspace_bytes=1_500_000, prepare_us=3.5),
    Finding(candidate("cudnn/fft-tiling", workspace_bytes=None), failure="failed: out of memory"),
]
REFUSALS = (Refusal("cudnn/winograd", "needs a stride of 1"),)


def found_for(device: DeviceFacts, refusals: tuple[Refusal, ...] = REFUSALS) -> Findings:
    return Findings(PROBLEM, device, Policy(), Mode.FULL, choose(ROWS, ROWS[0], Policy()), refusals, ROWS[0])


def printed(
    width: int = 200, *, refusals: bool | None = True, top: int | None = None, found: Findings | None = None
) -> str:
    out = StringIO()
    print_findings(found or found_for(profile("h200")), Console(file=out, width=width), refusals=refusals, top=top)
    return out.getvalue()


def line(name: str) -> str:
    return next(row for row in printed().splitlines() if row.startswith(name))


def test_the_problem_the_device_and_the_mode_stand_above() -> None:
    head = printed().splitlines()[:2]
    assert head[0] == PROBLEM.key
    assert "NVIDIA H200" in head[1]
    assert "mode full" in head[1]
    assert f"{PROBLEM.flops / 1e9:.3g} GFLOP" in head[1]


def test_one_row_per_candidate_the_winner_first() -> None:
    names = [row.split()[0] for row in printed().splitlines() if "/" in row.partition(" ")[0]]
    assert names == ["reference/gemm", "torch/default", "cudnn/fft-tiling"]


def test_a_row_has_times_errors_workspace_arithmetic_and_the_reason() -> None:
    row = line("reference/gemm")
    for word in ("50.00", "3.50", "1.0e-07", "1.5 MB", "fp32", "the winner: 1.87x as fast"):
        assert word in row
    assert "1.87x the winner's time" in line("torch/default")


def test_what_is_not_known_is_a_dash_and_never_a_zero() -> None:
    row = line("cudnn/fft-tiling")
    assert row.count("–") == 8
    assert "failed: out of memory" in row


def test_a_bound_on_workspace_is_marked_until_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = replace(candidate("cudnn/gemm", workspace_bytes=1_500_000), workspace_is_bound=True)
    monkeypatch.setitem(globals(), "ROWS", [ROWS[0], Finding(bounded)])
    assert "≤ 1.5 MB" in line("cudnn/gemm")
    measured = replace(finding("cudnn/gemm", 50.0, workspace_bytes=64), candidate=bounded)
    monkeypatch.setitem(globals(), "ROWS", [ROWS[0], measured])
    assert "64 B" in line("cudnn/gemm")
    assert "≤" not in line("cudnn/gemm")


def test_refusals_stand_below_with_reasons_if_wanted() -> None:
    assert "1 refused:\n  cudnn/winograd: needs a stride of 1" in printed()
    assert "refused" not in printed(refusals=False)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_names_and_times_can_be_read_at_any_width(width: int) -> None:
    """A pipe and many terminals are 80 columns wide."""
    text = printed(width)
    times = ("50.00", "100.00") if width >= 150 else ("53.50", "100.00")
    for word in ("torch/default", "reference/gemm", "cudnn/fft-tiling", *times):
        assert word in text


def test_memory_and_energy_have_columns_where_any_candidate_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "peak" not in printed()
    assert "energy" not in printed()
    measured = ROWS[1].measurement
    assert measured is not None
    known = replace(ROWS[1], measurement=replace(measured, peak_bytes=2_000_000, energy_mj=0.1234))
    monkeypatch.setitem(globals(), "ROWS", [ROWS[0], known, ROWS[2]])
    assert "energy mJ" in printed()
    assert "2 MB" in line("reference/gemm")
    assert "0.123" in line("reference/gemm")


def rows_of(text: str) -> list[str]:
    """The lines of the table itself."""
    lines = text.splitlines()
    return lines[next(index for index, line in enumerate(lines) if line.startswith("candidate")) :]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_table_keeps_names_and_reasons_and_has_no_blank_lines(width: int) -> None:
    head, *rows = rows_of(printed(width, refusals=False))
    assert "why" in head
    assert all(len(row) <= width and row.strip() for row in rows)
    assert "failed: out" in " ".join(rows)


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_table_has_the_time_that_rows_are_ordered_by(width: int) -> None:
    """Packing counts where weights change, and nothing else where the device's time is asked about."""
    head, *rows = rows_of(printed(width, refusals=False))
    assert "call µs" in head
    assert "53.50" in "".join(row for row in rows if row.startswith("reference/"[:10]))


@pytest.mark.parametrize(
    ("objective", "column", "cell"),
    [(Objective.WORKSPACE, "workspace", "1.5 MB"), (Objective.DEVICE_TIME, "call µs", "53.50")],
)
def test_it_is_another_one_for_another_objective(objective: Objective, column: str, cell: str) -> None:
    policy = Policy(objective=objective)
    found = Findings(PROBLEM, CPU, policy, Mode.FULL, choose(ROWS, ROWS[0], policy), (), ROWS[0])
    out = StringIO()
    print_findings(found, Console(file=out, width=40))
    assert column in rows_of(out.getvalue())[0]
    assert cell in out.getvalue()


def test_a_narrow_table_leaves_out_first_what_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    unmeasured = [replace(row, measurement=None, note="was not measured") for row in ROWS[:2]]
    monkeypatch.setitem(globals(), "ROWS", unmeasured)
    head = ["candidate", "workspace", "arithmetic", "limit", "µs"]
    assert rows_of(printed(80, refusals=False))[0].split() == head
    assert rows_of(printed(200, refusals=False))[0].split() == head


def test_what_is_true_of_every_row_where_nothing_was_measured_stands_once() -> None:
    note = "was not measured: it is elsewhere"
    rows = [replace(row, measurement=None, failure=None, note=note) for row in ROWS[:3]]
    narrow = replace(rows[2].candidate, arithmetic=Arithmetic.FP16_ACC32, algorithm="narrow")
    policy = Policy(arithmetic=frozenset({row.candidate.arithmetic for row in rows[:2]}))
    found_rows = [*rows[:2], replace(rows[2], candidate=narrow)]
    verdicts = choose(found_rows, None, policy)
    out = StringIO()
    found = Findings(PROBLEM, profile("h200"), policy, Mode.HEURISTIC, verdicts, (), None)
    print_findings(found, Console(file=out, width=100))
    text = out.getvalue()
    assert text.count("it is elsewhere") == 1
    assert "Nothing was measured: it is elsewhere.\n" in text
    assert "1 not allowed:\n" in text
    assert text.index("1 not allowed") < text.index(narrow.id)


def test_a_count_of_one_is_singular() -> None:
    verdicts = choose(ROWS, ROWS[0], Policy())
    device = replace(CPU, threads=1)
    out = StringIO()
    found = Findings(PROBLEM, device, Policy(), Mode.FULL, verdicts, (), ROWS[0])
    print_findings(found, Console(file=out, width=200))
    assert "1 thread ·" in out.getvalue()
    assert device.key.endswith("1 threads")


def test_it_says_which_candidates_round_partial_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "rounds_sums" not in printed()
    rounding = replace(candidate("cudnn/engine-47"), rounds_sums=True)
    monkeypatch.setattr(sys.modules[__name__], "ROWS", [*ROWS, replace(ROWS[1], candidate=rounding)])
    assert f"cudnn/engine-47 {ROUNDING}" in printed()


def test_it_says_that_a_device_cannot_hold_the_problem() -> None:
    out, large = StringIO(), ConvProblem.parse("mb2000ic256ih512oc256kh3ph1")
    found = Findings(large, profile("t4"), Policy(), Mode.HEURISTIC, choose(ROWS, None, Policy()), (), None)
    print_findings(found, Console(file=out, width=120))
    assert "Whole it cannot run there: its operands take 1,073.7 GB, Tesla T4 has" in out.getvalue()
    assert "cannot run there" not in printed()


def test_the_first_rows_alone_and_how_many_there_are() -> None:
    text = printed(top=1)
    assert "and 2 more, which --top hides" in text
    assert [row.split()[0] for row in rows_of(text)[1:2]] == ["reference/gemm"]
    assert "torch/default" not in text
    assert "--top" not in printed(top=3)


def test_a_short_search_that_compared_nothing_says_how_to_go_on() -> None:
    rows = [ROWS[0], Finding(candidate("reference/gemm"), note="was not tried: PyTorch's own call takes 24.4 ms")]
    verdicts = choose(rows, ROWS[0], Policy())
    quick = Findings(PROBLEM, CPU, Policy(), Mode.QUICK, verdicts, (), ROWS[0])
    text = printed(found=quick)
    assert "the winner: nothing else was measured" in text
    assert (
        "PyTorch's own call was compared with nothing. "
        '--mode full (mode="full") measures the other candidates.\n' in text
    )
    assert "--mode full" not in printed(found=replace(quick, mode=Mode.FULL))
    assert "--mode full" not in printed(found=replace(quick, verdicts=choose(ROWS, ROWS[0], Policy())))


def test_what_needs_a_gpu_is_counted_on_a_cpu_unless_it_is_asked_for() -> None:
    refused = (*REFUSALS, Refusal("triton/direct", "needs a GPU"), Refusal("split-batch", "a batch of 1"))
    on_cpu = found_for(CPU, refused)
    brief, whole = printed(refusals=None, found=on_cpu), printed(refusals=True, found=on_cpu)
    assert "1 refused:\n  split-batch: a batch of 1\n2 more need an NVIDIA GPU; " in brief
    assert "NVIDIA GPU; --refusals (refusals=True) lists them\n" in brief
    assert "triton/direct" not in brief
    assert "3 refused:" in whole
    assert "triton/direct: needs a GPU" in whole
    assert "refused" not in printed(refusals=False, found=on_cpu)
    assert "3 refused:" in printed(refusals=None, found=found_for(profile("h200"), refused))


def test_a_wide_table_has_the_time_of_a_call_where_packing_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    head, first, *_ = rows_of(printed(200))
    assert head.split()[1:3] == ["call", "µs"]
    assert "53.50" in first
    monkeypatch.setitem(globals(), "ROWS", [ROWS[0], ROWS[2]])
    head = rows_of(printed(200))[0]
    assert "call µs" not in head
    assert "pack µs" not in head, "it is empty"


def test_rows_as_data_and_as_markdown() -> None:
    best, own, failed = findings_data(found_for(CPU))
    assert (best["candidate"], best["call_us"], best["device_us"], best["pack_us"], best["won"]) == (
        "reference/gemm", 53.5, 50.0, 3.5, True,
    )  # fmt: skip
    assert own["device_low_us"] < own["device_us"] < own["device_high_us"]
    assert failed["device_us"] is None
    assert failed["reason"] == "failed: out of memory"
    head, _, *rows = findings_sheet(found_for(CPU), 200).markdown().splitlines()
    assert head.startswith("| candidate | call µs | device µs | ± % |")
    assert [row.split()[1] for row in rows] == ["reference/gemm", "torch/default", "cudnn/fft-tiling"]
