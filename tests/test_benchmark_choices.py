"""The scripts that time a choice anew beside PyTorch's calls, and what they share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import own_kernels
import pytest
import torch
from common import choices_summary, kernels_ahead, pace, retiming, torch_calls
from pages import choices

from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.timing import Timing

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SUITE = "name,problem\none,ic4ih8oc4kh3ph1\ntwo,ic4ih8oc8kh1\n"


def run(script: str, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "CONVWRIGHT_STORE": "none",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(BENCHMARKS.parent / "src"),
    }
    command = [sys.executable, str(BENCHMARKS / script), *map(str, words)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True, timeout=240)


def timing(value: float, spread: float = 0.001, rounds: int = 20) -> Timing:
    slopes = tuple(value * (1 + spread * (-1) ** place) for place in range(rounds))
    return Timing(Interval(value, value * (1 - spread), value * (1 + spread)), 0.0, rounds, slopes, None, run=1)


def test_a_choice_is_held_against_the_fastest_other() -> None:
    timings = {"ours": timing(10.0), "default": timing(20.0), "benchmark": timing(8.0)}
    (attempt,) = retiming.attempts(lambda: timings, narrow=0.02)
    assert attempt.best == "benchmark"
    assert (str(attempt.verdict.outcome), str(attempt.verdicts["default"].outcome)) == ("slow", "fast")


def test_a_call_that_is_wrong_is_not_held_against_a_choice() -> None:
    timings = {"ours": timing(10.0), "default": timing(20.0), "benchmark": timing(8.0)}
    (attempt,) = retiming.attempts(lambda: timings, narrow=0.02, wrong={"benchmark": "spreads an infinity"})
    assert attempt.best == "default"
    row = {
        "beside": ["default", "benchmark"], "objections": {"benchmark": "…"}, "best": "default",
        "ratios": attempt.verdicts, "times_us": {name: {"value": each.call_us.value} for name, each in timings.items()},
    }  # fmt: skip
    said = choices_summary.outside_the_rule([row, {**row, "objections": {}}])
    assert said == ["the error rule objects to benchmark on 1 rows, and it is faster on 1"]


def test_a_disturbed_run_is_taken_again_and_the_narrowest_counts() -> None:
    spreads = iter([0.5, 0.3, 0.4, 0.0])
    taken = retiming.attempts(
        lambda: {"ours": timing(10.0, spread := next(spreads), 4), "torch": timing(20.0, -spread, 4)}, narrow=0.01
    )
    assert len(taken) == 3, "and no more often"
    halfwidths = [attempt.verdict.ratio.relative_halfwidth for attempt in taken]
    assert retiming.narrowest(taken) is taken[halfwidths.index(min(halfwidths))]


def test_a_ratio_turned_around() -> None:
    assert retiming.faster({"value": 0.5, "low": 0.25, "high": 1.0}) == Interval(2.0, 1.0, 4.0)
    assert retiming.faster({"value": 0.5, "low": "-inf", "high": "inf"}) == Interval(2.0, 0.0, float("inf"))


ANSWERS = """
import atexit, os, time
from common.stages import Stage, serve
from convwright.errors import BadInput

def answer(question):
    print("noise")
    if question["what"] == "raise":
        raise BadInput("no such thing\\nand more")
    if question["what"] == "break":
        raise RuntimeError("a fault")
    if question["what"] == "die":
        os._exit(3)
    if question["what"] == "sleep":
        time.sleep(60)
    if question["what"] == "late":
        atexit.register(lambda: (time.sleep(0.3), open("late", "w").close()))
    return {"pid": os.getpid()}

import sys
if "--stage" in sys.argv:
    serve(answer)
else:
    import json
    with Stage("any", {}) as stage:
        for what in sys.argv[1:]:
            print(json.dumps(stage.ask({"what": what}, patience_s=1.0 if what == "sleep" else 60.0)))
"""


def test_a_stage_answers_and_is_started_again_where_it_ended(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n{ANSWERS}")
    asked = ["pid", "raise", "pid", "break", "pid", "die", "pid", "sleep", "pid"]
    answers = [json.loads(line) for line in run(str(script), *asked, folder=tmp_path).stdout.splitlines()]
    pids = [answer.get("pid") for answer in answers]
    assert pids[0] == pids[2], "a mistake in what was asked breaks nothing"
    assert len({*pids[2::2]}) == 4, "anything else may have"
    assert [answer["failure"] for answer in answers[1::2]] == [
        "BadInput: no such thing", "RuntimeError: a fault", "its process ended with code 3",
        "its process did not answer within 1 s",
    ]  # fmt: skip


SAYS = """
import json, sys
from common.stages import Stage, serve_saying

def answer(say, question):
    print("noise")
    for row in range(question["rows"]):
        say({"row": row})
    return {}

if "--stage" in sys.argv:
    serve_saying(answer)
else:
    with Stage("any", {}) as stage:
        stage.begin({"rows": 3})
        print(json.dumps([stage.hear(patience_s=60.0) for _ in range(5)]))
"""


def test_a_stage_says_what_it_has_done_until_it_answers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n{SAYS}")
    said = json.loads(run(str(script), folder=tmp_path).stdout)
    assert said == [{"row": 0}, {"row": 1}, {"row": 2}, None, None]


def test_a_stage_is_left_time_to_end_what_it_has_begun(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n{ANSWERS}")
    run(str(script), "late", folder=tmp_path)
    assert (tmp_path / "late").exists()


def test_no_row_is_begun_that_may_not_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(pace, "perf_counter", lambda: now_s[0])
    done = []
    for row in pace.Pace(20.0).rows([9.0, 4.0, 5.0, 1.0, 1.0]):
        done.append(row)
        now_s[0] += row
    assert done == [9.0, 4.0, 5.0], "of the first it is not known what processes took to start"


def test_calls_of_pytorch_agree() -> None:
    for text in ("ic4ih8oc8kh3sh2 ep:bias+relu", "ic4ih8oc8kh3 dir:backward_data", "ic4ih8oc8kh3 dir:backward_weight"):
        problem = ConvProblem.parse(text)
        given = operands(problem, Kind.NORMAL, "cpu")
        with torch.no_grad():
            calls = torch_calls.calls(["default", "benchmark"], problem, given)
            first, second = (call() for call in calls.values())
        assert torch.equal(first, second)
        assert first.shape == problem.output.shape
    forward = ConvProblem.parse("ic4ih8oc8kh3sh2 ep:bias+relu")
    given = operands(forward, Kind.NORMAL, "cpu")
    made = torch_calls.calls(["default"], forward, given)
    assert torch.equal(made["default"](), torch.relu(torch.conv2d(*given.values(), stride=2)))
    activated = ConvProblem.parse("ic4ih8oc8kh3 ep:silu")
    given = operands(activated, Kind.NORMAL, "cpu")
    made = torch_calls.calls(["default", "channels-last"], activated, given)
    assert torch.equal(made["default"](), torch.nn.functional.silu(torch.conv2d(*given.values())))
    laid = made["channels-last"]()
    assert laid.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(laid, made["default"]())
    with pytest.raises(BadInput, match="a bias and an activation at most"):
        torch_calls.written(ConvProblem.parse("ic4ih8oc8kh3 ep:residual"))


def test_kernels_of_a_device_that_is_elsewhere_are_known() -> None:
    from convwright.core.policy import Policy
    from convwright.measuring.hardware.machine import device_facts

    kernels = kernels_ahead.kernels_of(ConvProblem.parse("mb8ic128ih27oc128kh3ph1"), device_facts("h200"), Policy())
    assert kernels
    assert all(kernel.compiles for kernel in kernels)


@dataclass
class Row:
    index: int
    problem: ConvProblem
    batch: int | None = None
    tf32: bool | None = None


def test_what_is_missing_is_said_in_slices() -> None:
    problem = ConvProblem.parse("ic4ih8oc8kh3")
    rows = [Row(3, problem), Row(4, problem), Row(7, problem), Row(0, problem, batch=8, tf32=True)]
    assert choices_summary.missing("gtc", rows).splitlines() == [
        "no time for gtc, forward, fp32, nchw: rows 3:5, 7:8",
        "no time for gtc, batch 8, forward, fp32, TF32 on, nchw: rows 0:1",
    ]


def line(name: str, outcome: str, ratios: dict[str, float], **more: Any) -> dict[str, Any]:
    read = {each: {"ratio": dict.fromkeys(("value", "low", "high"), ratio)} for each, ratio in ratios.items()}
    best = max(ratios, key=ratios.__getitem__)
    return {
        "suite": "gtc", "name": name, "problem": "ic4ih8oc8kh3", "batch": None, "tf32": False, "beside": [*ratios],
        "failure": None, "choice": "a/b", "outcome": outcome, "ratios": read, "best": best,
        "ratio": read[best]["ratio"], **more,
    }  # fmt: skip


def test_a_summary_names_what_did_not_come_out_well() -> None:
    lines = [
        line("good", "", {"default": 0.25}, failure="as it was at first"),
        line("good", "fast", {"default": 0.25, "benchmark": 0.5}),
        line("bad", "slow", {"default": 1.0, "benchmark": 2.0}),
        line("other", "same", {"default": 1.0, "benchmark": 0.5}, tf32=True),
        line("gone", "", {"default": 1.0}, failure="it died"),
    ]
    beside = "beside the best of default, benchmark"
    assert choices_summary.summary(lines).splitlines() == [
        f"gtc, forward, fp32, TF32 off, nchw: 2 rows; 0 SAME, 1 FAST, 1 SLOW, 0 AMBIGUOUS {beside}",
        "  default: 2.000 times as fast [2.000, 2.000]",
        "  benchmark: 1.000 times as fast [1.000, 1.000]",
        "  the best of them: 1.000 times as fast [1.000, 1.000]",
        "  SLOW: bad (a/b, 2.000 of the time of benchmark)",
        "  failed: gone: it died",
        f"gtc, forward, fp32, TF32 on, nchw: 1 rows; 1 SAME, 0 FAST, 0 SLOW, 0 AMBIGUOUS {beside}",
        "  default: 1.000 times as fast [1.000, 1.000]",
        "  benchmark: 2.000 times as fast [2.000, 2.000]",
        "  the best of them: 1.000 times as fast [1.000, 1.000]",
    ]


def test_a_table_of_settings() -> None:
    known = {"conditions": {"device": "a GPU", "torch": "2"}, "budget_s": 1.0, "weights": "changing"}
    lines = [
        line("good", "fast", {"default": 0.25, "benchmark": 0.5}, **known),
        line("bad", "slow", {"default": 1.0, "benchmark": 2.0}, **known),
        line("gone", "", {"default": 1.0}, failure="it died"),
    ]
    head, _, row, _, about = choices.table(lines).splitlines()
    assert head.endswith(
        "| times as fast as PyTorch | times as fast as with `benchmark=True` | as the fastest of them |"
    )
    assert row == "| gtc, forward, fp32, TF32 off, nchw | 2 | 1 / 0 / 1 / 0 | 2.00 ± 0.00 | 1.00 ± 0.00 | 1.00 ± 0.00 |"
    assert about.startswith("a GPU, torch 2; device time")
    assert about.endswith("1 rows failed.")


@pytest.mark.slow
def test_choices_of_a_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(SUITE)
    words = ["mine.csv", "--device", "cpu", "--budget-s", "0.2", "--time-s", "0.1", "--out", "out.jsonl"]
    done = run("suite_choices.py", *words, "--rows", "one", folder=tmp_path)
    (first,) = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert first["failure"] is None
    assert {*first["times_us"]} == {*first["errors"]} == {"ours", "default", "benchmark"}
    assert {*first["ratios"]} == {"default", "benchmark"}
    assert all(error["relative_l2"] < 1e-6 for error in first["errors"].values())
    assert first["outcome"] in ("same", "fast", "slow", "ambiguous")
    assert "mine.csv, forward, fp32, nchw: 1 rows" in done.stdout
    again = run("suite_choices.py", *words, "--resume", "--limit-s", "0", folder=tmp_path)
    assert again.stdout.splitlines()[-1] == "no time for mine.csv, forward, fp32, nchw: rows 1:2"


@pytest.mark.slow
def test_every_algorithm_of_a_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(SUITE)
    words = ["--suite", "mine.csv", "--rows", "1:2", "--device", "cpu", "--settings", "TF32 off", "--budget-s", "0.3"]
    run("gtc.py", *words, "--out", "out.jsonl", folder=tmp_path)
    lines = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(each["name"], each["setting"], each["layout"], each["failure"]) for each in lines] == [
        ("two", "TF32 off", "nchw", None), ("two", "TF32 off", "nhwc", None),
    ]  # fmt: skip
    for each in lines:
        own = each["algorithms"][each["baseline"]]
        assert own["time_us"]["value"] > 0
        assert own["id"] == "torch/default"
        assert any(name.startswith("cudnn/") for name in each["refused"])


@pytest.mark.slow
def test_where_our_kernels_offer_nothing_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(SUITE)
    done = run("own_kernels.py", "mine.csv", "--device", "cpu", folder=tmp_path)
    assert done.stdout.startswith("our kernels offer nothing for these problems on ")


def test_configurations_stand_in_the_order_of_their_times() -> None:
    known = {"default": 8.0, "benchmark": 6.0, "triton/a[b=1]": 4.0, "triton/a[b=2]": 3.0}
    line = {
        "name": "stem", "setting": "fp32", "relative_l2": dict.fromkeys(known, 1e-7),
        "us": {name: dict.fromkeys(("value", "low", "high"), us) for name, us in known.items()},
    }  # fmt: skip
    assert own_kernels.told(line).splitlines() == [
        "stem, fp32: default 8.0 µs, benchmark 6.0 µs",
        "        3.0 µs   2.00x, no. 2 of 2, error 1.0e-07: triton/a[b=2]",
        "        4.0 µs   1.50x, no. 1 of 2, error 1.0e-07: triton/a[b=1]",
    ]
