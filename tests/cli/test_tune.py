"""``convwright tune``: a table, JSON, what was known before, and Ctrl-C."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from convwright.advising import tuned
from convwright.cli.main import main
from convwright.core.policy import Objective
from convwright.settings import settings
from convwright.tuning import find
from convwright.tuning.session import session

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "advise_model.py"
SMALL = [f"{EXAMPLE}:small", "--mode", "quick", "--budget", "0.1"]


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["convwright", "tune", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that findings are kept in."""
    path = tmp_path / "findings.sqlite"
    monkeypatch.setenv("CONVWRIGHT_STORE", str(path))
    settings.cache_clear()
    session.cache_clear()
    return path


@pytest.mark.usefixtures("store")
def test_the_second_time_everything_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *SMALL)
    assert (code, err) == (0, "")
    assert "5 distinct problems, 0 of them known before" in out
    assert "stages.0.conv1, stages.0.conv2" in out
    code, out, _ = run(capsys, monkeypatch, *SMALL)
    assert code == 0
    assert "5 distinct problems, 5 of them known before" in out
    assert out.endswith("All are remembered.\n")


MEMORY = "findings are kept in memory only"


@pytest.mark.parametrize("full", [False, True])
def test_it_does_not_say_remembered_where_no_file_keeps_it(
    full: bool, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = MEMORY
    if full:
        why = f"{MEMORY}, since the store of findings at {store} failed: no such table: search"
        with closing(session().store) as whole:
            whole._database.execute("DROP TABLE search")
        session.cache_clear()
    else:
        monkeypatch.setenv("CONVWRIGHT_STORE", "none")
        settings.cache_clear()
    _, out, _ = run(capsys, monkeypatch, *SMALL)
    assert f"What was measured now is not remembered: {why}." in out
    assert "remembered." not in out
    _, out, _ = run(capsys, monkeypatch, *SMALL, "--json")
    assert json.loads(out)["unkept"] == why


def test_ctrl_c_says_where_nothing_is_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuned, "find", interrupted)
    code, _, err = run(capsys, monkeypatch, *SMALL)
    assert (code, err) == (130, f"convwright: stopped after 0 of 5 problems; {MEMORY}\n")


@pytest.mark.usefixtures("store")
def test_ctrl_c_says_how_far_it_came(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    find, calls = tuned.find, []

    def interrupted(*args: object, **options: object) -> object:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return find(*args, **options)

    monkeypatch.setattr(tuned, "find", interrupted)
    code, out, err = run(capsys, monkeypatch, *SMALL)
    assert (code, out) == (130, "")
    assert err == "convwright: stopped after 2 of 5 problems; what other work did not disturb is remembered\n"
    monkeypatch.setattr(tuned, "find", find)
    _, out, _ = run(capsys, monkeypatch, *SMALL)
    assert "5 distinct problems, 2 of them known before" in out


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("device", "named"), [("h200", "NVIDIA H200"), ("a100", "NVIDIA A100-SXM4-80GB"), ("t4", "Tesla T4")]
)
def test_json_for_a_device_that_is_elsewhere(
    device: str, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(
        capsys, monkeypatch, f"{EXAMPLE}:small", "--device", device, "--plan-only", "--backward", "--json"
    )
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert (data["device"], data["mode"], data["known"]) == (named, "heuristic", 0)
    assert all(isinstance(problem["workspace_bytes"], int) for problem in data["problems"])
    assert isinstance(data["workspace_is_bound"], bool)
    engines = [row for problem in data["problems"] for row in problem["candidates"] if "cudnn/engine" in row["id"]]
    assert all(isinstance(row["workspace_bytes"], int) and not row["workspace_is_bound"] for row in engines)
    directions = {problem["problem"].partition("dir:")[2].partition(" ")[0] for problem in data["problems"]}
    assert directions == {"forward", "backward_data", "backward_weight"}
    assert all("workspace_bytes" in row for problem in data["problems"] for row in problem["candidates"])


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("device", "named"), [("t4", "Tesla T4"), ("h200", "NVIDIA H200"), ("a100", "NVIDIA A100-SXM4-80GB")]
)
def test_a_plan_for_a_device_that_is_elsewhere(
    device: str, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{EXAMPLE}:small", "--device", device, "--plan-only")
    assert (code, err) == (0, "")
    title, head, *rows, last = out.splitlines()
    rows, under = rows[:5], rows[5:]
    assert title == f"{named} · mode heuristic"
    assert head.split() == ["layers", "problem", "calls", "candidates", "candidate", "workspace"]
    tf32 = "" if device == "t4" else "TF32 allowed · "  # which a T4 has not
    assert under[0].startswith(f"nothing was measured · {tf32}torch {torch.__version__}")
    assert last.startswith("5 distinct problems; nothing ran. Shared workspace: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--device", "h200"], "NVIDIA H200 is not in this machine: use plan_only (--plan-only), which times nothing"),
        (["--plan-only", "--budget", "1"], "--plan-only measures nothing, so that --budget would be ignored"),
        (["--plan-only", "--mode", "quick"], "--plan-only measures nothing, so that --mode quick would be ignored"),
    ],
)
def test_what_cannot_be_planned_or_timed_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{EXAMPLE}:small", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"convwright: {sentence}")
    assert err.count("\n") == 1


def test_what_a_model_prints_is_no_part_of_the_json(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{own}:made", "--mode", "heuristic", "--json")
    assert code == 0
    assert json.loads(out)["mode"] == "heuristic"
    assert err.split() == ["imported", "made", "ran"]


def test_a_model_that_does_not_run_is_one_sentence(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{own}:narrow", "--mode", "heuristic", "--json")
    assert (code, out) == (2, "")
    sentence = err.removeprefix("imported\n")
    assert sentence.startswith("convwright: the model does not run on its example: RuntimeError: Given groups=1, ")
    assert sentence.count("\n") == 1


def test_a_mistake_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, f"{EXAMPLE}:small", "--mode", "slow")
    assert (code, out) == (2, "")
    assert err.startswith("convwright: --mode must be one of heuristic, predict, ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("budget", ["0", "-5", "nan", "inf"])
def test_a_budget_is_a_time(budget: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, f"{EXAMPLE}:small", "--budget", budget)
    assert (code, out) == (2, "")
    assert err == f"convwright: --budget takes a finite number above 0, got {budget}\n"


@pytest.mark.parametrize("command", ["tune", "advise"])
def test_another_objective_is_another_question(
    command: str, own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, found = [], find.find
    monkeypatch.setattr(
        f"convwright.advising.{'tuned' if command == 'tune' else 'advise'}.find",
        lambda problem, facts, policy, **more: asked.append(policy) or found(problem, facts, policy, **more),
    )
    words = [f"{own}:made", "--mode", "heuristic", "--objective", "time-then-workspace", "--finite-inputs"]
    monkeypatch.setattr(sys, "argv", ["convwright", command, *words])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code in (None, 0)
    assert {(policy.objective, policy.finite_inputs) for policy in asked} == {(Objective.TIME_THEN_WORKSPACE, True)}
    monkeypatch.setattr(sys, "argv", ["convwright", command, *words[:-2], "beauty"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    assert "'beauty'" in capsys.readouterr().err


def test_what_other_work_disturbed_is_not_said_to_be_remembered(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "convwright.tuning.trials.side_by_side.doubt", lambda timing, look_us: "unstable: 2 rounds: wait"
    )
    code, out, _ = run(capsys, monkeypatch, f"{own}:made", "--mode", "quick", "--budget", "0.05")
    assert code == 0
    again = "run it again when the machine is quiet."
    assert out.endswith(f"The result is not remembered, since the search was disturbed: {again}\n")


def test_ctrl_c_ahead_of_the_first_problem(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write_text("def made():\n    raise KeyboardInterrupt\n")
    code, out, err = run(capsys, monkeypatch, f"{own}:made")
    assert (code, out, err) == (130, "", "convwright: stopped before the first problem\n")
