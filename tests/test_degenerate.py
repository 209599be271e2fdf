"""The campaign of degenerate problems: it draws what it says, and lays each fault at the door of one candidate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from common.degenerate_problems import is_small, problems

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "degenerate.py"
PROBLEM = "mb1ic2ih5oc2kh3ph1"
# The same command with candidates that do what some library may do one day.
FAULTY = f"""
import os, sys, time
sys.path.insert(0, {str(SCRIPT.parent)!r})
import degenerate
right = degenerate.Subject.objection

def objection(subject, candidate):
    if candidate.id == "reference/gemm":
        os.abort()
    if candidate.id == "reference/winograd[m=2]":
        time.sleep(600)
    if candidate.id == "torch/onednn":
        raise AssertionError("unexpected")
    if candidate.id == "reference/direct":
        plan = degenerate.Trial.run
        degenerate.Trial.run = lambda trial, given: plan(trial, given) * 1.01
        try:
            return right(subject, candidate)
        finally:
            degenerate.Trial.run = plan
    return right(subject, candidate)

degenerate.Subject.objection = objection
degenerate.main()
"""


def run(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), "--device", "cpu", "--workers", "1", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_it_ends_well_where_nothing_is_wrong(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = run(SCRIPT, "--problems", "4", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("4 problems, ")
    assert done.stdout.endswith(": nothing wrong\n")
    head, *rows = map(json.loads, out.read_text().splitlines())
    assert (head["problems"], head["faults"], head["conditions"]["torch"]) == (4, 0, torch.__version__)
    assert {"torch/default", "reference/gemm", "relayout"} <= {row["family"] for row in rows}


@pytest.mark.slow
def test_each_fault_is_that_of_one_candidate_and_the_next_one_is_tried(tmp_path: Path) -> None:
    script, out = tmp_path / "faulty.py", tmp_path / "out.jsonl"
    script.write_text(FAULTY)
    done = run(script, "--only", PROBLEM, "--deadline", "5", "--out", str(out))
    assert done.returncode == 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = {line["candidate"]: line["kind"] for line in lines if "candidate" in line}
    expected = {"reference/gemm": "crash", "reference/winograd[m=2]": "hang", "reference/direct": "wrong"}
    if torch.backends.mkldnn.is_available():
        expected["torch/onednn"] = "exception"
    assert found == expected
    assert "CRASH: its process died of SIGABRT" in done.stdout
    only = "python benchmarks/degenerate.py --device cpu --only"
    assert f"{only} {PROBLEM} --algorithm reference/gemm" in done.stdout
    ran = {line["family"] for line in lines if "family" in line}
    assert {"reference/fft", "torch/default"} <= ran


@pytest.mark.slow
def test_one_candidate_alone(tmp_path: Path) -> None:
    done = run(SCRIPT, "--only", PROBLEM, "--algorithm", "reference/gemm")
    assert (done.returncode, done.stdout.splitlines()[-1][:30]) == (0, "1 problems, 1 candidates run, ")


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_drawn_is_small_and_degenerate(seed: int) -> None:
    drawn = list(islice(problems(seed), 600))
    assert [each.key for each in drawn[:20]] == [each.key for each in islice(problems(seed), 20)]
    assert all(map(is_small, drawn))
    assert {each.rank for each in drawn} == {1, 2, 3}
    assert len({each.dtype for each in drawn}) == 7
    assert len({each.direction for each in drawn}) == 3
    axes = [axis for each in drawn for axis in each.axes]
    for share in (
        sum(axis.outputs_met() < axis.out for axis in axes),  # outputs that read padding alone
        sum(axis.reach > axis.size for axis in axes),
        sum(axis.size == 1 for axis in axes),
    ):
        assert share > len(axes) / 10
    assert sum(not each.n for each in drawn) > 20
    assert sum(each.groups == each.c > 1 for each in drawn) > 60
    assert max(max(each.dilation) for each in drawn) > 2**31
    assert max(max(each.stride) for each in drawn) > 2**31
