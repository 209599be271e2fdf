"""What is said of an engine's steps: their times, and their errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import convwright as cw
from convwright.backends.torch_native.own import torch_candidate
from convwright.core.problem import ConvProblem
from convwright.engine.engine import Engine
from convwright.engine.optimize import optimize
from convwright.engine.running.failure import is_pytorchs
from convwright.errors import BadInput
from convwright.graph.operations import Foreign
from convwright.settings import Mode

X = torch.randn(2, 4, 12, 12, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = torch.cumsum(self.one(x).relu(), 2)
        return {"y": self.two(y), "x": x}


def made(model: nn.Module) -> Engine:
    return optimize(model.eval(), X, mode=Mode.HEURISTIC)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return made(Net())


def test_a_profile_has_every_step_as_table_json_and_trace(engine: Engine, tmp_path: Path) -> None:
    profile = engine.profile(X)
    assert [step.name for step in profile.steps] == [step.name for step in engine.assignment.steps]
    assert all(step.time_us >= 0 for step in profile.steps)
    text = str(profile).splitlines()
    assert text[0].split() == ["step", "runs", "layout", "µs", "share"]
    assert text[-1] == f"all: {profile.total_us:,.1f} µs"
    assert len(text) == len(profile.steps) + 3
    assert json.loads(json.dumps(profile.to_json()))["steps"][0]["runs"] == profile.steps[0].runs
    profile.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == [step.name for step in profile.steps]
    assert events[1]["ts"] == pytest.approx(events[0]["dur"])
    engine.input.copy_(X)
    assert [step.name for step in engine.profile().steps] == [step.name for step in profile.steps]


def test_no_step_is_over_its_tolerance(engine: Engine) -> None:
    found = engine.compare(Net().eval(), X)
    assert found.first_over is None
    assert len(found.outputs) == len(found.models) == 2
    assert max(found.outputs) <= 4 * max(found.models) + 1e-6
    assert "no step is over its tolerance" in str(found)


def test_the_first_wrong_step_is_named_its_tensors_saved_and_it_can_be_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Net()
    engine = made(model)
    number = next(at for at, step in enumerate(engine.assignment.steps) if step.name.startswith("two"))
    (name,) = engine.assignment.steps[number].writes
    run, dropped = engine._program._steps[number]

    def wrong(values: list[Any]) -> None:
        run(values)
        values[engine._program.place(name)][0, 0, 0, 0] += 5.0

    engine._program._steps[number] = wrong, dropped
    found = engine.compare(model, X, save_to=tmp_path / "wrong.safetensors")
    assert found.first_over is not None
    assert found.first_over.name == engine.assignment.steps[number].name
    assert f"the first step over its tolerance is {found.first_over.name}" in str(found)
    tensors = load_file(tmp_path / "wrong.safetensors")
    assert (tensors["written.0"] - tensors["right.0"]).abs().max().item() == pytest.approx(5.0, abs=1e-4)
    assert tensors["x"].shape == (2, 8, 12, 12)
    pinned = engine.pin(found.first_over.name)
    assert pinned.assignment.steps[number].candidate is not None
    assert pinned.assignment.steps[number].candidate.id == "torch/default"
    assert pinned.compare(model, X).first_over is None


def test_only_a_step_with_a_candidate_is_pinned(engine: Engine) -> None:
    with pytest.raises(BadInput, match="no step is called 'three'"):
        engine.pin("three")
    foreign = next(step for step in engine.assignment.steps if isinstance(step.operation, Foreign))
    with pytest.raises(BadInput, match="cannot be pinned: PyTorch computes it already"):
        engine.pin(foreign.name)


def test_a_memory_report_counts_what_is_there_and_is_drawn(engine: Engine, tmp_path: Path) -> None:
    report = engine.memory_report()
    assert report.arena == engine.arena_bytes
    assert report.plan.lower_bound <= report.arena <= sum(each.nbytes for each in report.buffers) + 256 * 20
    weights = sum(each.numel() * 4 for each in engine.constants.values())
    assert weights <= report.weights <= 4 * weights
    assert report.tensors >= sum(each.nbytes for each in report.buffers if not each.is_workspace)
    assert any(name.startswith("cumsum") for name in (each.name for each in report.outside))
    assert f"weights: {report.weights:,} bytes" in str(report)
    report.draw(tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match="the name of a picture must end in"):
        report.draw(tmp_path / "memory.txt")


@pytest.mark.parametrize("looked_at", ["input", "output"])
def test_another_thread_waits_for_a_run_before_it_looks(looked_at: str) -> None:
    """The first look runs all steps in the arena."""
    engine = cw.optimize(nn.Conv2d(4, 4, 3).eval(), torch.randn(1, 4, 9, 9), mode="heuristic", store="none").clone()
    looking = Thread(target=getattr, args=(engine, looked_at), daemon=True)
    with engine.turn:  # as a run holds it
        looking.start()
        looking.join(0.3)
        assert looking.is_alive()
    looking.join(30)
    assert not looking.is_alive()


@pytest.mark.parametrize("config", [(), (("tf32", "on"),), (("tf32", "off"),)])
def test_pytorchs_own_call_is_known_with_any_configuration(engine: Engine, config: tuple[tuple[str, str], ...]) -> None:
    step = next(each for each in engine.assignment.steps if each.candidate is not None)
    own = replace(step, candidate=torch_candidate(ConvProblem.of((1, 8, 9, 9), (8, 8, 3, 3)), config))
    assert is_pytorchs(own)


def test_a_model_that_float64_breaks_is_compared() -> None:
    class Warped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            grid = nn.functional.affine_grid(torch.eye(2, 3).expand(2, 2, 3), [2, 4, 9, 9], align_corners=False)
            return nn.functional.grid_sample(self.conv(x), grid, align_corners=False)

    model = Warped().eval()
    found = made(model).compare(model, X)
    assert max(found.outputs) <= 4 * max(found.models)
    with pytest.raises(BadInput, match="the model is in training mode"):
        made(model).compare(model.train(), X)
