"""`convwright explain`: prose and JSON by what the store knows, and one sentence for a mistake."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from convwright.backends.registry import backend
from convwright.cli.main import main
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import singular
from convwright.store.store import Store
from tuning.made import measurement

PROBLEM = "mb2ic4ih8oc4kh3ph1"
KEY = ConvProblem.parse(PROBLEM).key

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that knows PyTorch's own call as slow and the reference as fast, under the present versions."""
    path, cpu = tmp_path / "findings.sqlite", device_facts("cpu")
    with Store.open(path) as store:
        for name, time_us, nbytes in (("torch/default", 40.0, 0), ("reference/gemm", 10.0, 4096)):
            fingerprint = backend(name.partition("/")[0]).fingerprint(cpu)
            store.record(KEY, cpu.key, name, fingerprint, measurement(time_us, workspace_bytes=nbytes), None)
        store.record(KEY, cpu.key, "reference/direct", "of old", measurement(1.0), None)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, stdout and stderr of `convwright explain …`."""

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["convwright", "explain", *words])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return command


def flat(text: str) -> str:
    return " ".join(text.split())


def test_what_is_known_is_told_in_prose(run: Run, path: Path) -> None:
    code, out, err = run(PROBLEM, "--device", "cpu", "--store", str(path))
    assert (code, err) == (0, "")
    title, *lines = out.splitlines()
    assert title == f"{KEY} on {singular(device_facts('cpu').key)}"
    assert "reference/gemm, the winner: 4.00x as fast as PyTorch's own call." in flat(out)
    assert "torch/default: 40.00 µs; 4.00x the winner's time" in flat(out)
    assert "Findings in the store that count: 2, made " in flat(out)
    assert "cudnn/gemm" in out
    assert "reference/direct: " in out
    assert all(len(line) <= 110 for line in lines)


def test_nothing_runs_and_nothing_is_kept(run: Run, path: Path) -> None:
    run("ic2ih4oc2kh1", "--device", "cpu", "--store", str(path))
    with Store.open(path) as store:
        assert {known.problem for known in store.problems()} == {KEY}


def test_policy_decides_who_wins(run: Run, path: Path) -> None:
    _, out, _ = run(PROBLEM, "--device", "cpu", "--store", str(path), "--max-workspace", "0")
    assert "torch/default, the winner" in flat(out)


def test_the_same_as_data(run: Run, path: Path) -> None:
    code, out, err = run(PROBLEM, "--device", "cpu", "--store", str(path), "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["problem"], told["choice"], told["mode"]) == (KEY, "reference/gemm", "heuristic")
    headings = [section["heading"] for section in told["explanation"]]
    assert headings[0] == "What would run"
    assert headings[-1] == "To find out more"
    assert told["explanation"][0]["lines"][0].startswith("reference/gemm, the winner")


def test_the_command_that_finds_out_more_asks_the_same(run: Run) -> None:
    words = ["--dtype", "fp64", "--layout", "nhwc", "--direction", "backward_data", "--device", "cpu"]
    policy = ["--max-workspace", "1000", "--max-error", "3.0", "--objective", "device-time", "--deterministic"]
    _, out, _ = run(PROBLEM, *words, *policy, "--finite-inputs", "--json")
    told = json.loads(out)
    command = told["explanation"][-1]["lines"][0].split("`")[1]
    assert shlex.split(command) == [
        "convwright", "find", f"{PROBLEM} dt:fp64 tag:nhwc dir:backward_data", "--device", "cpu", *policy,
        "--finite-inputs",
    ]  # fmt: skip
    assert told["problem"] == ConvProblem.parse(f"{PROBLEM} dt:fp64 tag:nhwc dir:backward_data").key


def test_without_a_store_it_says_that_calls_on_a_cpu_never_search(run: Run) -> None:
    code, out, _ = run(PROBLEM, "--device", "cpu")
    assert code == 0
    assert "The fastest is unknown: nothing was measured under the present versions." in out
    assert "On a CPU conv2d never searches" in flat(out)
    assert "200 ms" not in out


def test_a_device_elsewhere_has_another_name_where_it_is(run: Run) -> None:
    code, out, _ = run(PROBLEM, "--device", "h200")
    assert code == 0
    said = f"NVIDIA H200 is not in this machine. On a machine with it, run `convwright find {PROBLEM} --device cuda`"
    assert said in flat(out)


MISTAKES = [
    (["hello"], "'hello'"),
    ([f"{PROBLEM} dt:fp16", "--dtype", "fp32"], "dt is given twice"),
    ([PROBLEM, "--device", "gtx480"], "'gtx480'"),
    ([PROBLEM, "--device", "cpu", "--objective", "beauty"], "'beauty'"),
    ([PROBLEM, "--device", "cpu", "--max-error", "0"], "`max_error`"),
    ([PROBLEM, "--device", "cpu", "--store", "absent.sqlite"], "there is no store at absent.sqlite"),
]


@pytest.mark.parametrize(("words", "named"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_exit_code_2(words: list[str], named: str, run: Run) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("convwright: ")
    assert err.count("\n") == 1
    assert named in err
