"""The kernels of measured candidates: which are looked at, where nothing runs, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rich.console import Console

import convwright as cw
from convwright.api import launches
from convwright.api.launches import with_kernels
from convwright.errors import BackendError, BadInput
from convwright.measuring.kernels import Kernel
from convwright.report.tables.kernels import print_kernels
from convwright.store.store import Store

KERNEL = Kernel("made", (2, 3, 1), (128, 1, 1), 40, 1024, 1.5)


def measured() -> cw.Findings:
    return cw.find("ic2ih4oc2kh1", device="cpu", mode="full", store=Store.open(None), budget_us=1e6)


def seeing(monkeypatch: pytest.MonkeyPatch, look: Callable[..., tuple[Kernel, ...]]) -> None:
    monkeypatch.setattr(launches, "kernels_of", look)


def test_all_that_was_measured_is_run_and_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, told = [], []

    def look(call: Callable[[], torch.Tensor], device: torch.device) -> tuple[Kernel, ...]:
        ran.append(call())
        return (KERNEL, KERNEL)

    seeing(monkeypatch, look)
    before = measured()
    found = with_kernels(before, lambda *step: told.append(step))
    ids = [v.finding.candidate.id for v in before.verdicts if v.finding.measurement is not None]
    assert found.kernels == dict.fromkeys(ids, (KERNEL, KERNEL))
    assert before.kernels is None
    assert "kernels" not in before.to_json()
    assert all(y.shape == before.problem.y.shape for y in ran)
    assert told == [(done, len(ids), "kernels") for done in range(len(ids))]
    assert found.to_json()["kernels"][ids[0]][0]["grid"] == (2, 3, 1)
    assert hash(found) is not None


def test_what_cannot_be_run_again_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(call: Callable[[], torch.Tensor], device: torch.device) -> tuple[Kernel, ...]:
        if "TorchPlan" in repr(call):
            raise RuntimeError("out of memory")
        return (KERNEL,)

    seeing(monkeypatch, look)
    found = with_kernels(measured())
    assert found.kernels is not None
    assert found.kernels["torch/default"] is None
    assert found.to_json()["kernels"]["torch/default"] is None


def test_a_profiler_that_sees_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    seeing(monkeypatch, lambda call, device: ())
    with pytest.raises(BackendError, match=r"saw no kernel on .*: it needs CUPTI"):
        with_kernels(measured())


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("h200", "kernels are listed by running candidates, and NVIDIA H200 is not in this machine"),
        ("cpu", "only a GPU runs kernels, and .* is none"),
    ],
)
def test_where_none_are_launched_that_is_said_before_anything_runs(device: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        cw.find("ic2ih4oc2kh1", device=device, kernels=True)


def test_a_table_with_a_row_for_each_launch(capsys: pytest.CaptureFixture[str]) -> None:
    print_kernels({"cudnn/engine-0": (KERNEL, KERNEL), "torch/default": None}, Console(width=200))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["candidate", "kernel", "grid", "block", "registers", "shared", "µs"]
    assert lines[1] == ["cudnn/engine-0", "made", "2x3x1", "128x1x1", "40", "1.02", "kB", "1.50"]
    assert lines[2] == lines[1][1:]
    assert lines[3][:6] == ["torch/default", "could", "not", "be", "run", "again"]


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_kernels({}, Console(width=200))
    assert capsys.readouterr().out == "Nothing was measured, so no kernels can be listed.\n"
