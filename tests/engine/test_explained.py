"""What is said of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import convwright as cw
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.finding import Interval
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.tensor_spec import Layout
from convwright.engine.engine import Engine
from convwright.engine.optimize import optimize
from convwright.engine.planning import searched_times
from convwright.engine.planning.assignment import Assignment, RunnerUp
from convwright.engine.planning.reasons import with_reasons
from convwright.engine.planning.ways import Timed, Way
from convwright.graph.groups import Group
from convwright.graph.operations import Operation
from convwright.report.tables.steps import print_steps
from convwright.settings import Mode
from convwright.tuning.find import find
from convwright.tuning.findings import Findings


def test_each_step_has_a_row_and_the_sums_agree() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)).eval()
    engine = optimize(model, torch.randn(1, 4, 8, 8), mode=Mode.HEURISTIC)
    text = engine.explain()
    for step in engine.assignment.steps:
        assert any(line.startswith(step.name) for line in text.splitlines())
    assert f"{len(engine.assignment.steps)} steps (1 convolution, " in text
    assert f"the engine: at least {engine.assignment.steps_us:,.0f} µs expected, the sum of its steps" in text
    assert f"arena: {engine.arena_bytes:,} bytes" in text


def test_what_was_not_measured_is_marked_and_nothing_is_copied_in_vain() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).eval()
    engine = optimize(model, torch.randn(1, 4, 8, 8), mode=Mode.HEURISTIC)
    assert [step.name for step in engine.assignment.steps] == ["0+1"]
    _heading, row, *_ = engine.explain().splitlines()
    assert "≥1.0" in row.split()
    assert "1 step (1 convolution, 0 copies)\nthe engine: at least 1 µs expected" in engine.explain()
    assert "not measured: 1 of 1; ≥ marks" in engine.explain()
    assert row.endswith("expected to be the fastest by estimate")
    assert "for comparison" not in engine.explain(), "least times cannot be compared"


def test_one_line_says_what_the_engine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2)).eval()
    expected = _with_step_times(monkeypatch, model, 1.0)
    lines = expected.explain().splitlines()
    (own,) = (line for line in lines if line.startswith("the engine: "))
    (other,) = (line for line in lines if line.startswith("for comparison, planning expected "))
    assert own == f"the engine: {expected.assignment.steps_us:,.0f} µs expected, the sum of its steps"
    assert f"{expected.assignment.modelled_us:,.0f} µs for this plan before its steps were timed in it" in other
    assert "if each step is chosen alone" in other
    assert other.endswith("in one layout")
    assert "too busy" not in expected.explain()


def test_times_that_other_work_disturbed_are_not_to_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2)).eval()
    engine = _with_step_times(monkeypatch, model, 1e4)
    assert engine.explain().startswith("the machine was too busy to measure: planning expected ")
    assert "stop other work and plan the model again before you trust these times" in engine.explain()
    out = StringIO()
    print_steps(engine, Console(file=out, width=200))
    said = out.getvalue()
    assert said.startswith("the machine was too busy to measure: planning expected ")
    assert said.count("the machine was too busy") == said.count("for comparison") == 1


def test_a_step_whose_search_was_disturbed_is_not_called_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(*args: object, **options: object) -> Findings:
        return replace(find(*args, **options), verdicts=())  # type: ignore[arg-type]

    monkeypatch.setattr(searched_times, "find", disturbed)
    engine = optimize(nn.Conv2d(4, 8, 3).eval(), torch.randn(1, 4, 8, 8), mode=Mode.QUICK)
    (step,) = (step for step in engine.assignment.steps if step.name == "conv2d")
    assert step.reason == "expected to be the fastest by estimate"
    busy = f"the machine was too busy to measure 1 of {len(engine.assignment.steps)} steps; stop"
    assert engine.explain().startswith(busy)


def _with_step_times(monkeypatch: pytest.MonkeyPatch, model: nn.Module, factor: float) -> Engine:
    """An engine whose steps take ``factor`` times as long as planning expects."""

    def step_times(self: Engine, inputs: Sequence[Tensor]) -> list[float]:
        return [factor * step.time_us.value for step in self.assignment.steps]

    monkeypatch.setattr(Engine, "step_times", step_times)
    return optimize(model, torch.randn(1, 4, 8, 8), mode=Mode.QUICK)


def test_each_step_says_why_and_what_comes_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With times that are given: convolutions like channels last, what lies between them does not."""
    timed = Timed.candidates

    def candidates(
        self: Timed, operation: Operation, like: Operation | None = None, times: float = 1.0
    ) -> tuple[tuple[Candidate | None, Interval], ...]:
        found = timed(self, operation, like, times)
        (*_, last) = operation.operands.values()
        is_plain = last.layout is Layout.NCHW
        least = 50.0 + (0.0 if is_plain else 0.5) if isinstance(operation, PointwiseProblem) else 100.0 * (1 + is_plain)
        return tuple((candidate, Interval(least, least, least)) for candidate, _ in found)

    monkeypatch.setattr(Timed, "candidates", candidates)

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.vector_norm(self.second(self.first(x).exp()), dim=1)

    engine = optimize(Mixed().eval(), torch.randn(1, 4, 8, 8), mode=Mode.HEURISTIC)
    reasons = {step.name: step.reason for step in engine.assignment.steps}
    assert reasons["first"] == "the fastest by predictions or earlier measurements"
    assert reasons["copy of x"] == "first reads it in nhwc"
    assert reasons["exp"] == "0.5 µs slower than in nchw, but needs fewer copies"
    for reason in reasons.values():
        assert reason in engine.explain()
    engine.save(tmp_path)
    loaded = cw.load(tmp_path).assignment
    assert {step.name: (step.reason, step.runner_up) for step in loaded.steps} == {
        step.name: (step.reason, step.runner_up) for step in engine.assignment.steps
    }
    assert (loaded.greedy_us, loaded.uniform_us) == (engine.assignment.greedy_us, engine.assignment.uniform_us)


def test_the_next_best_computes_the_same() -> None:
    model = nn.Conv2d(4, 8, 3, padding=1).eval()
    (step,) = optimize(model, torch.randn(1, 4, 8, 8), mode=Mode.HEURISTIC).assignment.steps
    assert step.candidate is not None
    group = Group((step.name,), step.operation, step.reads, step.writes)

    def way(candidate: Candidate, operation: Operation, us: float) -> Way:
        return Way(group, operation, (), (), candidate, Interval(us, us, us))

    others = [replace(step.candidate, algorithm=name) for name in ("second", "third", "elsewhere")]
    chosen = replace(step, time_us=Interval(10.0, 10.0, 10.0))
    in_one = Assignment({}, (chosen,), (), (), {}, {}, {}, 10.0)
    ways = [
        way(step.candidate, step.operation, 10.0),
        *(way(each, step.operation, us) for each, us in zip(others[:2], (12.0, 15.0), strict=True)),
        way(others[2], others[2].problem.asking(Direction.BACKWARD_DATA), 11.0),
    ]
    (explained,) = with_reasons(in_one, ways).steps
    assert explained.runner_up == RunnerUp("torch/second", 1.2)
    assert explained.reason == "the fastest"
    assert explained == chosen  # why it runs is no part of what runs
