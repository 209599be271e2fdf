"""The steps of an engine as a table, as data, and those of some layers alone."""

from __future__ import annotations

from io import StringIO

import pytest
import torch
from rich.console import Console
from torch import nn

import convwright as cw
from convwright.report.tables.steps import print_steps, steps_data, steps_sheet

MODEL = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()


@pytest.fixture(scope="module")
def planned() -> cw.PlannedEngine:
    engine = cw.optimize(MODEL, torch.zeros(1, 4, 12, 12), plan_only=True, device="h200")
    assert isinstance(engine, cw.PlannedEngine)
    return engine


def printed(engine: cw.PlannedEngine, width: int, **options: object) -> list[str]:
    out = StringIO()
    print_steps(engine, Console(file=out, width=width), **options)  # type: ignore[arg-type]
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_table_fits_and_keeps_the_time_and_what_runs(planned: cw.PlannedEngine, width: int) -> None:
    lines = printed(planned, width)
    table = lines[: lines.index("")]
    assert all(len(line) <= width for line in table)
    assert {"step", "runs", "µs", "memory"} <= set(table[0].split())
    assert ("why" in table[0]) == (width == 160)
    assert "planned for NVIDIA H200" in lines[lines.index("") + 1]


class Sums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).cumsum(1)


def test_memory_of_a_step_is_its_result_and_workspace_or_at_least_its_result() -> None:
    engine = cw.optimize(Sums().eval(), torch.zeros(10, 25, 10, 10), plan_only=True, device="h200")
    data = {row["runs"]: row["workspace_bytes"] for row in steps_data(engine)}
    shown = {row["runs"]: row["memory"] for row in steps_sheet(engine).rows}
    assert shown.keys() == data.keys()
    assert {shown[runs] for runs, workspace in data.items() if workspace is None} == {"≥ 100 kB"}
    assert {shown[runs] for runs, workspace in data.items() if workspace == 0} == {"100 kB"}


def test_layers_are_chosen_by_the_names_that_a_step_joins(planned: cw.PlannedEngine) -> None:
    names = [step.name for step in planned.assignment.steps]
    assert len(names) > 1
    assert [row["step"] for row in steps_data(planned)] == names
    part = names[0].partition("+")[0]
    assert [row["step"] for row in steps_data(planned, part)] == names[:1]
    assert f"and {len(names) - 1} more, which --top hides" in printed(planned, 160, top=1)
    assert steps_sheet(planned, part).markdown().count("\n") == 2
    with pytest.raises(cw.BadInput, match=r"^no layer is called like 'x\*'; there are "):
        steps_data(planned, "x*")
