"""``convwright bench``: a table, JSON lines that a next run goes on from, plots, and one sentence for a mistake."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from convwright import flags
from convwright.cli.main import main
from convwright.core.problem import ConvProblem
from convwright.report import plot
from convwright.report.benchmarks import under_way as bench_run
from convwright.report.benchmarks.result import Result
from convwright.wording import pictures

Command = Callable[..., tuple[int, str, str]]
PROBLEM = "ic2ih6oc2kh3"
HEURISTIC = ["--device", "cpu", "--mode", "heuristic"]
QUICK = ["--device", "cpu", "--mode", "quick", "--budget", "0.03"]
NOT_DRAWN = "was not measured, so it is not drawn; more time (--budget, --mode full) may come to it"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*words: object) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of the command line in this process."""
        monkeypatch.setattr(sys, "argv", ["convwright", "bench", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "250")
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_suite_that_nothing_runs(run: Command) -> None:
    code, out, err = run("zoo-sample", *HEURISTIC, "--limit", "3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("40 layers of the zoo, the first 3 · ")
    assert lines[0].endswith(" · mode heuristic")
    head = ["name", "problem", "first", "candidate", "workspace"]
    assert lines[1].split() == head, "columns without an entry are left out"
    assert lines[2].split()[2:5] == ["torch/default", "0", "B"]
    assert [line.split()[0] for line in lines[2:5]] == ["nasneta-138", "shufflenetv2x1-0-4", "densenet121-109"]
    why = "was not measured: nothing runs in mode heuristic"
    assert lines[5].startswith("nothing was measured · ")
    assert lines[-2] == f"nasneta-138, shufflenetv2x1-0-4, densenet121-109: {why}"
    assert lines[-1] == "Nothing was compared with PyTorch's own call. 3 not measured."


def test_a_sweep_that_is_measured(run: Command) -> None:
    code, out, err = run("ic2oc2kh3", *QUICK, "--sweep", "ih=6,8", "--json")  # which has no ih of its own
    assert (code, err) == (0, "")
    told = json.loads(out)
    first, second = told["results"]
    assert (first["name"], second["at"]) == ("ih=6", {"ih": 8})
    assert second["problem"] == ConvProblem.parse("ic2ih8iw8oc2kh3").key
    for record in told["results"]:
        assert record["failure"] is None
        assert record["times_us"][record["choice"]]["value"] > 0
        assert record["conditions"]["torch"]
        assert record["outcome"] in ("faster", "same", "ambiguous")
        measured = {row["id"] for row in record["candidates"] if row["measurement"]}
        assert set(record["times_us"]) == measured
    summary = told["summary"]
    assert summary["faster"] + summary["same"] + summary["ambiguous"] == 2
    assert summary["times_faster"]["low"] <= summary["times_faster"]["value"] <= summary["times_faster"]["high"]


def test_a_table_of_what_was_measured(run: Command) -> None:
    code, out, _ = run(PROBLEM, *QUICK)
    assert code == 0
    _, head, row, measured, versions, summary = out.splitlines()
    assert head.split("  ")[0] == "name"
    assert "times faster" in head
    assert "problem" not in head, "it is the name already"
    assert row.startswith(f"{PROBLEM} ")
    assert re.fullmatch(r"measured \d{4}-\d\d-\d\d · cache hot · [\d to]+ samples, 95 % intervals", measured)
    assert versions.startswith(f"torch {torch.__version__} · oneDNN ")
    assert "geometric mean " in summary


def test_lines_are_kept_and_gone_on_from(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.jsonl"
    words = ["gtc", *HEURISTIC, "--out", out]
    assert run(*words, "--limit", 2)[0] == 0
    before = out.read_text()
    assert [record["name"] for record in records(out)] == ["32x32x64-128-3x3", "128x128x128-128-3x3"]
    with out.open("a") as file:
        file.write('{"benchmark": "bench", "na')  # as a run leaves it that was killed
    searched: list[str] = []
    own = bench_run.Run._searched
    monkeypatch.setattr(
        bench_run.Run, "_searched", lambda self, row, tell: searched.append(row.name) or own(self, row, tell)
    )
    code, told, _ = run(*words, "--limit", 4, "--resume", "--json")
    assert code == 0
    assert out.read_text().startswith(before)
    assert [record["name"] for record in records(out)[2:]] == searched
    assert len(searched) == 2
    assert [record["name"] for record in json.loads(told)["results"]] == [r["name"] for r in records(out)]


CHANGES = [["--dtype", "bf16"], ["--max-error", "3"], ["--batch", "2"], ["--deterministic"], ["--max-error", "inf"]]


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_what_is_asked_for_otherwise_is_searched_again(run: Command, words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    for more, count in ([], 1), ([], 1), (words, 2), (words, 2):
        assert run("gtc", *HEURISTIC, "--limit", 1, "--out", out, "--resume", *more)[0] == 0
        assert len(records(out)) == count


def test_without_resume_everything_is_added(run: Command, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    out.write_text('{"benchmark": "another"}')
    for count in (2, 3):
        assert run(PROBLEM, *HEURISTIC, "--out", out)[0] == 0
        assert len(records(out)) == count


def test_a_problem_that_fails_does_not_stop_the_others(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convwright.tuning import find as tuner

    own = tuner.find

    def find(problem: ConvProblem, *given: object, **options: object) -> object:
        if problem.x.shape[2] == 7:
            raise RuntimeError("no memory [bold]left[/]\nand a second line")
        return own(problem, *given, **options)

    monkeypatch.setattr(tuner, "find", find)
    out = tmp_path / "results.jsonl"
    words = [PROBLEM, *HEURISTIC, "--sweep", "ih=6,7,8", "--out", out]
    code, told, err = run(*words)
    assert (code, err) == (1, "")
    assert "failed: no memory [bold]left[/]" in told
    assert told.splitlines()[-1].endswith("2 not measured. 1 failed.")
    assert [record["failure"] is None for record in records(out)] == [True, False, True]
    monkeypatch.setattr(tuner, "find", own)
    assert run(*words, "--resume")[0] == 0
    assert len(records(out)) == 4, "what failed is tried again, and nothing else"


@pytest.mark.parametrize("rows", [0, 2])
def test_it_can_be_stopped(rows: int, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, own = tmp_path / "results.jsonl", bench_run.Run._searched

    def searched(self: bench_run.Run, row: object, tell: object) -> object:
        if len(self.records) == rows:
            raise KeyboardInterrupt
        return own(self, row, tell)

    monkeypatch.setattr(bench_run.Run, "_searched", searched)
    code, told, err = run("gtc", *HEURISTIC, "--out", out)
    assert code == 130
    kept = f", which are in {out}; --resume goes on" if rows else ""
    assert err == f"convwright: stopped after {rows} of 14 problems{kept}\n"
    assert ("2 not measured" in told) == (rows == 2)
    assert len(records(out)) == rows


def test_a_suite_of_ones_own(run: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("stem,ic3oc8ih32kh7sh2ph3\nlast,ic8oc8ih4kh1\n")
    code, out, _ = run(path, *HEURISTIC, "--batch", 2, "--dtype", "bf16", "--direction", "backward_weight", "--json")
    assert code == 0
    keys = [record["problem"] for record in json.loads(out)["results"]]
    assert keys == [
        ConvProblem.parse(f"mb2{text} dt:bf16 dir:backward_weight").key
        for text in ("ic3oc8ih32kh7sh2ph3", "ic8oc8ih4kh1")
    ]


@pytest.mark.slow
def test_plots(run: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    words = [PROBLEM, *QUICK, "--sweep", "ih=6..12:*2"]
    code, _, err = run(*words, "--plot", tmp_path / "sweep.svg", "--algorithms", "torch/default,reference/winograd")
    assert code == 0
    assert err in ("", f"convwright: reference/winograd {NOT_DRAWN}\n")
    drawn = (tmp_path / "sweep.svg").read_text()
    assert drawn.startswith("<?xml")
    assert run(PROBLEM, *QUICK, "--plot-fit", tmp_path / "fit.png")[0] == 0
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_of_what_was_measured_and_may_not_be_chosen_that_is_said(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    of = Result.of
    refused = staticmethod(lambda record: replace(of(record), disallowed=frozenset(record["times_us"])))
    monkeypatch.setattr(Result, "of", refused)
    words = [PROBLEM, *QUICK, "--sweep", "ih=6,8", "--plot", tmp_path / "sweep.png", "--algorithms"]
    code, _, err = run(*words, "torch/*,torch/default")
    assert (code, err) == (0, "convwright: none of torch/* that was measured may be chosen, so it is not drawn\n")


def test_a_comma_in_a_name_ends_no_name(run: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    words = [PROBLEM, *QUICK, "--sweep", "ih=6,8", "--plot", tmp_path / "sweep.png"]
    code, _, err = run(*words, "--algorithms", "relayout(nhwc,reference/gemm),nope[k2=2,k13=2]")
    assert code == 2
    assert "no algorithm here is called 'nope[k2=2,k13=2]'" in err
    code, _, err = run(*words, "--algorithms", "relayout(nhwc,reference/gemm),torch/default")
    assert code == 0
    assert err in ("", f"convwright: relayout(nhwc, reference/gemm) {NOT_DRAWN}\n")


def test_where_nothing_runs_the_mode_says_so(run: Command) -> None:
    assert "mode heuristic" in run(PROBLEM, "--device", "h200")[1]


def test_beneath_a_plot_stands_what_stands_beneath_the_table_and_a_fit_is_timed_anew(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    captions: list[str] = []
    monkeypatch.setattr(plot, "draw_chart", lambda chart, path: captions.append(chart.caption))
    monkeypatch.setattr(plot, "draw_fits", lambda fits, path, *, title, caption: captions.append(caption))
    sweep, fit = ["--sweep", "ih=6,8", "--plot", tmp_path / "a.svg"], ["--plot-fit", tmp_path / "a.png"]
    for words in (sweep, fit):
        _, out, _ = run(PROBLEM, *QUICK, *words)
        (caption,) = captions
        assert caption.startswith("measured ")
        assert (f"\n{caption}\n" in out) == (words is sweep)
        assert caption.splitlines()[-1] in out
        captions.clear()


def test_a_suite_is_drawn_without_a_sweep(run: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    path, plot_path = tmp_path / "mine.csv", tmp_path / "mine.svg"
    path.write_text("stem,ic3oc4ih9kh3\nlast,ic4oc4ih4kh1\n")
    words = ["--device", "cpu", "--budget", "0.2", "--plot", plot_path]
    code, _, err = run(path, *words, "--algorithms", "torch/default,reference/*,reference/gemm")
    assert code == 0
    assert set(err.splitlines()) <= {
        *(f"convwright: {name} {NOT_DRAWN}" for name in ("reference/*", "reference/gemm")),
        "convwright: none of reference/* that was measured may be chosen, so it is not drawn",
    }
    assert plot_path.read_text().count("<!-- stem -->") == 1


def test_tf32_is_asked_for_and_told(run: Command, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    before = flags.tf32_allowed()
    for words, count in ((["--no-tf32"], 1), (["--no-tf32"], 1), (["--tf32"], 2), ([], 3)):
        words = [PROBLEM, "--device", "h200", "--mode", "heuristic", *words, "--out", out, "--resume"]
        code, told, _ = run(*words)
        assert code == 0
        assert len(records(out)) == count
    assert "TF32 o" not in told.splitlines()[0]  # nobody asked
    forbidden, allowed, _ = records(out)
    assert (forbidden["tf32"], allowed["tf32"]) == (False, True)
    refused = [any("computes in tf32" in row["reason"] for row in each["candidates"]) for each in (forbidden, allowed)]
    assert refused == [True, False]
    assert flags.tf32_allowed() == before


def test_an_algorithm_that_is_refused_for_some_rows_is_no_mistake(run: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    words = [
        PROBLEM,
        *HEURISTIC,
        "--sweep",
        "sh=1,2",
        "--plot",
        tmp_path / "a.svg",
        "--algorithms",
        "reference/winograd",
    ]
    code, _, err = run(*words)
    assert (code, err.splitlines()[0]) == (2, "convwright: reference/winograd was not measured, so it is not drawn")
    assert err.splitlines()[1].startswith("convwright: there is nothing to draw")


def test_without_matplotlib_it_is_said_first(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    code, out, err = run(PROBLEM, *HEURISTIC, "--sweep", "ih=6,8", "--plot", tmp_path / "a.png")
    assert (code, out) == (2, "")
    assert err == ("convwright: pictures need matplotlib, which is not installed: pip install 'convwright[plot]'\n")


MISTAKES = [
    (["zooo"], "got 'zooo'"),
    (["absent.csv"], "there is no file 'absent.csv'"),
    (["ic2ih6oc2"], "kh is missing"),
    ([PROBLEM, "--sweep", "ih"], "ih=64..512:*2"),
    ([PROBLEM, "--sweep", "oh=3"], "change ih"),
    ([PROBLEM, "--sweep", "ih=1,2"], "ih=1: the filter reaches"),
    ([PROBLEM, "--sweep", "ih=6", "--sweep", "ih=8"], "swept once"),
    ([PROBLEM, "--mode", "slow"], "'slow'"),
    ([PROBLEM, "--mode", "off"], "'off'"),
    ([PROBLEM, "--device", "gtx480"], "'gtx480'"),
    ([PROBLEM, "--dtype", "int4"], "'int4'"),
    ([PROBLEM, "--layout", "hwcn"], "--layout must be one of nchw, nhwc, got 'hwcn'"),
    ([PROBLEM, "--direction", "backward"], "--direction must be one of forward, "),
    ([PROBLEM, "--max-error", "0"], "`max_error`"),
    ([PROBLEM, "--objective", "beauty"], "'beauty'"),
    ([PROBLEM, "--limit", "0"], "--limit takes a finite number above 0, got 0"),
    ([PROBLEM, "--batch", "-1"], "--batch takes a finite number above 0, got -1"),
    ([PROBLEM, "--budget", "0"], "--budget takes a finite number above 0, got 0"),
    ([PROBLEM, "--budget", "nan"], "--budget takes a finite number above 0, got nan"),
    ([PROBLEM, "--device", "h200", "--budget", "1"], "nothing is measured, so that --budget would be ignored"),
    ([PROBLEM, "--device", "h200", "--mode", "full"], "nothing is measured, so that --mode full would be ignored"),
    (["/"], "the path of a suite's file is needed, and '/' is a folder"),
    ([PROBLEM, "--resume"], "--resume continues the file that --out names: give --out too"),
    ([PROBLEM, "--out", "no/such/folder/a.jsonl"], "cannot be written to: No such file or directory"),
    ([PROBLEM, "--out", "/dev/null"], "results need a regular file, and '/dev/null' is not one"),
    ([PROBLEM, "--plot", "a.png"], "got no --sweep"),
    ([PROBLEM, "--plot", "a.gif", "--sweep", "ih=6,8"], "must end in .png, .svg, .pdf, got 'a.gif'"),
    ([PROBLEM, "--plot", "no/such/a.png", "--sweep", "ih=6,8"], "there is no folder 'no/such'"),
    ([PROBLEM, "--algorithms", "reference/gemm"], "without --plot"),
    (
        [PROBLEM, "--algorithms", "torch/default,nope", "--plot", "a.png", "--sweep", "ih=6,8"],
        "--algorithms: no algorithm here is called 'nope'; for this problem there are ",
    ),
    (
        [PROBLEM, "--algorithms", "nope/*", "--plot", "a.png", "--sweep", "ih=6,8"],
        "--algorithms: no algorithm here is called like 'nope/*'; for this problem there are ",
    ),
    (["gtc", "--plot-fit", "a.png"], "one problem, got 14"),
    ([PROBLEM, "--plot-fit", "a.png", "--mode", "heuristic"], "nothing runs"),
]


@pytest.mark.parametrize(("words", "named"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    run: Command, words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pictures, "find_spec", lambda name: name)
    code, out, err = run(*words, *([] if "--device" in words else ["--device", "cpu"]))
    assert (code, out) == (2, "")
    assert err.startswith("convwright: ")
    assert err.count("\n") == 1
    assert named in err
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_file_of_results_that_is_none(run: Command, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    for text in ("hello\n[1]\n", '{"schema": 3}\n', '{"benchmark": "bench"}\n[1]\n'):
        out.write_text(text)
        code, _, err = run(PROBLEM, *HEURISTIC, "--out", out, "--resume")
        assert code == 2
        assert out.read_text() == text
        wanted = "does not hold benchmark results" if "benchmark" not in text else "line 2: a line of results must be a"
        assert wanted in err
