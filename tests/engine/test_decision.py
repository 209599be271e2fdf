"""A decision for a network is used again while all that it rests on is the same, and never otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import convwright as cw
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.engine import decision, optimize
from convwright.engine.decision import Decision
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.passes.listed import passed
from convwright.engine.precision.standard import OwnError
from convwright.errors import Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode, Trust, settings
from convwright.store.store import Store
from engine.test_beside_model import SLOW

X = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(1))
NETWORK = "SELECT body FROM plan WHERE problem LIKE 'network %'"
EDIT = "UPDATE plan SET body = ? WHERE problem LIKE 'network %'"


def model(channels: int = 8, activation: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, channels, 3), activation or nn.ReLU(), nn.Conv2d(channels, 4, 1), nn.Softsign()
    return nn.Sequential(*layers).eval()


class Builds:
    """Builds engines with one store, and counts how often a network was planned."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.planned, plan = Store.open(path), 0, optimize.fastest_in_place

        def counted(*given: Any) -> Engine:
            self.planned += 1
            return plan(*given)

        monkeypatch.setattr(optimize, "fastest_in_place", counted)
        # Other work on the machine must not decide what is remembered.
        monkeypatch.setattr(optimize, "disturbed", lambda assignment: iter(()))
        monkeypatch.setattr(optimize, "beside_model", lambda *given: None)

    def __call__(self, built: nn.Module | None = None, x: Tensor = X, **options: Any) -> Engine:
        made: Engine = cw.optimize(model() if built is None else built, x, store=self.store, **options)
        return made

    def plans(self, built: nn.Module | None = None, x: Tensor = X, **options: Any) -> int:
        """How often the network is planned in another build, whose engine computes what the model computes."""
        before, built = self.planned, model() if built is None else built
        made = self(built, x, **options)
        loose = {"atol": 0.05, "rtol": 0.05} if "precision" in options else {}
        assert_close(made(x), built(x).detach(), **loose)
        return self.planned - before

    @property
    def record(self) -> dict[str, Any]:
        """The only decision in the store."""
        ((text,),) = self.store.transaction(lambda connection: connection.execute(NETWORK).fetchall())
        return dict(json.loads(text))

    def edit(self, change: Callable[[str], str]) -> None:
        text = change(json.dumps(self.record))
        self.store.transaction(lambda connection: connection.execute(EDIT, (text,)))

    @property
    def problem(self) -> tuple[str, str]:
        """A problem that the decision rests on, and its device."""
        return next(iter(self.record["findings"])), device_facts("cpu").key


@pytest.fixture(scope="module")
def one_build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Engine]:
    """A store after one build, and the engine."""
    path = tmp_path_factory.mktemp("store") / "findings.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        builds = Builds(path, patch)
        made = builds()
        builds.store.close()
    assert builds.planned == 1
    return path, made


@pytest.fixture
def built(one_build: tuple[Path, Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builds:
    return Builds(Path(copy(one_build[0], tmp_path)), monkeypatch)


def test_a_second_build_plans_nothing_and_says_and_computes_the_same(
    one_build: tuple[Path, Engine], built: Builds
) -> None:
    first, second = one_build[1], built()
    assert built.planned == 0
    assert torch.equal(first(X), second(X))
    assert second.arena_bytes == first.arena_bytes
    for mine, theirs in zip(second.assignment.steps, first.assignment.steps, strict=True):
        assert (mine.candidate, mine.reason, mine.runner_up) == (theirs.candidate, theirs.reason, theirs.runner_up)
        assert 0 < mine.time_us.low == mine.time_us.high
    assert second.assignment.steps_us != first.assignment.steps_us, "steps are timed again"
    for name in ("modelled_us", "greedy_us", "uniform_us"):
        assert getattr(second.assignment, name) == getattr(first.assignment, name)
    assert "for comparison, planning expected" in second.explain()


def test_other_weights_need_no_other_plan(built: Builds) -> None:
    other = model()
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    assert built.plans(other) == 0


@pytest.mark.parametrize("changed", [
    {"policy": Policy(max_error=3.0)}, {"policy": Policy(max_workspace_bytes=4096)}, {"mode": "predict-top"},
    {"memory_budget": 1 << 20}, {"precision": "bf16"}, {"x": X.to(memory_format=torch.channels_last)},
    {"x": X[..., :9].contiguous()}, {"built": model(channels=6)}, {"built": model(activation=nn.SiLU())},
])  # fmt: skip
def test_another_question_is_planned_anew(built: Builds, changed: dict[str, Any]) -> None:
    assert built.plans(**changed) > 0
    assert built.plans(**changed) == 0, "it is remembered as well"


def test_other_flags_of_pytorch_are_another_question(built: Builds) -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        assert built.plans() == 1
        assert built.plans() == 0


def test_what_is_to_be_verified_is_planned_anew(built: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "settings", lambda: replace(settings(), trust=Trust.VERIFY))
    assert built.plans() == 1


@pytest.mark.parametrize("name", ["whole_hash", "torch"])
def test_other_versions_plan_anew(built: Builds, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer:
        __version__ = "99"

    monkeypatch.setattr(decision, name, Newer if name == "torch" else lambda root: "another source")
    assert built.plans() == 1
    assert built.plans() == 0


def test_a_new_finding_about_one_of_its_problems_plans_anew(built: Builds) -> None:
    built.store.record("another problem", device_facts("cpu").key, "torch/default", "1", None, "it failed")
    assert built.plans() == 0
    built.store.record(*built.problem, "reference/direct", "1", None, "it failed")
    assert built.plans() == 1
    assert built.plans() == 0


def test_a_quarantine_plans_anew(built: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    with built.store.trying(*built.problem, "reference/direct", "1"):
        assert built.plans() == 0, "its process still lives"
        monkeypatch.setattr("convwright.process.Process.is_alive", lambda self: False)
        assert built.plans() == 1


@pytest.mark.parametrize("damage", [
    lambda text: "", lambda text: text[: len(text) // 2], lambda text: "[]", lambda text: "{}",
    lambda text: text.replace("torch/", "nobody/"), lambda text: text.replace('"steps": [', '"steps": [3, '),
    lambda text: text.replace('"candidate": "', '"candidate": null, "other": "'),
    lambda text: text.replace('"constants": {"', '"constants": {"no'),
])  # fmt: skip
def test_a_damaged_decision_is_made_again(built: Builds, damage: Callable[[str], str]) -> None:
    built.edit(damage)
    assert built.plans() == 1
    assert built.plans() == 0


def test_a_plan_that_computes_something_else_is_found_by_its_outputs(built: Builds) -> None:
    def swapped(text: str) -> str:
        record = json.loads(text)
        first = next(step for step in record["plan"]["steps"] if "ep:bias+relu" in step["operation"])
        first["operation"] = first["operation"].replace("ep:bias+relu", "ep:bias")
        return json.dumps(record)

    built.edit(swapped)
    assert built.plans() == 1


def test_an_engine_that_is_not_exact_or_cannot_be_built_is_planned_anew(
    built: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, failing in ((OwnError, "objection", False), (Engine, "__init__", True)):
        once, true = iter([0]), getattr(owner, name)

        def fails_once(self: Any, *given: Any, once: Any = once, true: Any = true, failing: bool = failing) -> Any:
            if next(once, None) is None:
                return true(self, *given)
            if failing:
                raise Refused("there is no such kernel")
            return "output 0 has an error"

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails_once)
            assert built.plans() == 1


def test_an_engine_that_is_slower_than_its_model_is_planned_anew(
    built: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimize, "beside_model", lambda *given: replace(SLOW, unstable="other work ran"))
    assert built.plans() == 0
    monkeypatch.setattr(optimize, "beside_model", lambda *given: SLOW)
    assert built.plans() == 1


def test_what_other_work_disturbed_or_is_slower_is_not_remembered(
    built: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.store.transaction(lambda connection: connection.execute(EDIT, ("",)))
    with monkeypatch.context() as patch:
        patch.setattr(optimize, "disturbed", lambda assignment: iter(["the machine was too busy"]))
        assert built.plans() == 1
    with monkeypatch.context() as patch:
        patch.setattr(optimize, "beside_model", lambda *given: SLOW)
        assert built.plans() == 1
    assert (built.plans(), built.plans()) == (1, 0)


def test_a_plan_that_the_workspace_of_today_forbids_is_made_again(
    built: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int | None]()

    def objection(candidate: Candidate, policy: Policy) -> str:
        asked.append(policy.max_workspace_bytes)
        return "needs more"

    decided = Decision.of(
        passed(exported(model(), (X,), (X,)).network).network.graph, device_facts("cpu"), Policy(), Mode.QUICK,
        built.store, tf32=None, memory_budget=None,
    )  # fmt: skip
    assert decided.remembered() is not None
    monkeypatch.setattr(decision.listing, "objection", objection)
    assert replace(decided, max_workspace_bytes=100).remembered() is None
    assert asked[-1] == 100


def test_where_nothing_is_measured_nothing_is_remembered(built: Builds) -> None:
    built.store.clear()
    built(mode="heuristic", precision="bf16")
    assert built.store.transaction(lambda connection: connection.execute(NETWORK).fetchall()) == []
