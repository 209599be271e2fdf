"""The command line: text, JSON, and one sentence with exit code 2 for a user's mistake."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from convwright.api.finding import find
from convwright.cli.main import main
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.naming import singular
from convwright.report.words.output import console
from convwright.settings import settings
from convwright.store.schema import SCHEMA_VERSION
from convwright.store.store import Store
from convwright.tuning.session import _warn, session

PROBLEM = "mb2ic4ih8oc4kh3ph1"
KEY = ConvProblem.parse(PROBLEM).key
CPU = ["--device", "cpu", "--mode", "heuristic"]


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line in this process."""
    monkeypatch.setattr(sys, "argv", ["convwright", *words])
    monkeypatch.setenv("COLUMNS", "250")
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_find_prints_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, "find", PROBLEM, *CPU)
    assert (code, err) == (0, "")
    for word in (
        KEY,
        "torch/default",
        "reference/gemm",
        "Nothing was measured: nothing runs in",
        "refused:",
        " more need an NVIDIA GPU; --refusals (refusals=True) lists them",
    ):
        assert word in out
    assert "cudnn/gemm" not in out
    assert "cudnn/gemm" in run(capsys, monkeypatch, "find", PROBLEM, *CPU, "--refusals")[1]


def test_refusals_can_be_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "find", PROBLEM, *CPU, "--no-refusals")
    assert code == 0
    assert "torch/default" in out
    assert "refused" not in out


def test_ctrl_c_ends_find_with_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("convwright.api.finding.find", interrupted)
    code, out, err = run(capsys, monkeypatch, "find", PROBLEM, *CPU)
    assert (code, out) == (130, "")
    assert err == "convwright: stopped before the search was done; nothing of it is kept\n"


@pytest.mark.parametrize("command", ["find", "bench", "explain", "tune", "advise"])
def test_every_search_offers_the_objectives_that_there_are(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    _, out, _ = run(capsys, monkeypatch, command, "--help")
    assert "time, device-time, energy (mode full), workspace or time-then-workspace" in out
    assert "--finite-inputs" in out


def test_find_prints_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, "find", PROBLEM, *CPU, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["problem"], found["mode"], found["choice"]) == (KEY, "heuristic", None)
    assert {row["id"] for row in found["candidates"]} >= {"torch/default", "reference/gemm"}
    assert all(refusal["reason"] for refusal in found["refusals"])


def test_find_measures_on_this_machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["find", "ic2ih4oc2kh1", "--device", "cpu", "--mode", "quick", "--json"]
    code, out, _ = run(capsys, monkeypatch, *words)
    found = json.loads(out)
    assert code == 0
    best = found["candidates"][0]
    assert best["id"] == found["choice"]
    assert best["measurement"]["device_us"]["value"] > 0
    assert best["reason"].startswith("the winner")


SIZES = ["--weight", "4,4,3,3", "--input"]
FORMS = [
    ([*SIZES, "2,4,8,8", "--padding", "1"], PROBLEM),
    ([*SIZES, "2,4,8,8", "--padding", "same"], PROBLEM),
    ([*SIZES, "2,4,8,8", "--padding", "valid"], "mb2ic4ih8oc4kh3"),
    ([*SIZES, "2,4,8,8", "--padding", "0:1,1:1"], "mb2ic4ih8oc4kh3ph0pw1 rh:1"),
    ([*SIZES, "2,4,8,8", "--padding", "0:1,1", "--stride", "2"], "mb2ic4ih8oc4kh3sh2ph0pw1 rh:1"),
    ([*SIZES, "2,4,9,8", "--padding", "1,0", "--stride", "2,1"], "mb2ic4ih9iw8oc4kh3kw3ph1pw0sh2sw1"),
    (["--input", "2,4,9", "--weight", "6,2,3", "--groups", "2", "--dilation", "2"], "g2mb2ic4iw9oc6kw3dw1"),
    ([*SIZES, "2,4,8,8", "--dtype", "fp16", "--layout", "nhwc"], "mb2ic4ih8oc4kh3 dt:fp16 tag:nhwc"),
    ([PROBLEM, "--layout", "NHWC"], f"{PROBLEM} tag:nhwc"),
    ([PROBLEM, "--layout", "channels_last"], f"{PROBLEM} tag:nhwc"),
    (
        [PROBLEM, "--layout", "Channels-Last", "--direction", "Backward-Weight"],
        f"{PROBLEM} tag:nhwc dir:backward_weight",
    ),
    ([PROBLEM, "--direction", "backward_data"], f"{PROBLEM} dir:backward_data"),
    ([PROBLEM, "--epilogue", "bias+relu", "--dtype", "float16"], f"{PROBLEM} dt:fp16 ep:bias+relu"),
    ([f"{PROBLEM} dt:bf16", "--layout", "nhwc"], f"{PROBLEM} dt:bf16 tag:nhwc"),
    ([KEY], PROBLEM),
]


@pytest.mark.parametrize(("words", "text"), FORMS, ids=[" ".join(words) for words, _ in FORMS])
def test_many_ways_to_write_a_problem(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, "find", *words, *CPU, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["problem"] == ConvProblem.parse(text).key


def test_policy_options_reach_the_search(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = run(capsys, monkeypatch, "find", PROBLEM, *CPU, "--json", "--max-workspace", "0", "--deterministic")
    reasons = {row["id"]: row["reason"] for row in json.loads(out)["candidates"]}
    assert "of workspace, 0 are allowed" in reasons["reference/gemm"]


def test_how_it_is_searched_can_be_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def search(problem: str, **given: object) -> object:
        asked.update(given)
        return find(problem, device="cpu", mode="heuristic")

    monkeypatch.setattr("convwright.api.finding.find", search)
    words = ["--budget", "0.5", "--trust", "verify", "--isolate", "--energy", "--objective", "time-then-workspace"]
    code, _, err = run(capsys, monkeypatch, "find", PROBLEM, *CPU, "--mode", "full", *words)
    assert (code, err) == (0, "")
    policy = asked["policy"]
    assert isinstance(policy, Policy)
    assert policy.objective is Objective.TIME_THEN_WORKSPACE
    assert {name: asked[name] for name in ("budget_us", "trust", "isolate", "energy")} == {
        "budget_us": 0.5e6, "trust": "verify", "isolate": True, "energy": True,
    }  # fmt: skip


def test_a_pipe_gets_no_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, "find", "ic2ih4oc2kh1", "--device", "cpu", "--mode", "quick")
    assert (code, err) == (0, "")
    assert "first looks" not in out


def test_a_device_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cudnn", reason="cuDNN's frontend is missing")
    code, out, err = run(capsys, monkeypatch, "find", PROBLEM, "--device", "h200", "--mode", "heuristic", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["device"] == "NVIDIA H200"
    engines = [row for row in found["candidates"] if row["id"].startswith("cudnn/engine-")]
    assert engines
    assert {row["source"] for row in engines} == {"planner"}
    classic = {row["id"]: row for row in found["candidates"] if row["id"] in ("cudnn/implicit-gemm", "cudnn/gemm")}
    assert {(row["source"], row["workspace_bytes"] is None) for row in classic.values()} == {("rule", False)}
    assert all(row["measurement"] is None and row["bytes_limit_us"] > 0 for row in found["candidates"])


MISTAKES = [
    (["hello"], "'hello'"),
    ([f"{PROBLEM}x"], "ph1x"),
    ([""], "empty"),
    ([PROBLEM, "--device", "gtx480"], "'gtx480'"),
    ([PROBLEM, "--device", "cuda"], "'cuda'"),
    ([PROBLEM, "--device", "cpu", "--mode", "slow"], "'slow'"),
    ([PROBLEM, "--device", "cpu", "--dtype", "int4"], "'int4'"),
    ([PROBLEM, "--device", "cpu", "--layout", "hwcn"], "--layout must be one of nchw, nhwc, got 'hwcn'"),
    ([PROBLEM, "--device", "cpu", "--layout", "strided"], "--layout must be one of nchw, nhwc, got 'strided'"),
    (
        [PROBLEM, "--device", "cpu", "--direction", "Backward"],
        "--direction must be one of forward, backward_data, backward_weight, got 'Backward'",
    ),
    ([PROBLEM, "--device", "cpu", "--epilogue", "tanh"], "'tanh'"),
    ([f"{PROBLEM} dt:fp16", "--device", "cpu", "--dtype", "fp32"], "dt is given twice"),
    ([PROBLEM, "--device", "cpu", "--max-error", "0"], "`max_error`"),
    ([PROBLEM, "--device", "cpu", "--objective", "beauty"], "'beauty'"),
    ([PROBLEM, "--device", "cpu", "--trust", "blindly"], "'blindly'"),
    ([PROBLEM, "--device", "cpu", "--budget", "0"], "--budget takes a finite number above 0, got 0"),
    ([PROBLEM, "--device", "cpu", "--budget", "inf"], "--budget takes a finite number above 0, got inf"),
    ([PROBLEM, "--stride", "2"], "--stride belongs to --input and --weight; write sh2 in the problem"),
    ([PROBLEM, "--stride", "1"], "--stride belongs to --input and --weight; write sh1 in the problem"),
    ([PROBLEM, "--padding", "1,0"], "--padding belongs to --input and --weight; write ph1pw0 in the problem"),
    (
        [PROBLEM, "--padding", "same"],
        "--padding belongs to --input and --weight; write ph for the padding before, and ",
    ),
    ([*SIZES, "2,4,8,8", "--padding", "0:1:2"], "`padding` must be an int, or 2 ints or pairs of ints"),
    (
        [*SIZES, "2,4,8,8", "--padding", "0:x"],
        "--padding takes numbers separated by commas, pairs such as 0:1, valid or same, got '0,x'",
    ),
    ([PROBLEM, "--dilation", "2"], "--dilation belongs to --input and --weight; write dh1 in the problem"),
    (["ic2iw9oc2kw3", "--stride", "2"], "write sw2 in the problem"),
    (["ic2id9oc2kd3", "--stride", "2,1,1"], "write sd2sh1sw1 in the problem"),
    ([PROBLEM, "--groups", "2"], "--groups belongs to --input and --weight; write g2 in the problem"),
    ([PROBLEM, "--device", "cpu", "--mode", "quick", "--energy"], "energy needs mode full"),
    ([PROBLEM, "--device", "cpu", "--max-workspace", "-1"], "such as 64MB or 1GiB, got '-1'"),
    (["ic4ih2oc4kh3", "--device", "cpu"], "3 elements"),
    ([], "--input and --weight"),
    (["--input", "2,4,8,8"], "--input and --weight"),
    (["--weight", "4,4,3,3"], "--input and --weight"),
    (["--input", "2,4,8,8", "--weight", "4,4,3,three"], "--weight"),
    (["--input", "2,4,8,8", "--weight", "4,4,3,3", "--stride", "a"], "--stride"),
    (["--input", "2,4,8,8", "--weight", "4,3,3,3"], "(=4)"),
    (["--input", "2,4", "--weight", "4,4"], "(2, 4)"),
]


@pytest.mark.parametrize(("words", "named"), MISTAKES, ids=[" ".join(words) or "nothing" for words, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[-1:] == ["cuda"] and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code, out, err = run(capsys, monkeypatch, "find", *words)
    assert (code, out) == (2, "")
    assert err.startswith("convwright: ")
    assert err.count("\n") == 1
    assert named in err


def test_show_env(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "show-env", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["conditions"]["torch"] == torch.__version__
    assert set(facts["backends"]) == {"torch", "reference", "cudnn", "triton"}
    assert (facts["mode"], facts["store"]) == ("heuristic", "in memory")
    assert "h200" in facts["known devices"]
    code, out, _ = run(capsys, monkeypatch, "show-env")
    assert code == 0
    assert f"torch {torch.__version__}" in out
    assert f"{singular(facts['device']['name'])}\n" in re.sub(" +", " ", out).replace(" \n", "\n")


def test_show_env_tells_a_whole_path_where_a_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/home/{'somebody/' * 9}findings.sqlite"
    monkeypatch.setattr("convwright.cli.show_env._facts", lambda: {"mode": "quick", "store": path})
    monkeypatch.setattr("convwright.report.words.output.output", lambda: console(width=40))
    code, out, _ = run(capsys, monkeypatch, "show-env")
    assert code == 0
    assert "".join(out.split()) == f"modequickstore{path}"


@pytest.fixture
def newer_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of the store of the settings, which was written by a newer version."""
    path = tmp_path / "findings.sqlite"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 99")
    monkeypatch.setenv("CONVWRIGHT_STORE", str(path))
    settings.cache_clear()
    session.cache_clear()
    return f"{path} was written by a newer convwright (schema 99, this one knows {SCHEMA_VERSION})"


def test_commands_that_measure_say_that_the_store_cannot_be_used(
    newer_store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["find", PROBLEM, "--mode", "heuristic"], ["explain", PROBLEM]):
        settings.cache_clear()
        session.cache_clear()
        _warn.cache_clear()
        code, out, error = run(capsys, monkeypatch, *words)
        assert (code, bool(out)) == (0, True)
        assert error.startswith(f"convwright: findings are kept in memory only, since {newer_store}")
        assert error.count("\n") == 1
    code, out, error = run(capsys, monkeypatch, "store")
    assert (code, out) == (1, "")
    assert error.startswith(f"convwright: {newer_store}")


def test_show_env_has_a_row_for_what_is_wrong_with_the_store(
    newer_store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, error = run(capsys, monkeypatch, "show-env", "--json")
    assert (code, error) == (0, "")
    assert newer_store in json.loads(out)["store note"]


def test_help_names_the_verbs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "--help")
    assert code == 0
    assert "find" in out
    assert "show-env" in out


def test_as_a_process() -> None:
    command = [sys.executable, "-c", "from convwright.cli.main import main; main()", "find", PROBLEM, "--mode", "slow"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "convwright: --mode must be one of heuristic, predict, predict-top, quick, full, got 'slow'\n"
