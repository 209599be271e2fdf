"""What the functions give back is printed as the commands print it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import convwright as cw

MODEL = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
EXAMPLE = torch.zeros(1, 4, 12, 12)


def test_findings_with_and_without_what_was_refused(capsys: pytest.CaptureFixture[str]) -> None:
    found = cw.find("ic8ih9oc8kh3", device="h200", mode="heuristic")
    cw.show(found)
    whole = capsys.readouterr().out
    assert found.problem.key in whole
    assert "refused:" in whole
    assert all(verdict.finding.candidate.id in whole for verdict in found.verdicts)
    cw.show(found, refusals=False)
    brief = capsys.readouterr().out
    assert "refused:" not in brief
    assert whole.startswith(brief)


def test_refusals_that_need_a_gpu_are_counted_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    found = cw.find("ic8ih9oc8kh3", device="cpu", mode="heuristic")
    cw.show(found)
    brief = capsys.readouterr().out
    assert "need an NVIDIA GPU; --refusals (refusals=True) lists them" in brief
    assert "cudnn/winograd" not in brief
    cw.show(found, refusals=True)
    assert "cudnn/winograd" in capsys.readouterr().out


def test_a_predicted_network(capsys: pytest.CaptureFixture[str]) -> None:
    found = cw.predict(MODEL.eval(), EXAMPLE, device="h200", store="none")
    cw.show(found)
    said = capsys.readouterr().out
    assert [line.rstrip() for line in said.splitlines()] == str(found).splitlines()
    assert "without running anything" in said
    assert all(layer.name in said for layer in found.layers)
    assert f"{found.memory_bytes:,} bytes" in said


def test_an_engine_and_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    model = MODEL.eval()
    cw.show(cw.optimize(model, EXAMPLE, mode="heuristic", store="none"))
    assert "the engine: at least " in capsys.readouterr().out
    planned = cw.optimize(model, EXAMPLE, plan_only=True, device="h200", store="none")
    cw.show(planned)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == planned.explain().splitlines()


def test_a_model_that_was_tuned_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    cw.show(cw.tune(MODEL, EXAMPLE, device="cpu", plan_only=True))
    assert "candidates" in capsys.readouterr().out
    cw.show(cw.advise(MODEL, EXAMPLE, mode="heuristic"))
    assert "layers" in capsys.readouterr().out


def test_a_model_in_int8(capsys: pytest.CaptureFixture[str]) -> None:
    made = cw.quantize(MODEL, [torch.randn(1, 4, 12, 12)], keep=["2"])
    cw.show(made)
    said = capsys.readouterr().out
    assert "1 of 2 convolutions in int8" in said
    assert "2: is to be kept" in said


def test_anything_else_is_refused() -> None:
    with pytest.raises(
        cw.BadInput,
        match=r"^`show` takes a result of `find`, `predict`, `optimize`, `advise`, `tune` or `quantize`, got 3$",
    ):
        cw.show(3)  # type: ignore[arg-type]
