"""`convwright optimize`, `run` and `explain` of a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from shutil import copytree

import numpy
import pytest
import torch
from torch.testing import assert_close

import convwright as cw
from convwright.cli.main import main
from convwright.cli.model_target import model_and_example
from convwright.core.finding import Interval
from convwright.errors import Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure
from convwright.settings import settings

Run = Callable[..., tuple[int, str, str]]

MODEL = """
import sys

import torch

def small():
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)
    return torch.nn.Sequential(*layers).eval(), torch.ones(2, 3, 8, 8)

class Branching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 1)

    def forward(self, x):
        print("the model's own line", file=sys.stderr)
        y = self.first(x)
        return self.second(y if float(y.sum()) > 0 else -y)

def branching():
    return Branching().eval(), torch.ones(2, 3, 8, 8)

def trains():
    model, x = small()
    return model.train(), x

def breaks():
    raise ValueError("reached")

def by_name():
    model, x = small()
    return model, {"input": x}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Exit code, stdout and stderr of `convwright …`, in a folder that has models."""
    (tmp_path / "models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        code = ended(*words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def ended(*words: str) -> int:
    """The exit code of `convwright …`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["convwright", *words])
        with pytest.raises(SystemExit) as done:
            main()
    return int(done.value.code or 0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder `engine`, and what was printed when it was written."""
    folder, printed = tmp_path_factory.mktemp("planned"), StringIO()
    (folder / "models.py").write_text(MODEL)
    words = ("optimize", "models.py:small", "--out", "engine", "--mode", "heuristic", "--device", "cpu")
    with chdir(folder), redirect_stdout(printed):
        assert ended(*words) == 0
    return folder / "engine", printed.getvalue()


@pytest.fixture
def planned(run: Run, saved: tuple[Path, str], tmp_path: Path) -> str:
    """What was printed when an engine was written to the folder `engine`, of which here is a copy."""
    folder, printed = saved
    copytree(folder, tmp_path / "engine")
    return printed


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_model_cannot_move_to_a_device_that_is_not_here(run: Run) -> None:
    code, _, err = run("optimize", "models.py:small", "--mode", "heuristic", "--device", "cuda")
    assert code == 2
    assert "PyTorch sees no CUDA device on this machine" in err


def test_model_and_example_move_to_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODEL)
    somewhere = replace(device_facts("cpu"), torch_name="meta")
    monkeypatch.setattr("convwright.measuring.hardware.machine.device_facts", lambda _: somewhere)
    model, (x,) = model_and_example(f"{tmp_path}/models.py:small", None, "cpu")
    assert {each.device.type for each in (x, *model.parameters(), *model.buffers())} == {"meta"}


def test_an_engine_is_planned_explained_and_run(run: Run, planned: str) -> None:
    assert "3+4" not in planned
    assert "arena: " in planned
    code, out, err = run("explain", "engine", "--device", "cpu")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["step", "runs", "type", "layout", "µs", "memory", "why"]
    code, out, err = run("run", "engine", "--device", "cpu")
    assert (code, err) == (0, "")
    first, last = out.splitlines()
    assert first == "output 0: float32 (2, 4, 8, 8)"
    assert last.startswith(("a call takes ", "the machine is too busy for a trustworthy time ("))


def test_where_the_engine_is_written_is_said(run: Run, planned: str) -> None:
    assert planned.splitlines()[-1] == "the engine is in engine: `convwright run engine` runs it"


def test_the_folder_is_checked_before_anything_is_planned(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, said in (("file", "'file' is a file"), ("/proc/x", "'/proc/x' cannot be made"), ("/proc", "written")):
        code, out, err = run("optimize", "models.py:breaks", "--out", folder)
        assert (code, out) == (2, "")
        assert said in err
        assert "reached" not in err
    assert "reached" in run("optimize", "models.py:breaks", "--out", "engine")[2]
    assert not Path("engine").exists()


def test_a_model_in_training_mode_is_planned_in_evaluation_mode(run: Run) -> None:
    code, _, err = run("optimize", "models.py:trains", "--mode", "heuristic")
    assert code == 0
    assert err == "convwright: the model is in training mode, and is planned in evaluation mode\n"


@pytest.mark.parametrize(("low", "high", "disturbed"), [(0.0, 1e9, False), (8.9, 9.1, True)])
def test_a_time_of_a_busy_machine_is_not_printed(
    run: Run, planned: str, monkeypatch: pytest.MonkeyPatch, low: float, high: float, disturbed: bool
) -> None:
    others = "other work had the cores"
    timing = replace(
        measure(lambda: None, device="cpu", budget_us=1e4),
        call_us=Interval(9.0, low, high), unstable=others, background=(others,), disturbed=disturbed,
    )  # fmt: skip
    monkeypatch.setattr("convwright.measuring.timer.measure", lambda *_, **__: timing)
    _, out, _ = run("run", "engine", "--device", "cpu")
    assert out.splitlines()[-1] == (
        f"the machine is too busy for a trustworthy time ({others}): stop other work on it, and run this again"
    )


def test_a_profile_is_printed_and_a_trace_written(run: Run, planned: str) -> None:
    code, out, err = run("run", "engine", "--device", "cpu", "--profile", "--trace", "trace.json")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("all: ")
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


def test_memory_is_told_and_drawn(run: Run, planned: str) -> None:
    code, out, err = run("run", "engine", "--device", "cpu", "--memory", "--picture", "memory.svg")
    assert (code, err) == (0, "")
    assert "weights: " in out
    assert "<svg" in Path("memory.svg").read_text()


def test_inputs_and_outputs_are_files(run: Run, planned: str, tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    numpy.save("x.npy", x.numpy())
    code, _, err = run("run", "engine", "--device", "cpu", "--input", "x.npy", "--output", "y.npz")
    assert (code, err) == (0, "")
    written = torch.from_numpy(numpy.load("y.npz")["output_0"])
    assert_close(written, cw.load("engine", "cpu")(x))


def test_a_model_may_be_cast_first(run: Run) -> None:
    code, _, _ = run("optimize", "models.py:small", "--out", "half", "--mode", "heuristic", "--dtype", "bf16")
    assert code == 0
    assert cw.load("half", "cpu")(torch.ones(2, 3, 8, 8, dtype=torch.bfloat16)).dtype is torch.bfloat16


def test_a_precision_is_asked_for(run: Run) -> None:
    words = ("--out", "engine", "--mode", "heuristic", "--precision", "mixed", "--max-output-error", "0.1")
    code, out, _ = run("optimize", "models.py:small", *words)
    assert code == 0
    assert out.splitlines()[0].split() == ["step", "runs", "type", "layout", "µs", "memory", "why"]
    assert "fp32→fp16" in out
    assert cw.load("engine", "cpu")(torch.ones(2, 3, 8, 8)).dtype is torch.float32


@pytest.mark.slow
def test_an_engine_may_have_buckets(run: Run) -> None:
    words = ("optimize", "models.py:small", "--out", "several", "--mode", "heuristic", "--buckets", "1,4x3x8x8")
    code, out, _ = run(*words)
    assert code == 0
    told = ["bucket 1:", "bucket 4x3x8x8:"]
    assert [line for line in out.splitlines() if line.startswith("bucket")] == told
    code, out, err = run("explain", "several", "--device", "cpu")
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("bucket")] == told
    code, out, err = run("run", "several", "--device", "cpu", "--memory", "--profile")
    assert (code, err) == (0, "")
    assert out.startswith("output 0: float32 (4, 4, 8, 8)\n")
    assert "weights: " in out
    numpy.save("x.npy", torch.randn(6, 3, 8, 8).numpy())
    code, out, err = run("run", "several", "--device", "cpu", "--input", "x.npy")
    assert (code, err) == (0, "")
    assert out.startswith("output 0: float32 (6, 4, 8, 8)\n")


def test_compiled_kernels_are_written_and_trusted(run: Run) -> None:
    code, _, _ = run("optimize", "models.py:small", "--out", "engine", "--mode", "heuristic", "--kernels")
    assert code == 0
    assert json.loads(Path("engine/kernels.json").read_text()) == {"version": 1, "kernels": []}  # none on a CPU
    code, out, err = run("run", "engine", "--device", "cpu", "--trust-kernels")
    assert (code, err) == (0, "")
    assert out.startswith("output 0: float32 (2, 4, 8, 8)\n")


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_a_predicted_plan_is_printed_again_and_does_not_run(run: Run, device: str) -> None:
    words = ("optimize", "models.py:small", "--plan-only", "--device", device, "--out", "plan")
    code, planned, _ = run(*words)
    assert code == 0
    *shown, said = planned.splitlines()
    assert said == "the plan is in plan: `convwright explain plan` prints it"
    code, out, err = run("explain", "plan")
    assert (code, err) == (0, "")
    assert out.splitlines() == shown
    label = device_facts(device).label
    assert f"planned for {label}, without running anything: " in out
    assert json.loads(run("explain", "plan", "--json")[1])["steps"]
    assert run("explain", "plan", "--device", "cpu")[2].endswith(
        f"plan holds a plan predicted for {label}: leave out --device\n"
    )
    code, out, err = run("run", "plan")
    assert (code, out) == (1, "")
    assert "plan was planned from predictions for " in err
    with pytest.raises(Refused) as said:
        cw.load("plan")
    assert err == f"convwright: {said.value}\n"


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_wrong_mode_in_the_environment_is_refused(
    run: Run, planned: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "fast")
    settings.cache_clear()
    code, out, err = run(command, "engine")
    modes = "off, heuristic, predict, predict-top, quick, full"
    assert (code, out, err) == (2, "", f"convwright: CONVWRIGHT_MODE must be one of {modes}, got 'fast'\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("optimize", "models.py:small", "--precision", "fp12"), "precision must be one of fp16, bf16, tf32, mixed"),
        (("optimize", "models.py:small", "--max-output-error", "1"), "`max_output_error` belongs to"),
        (("optimize", "models.py:small", "--kernels"), "--kernels belongs to --out"),
        (("run", "engine", "--device", "cpu", "--trust-kernels"), "engine was saved without compiled kernels"),
        (
            ("run", "nothing"),
            "there is no folder 'nothing': `convwright optimize TARGET --out FOLDER`, or `engine.save(folder)`, writes",
        ),
        (("run", "models.py"), "'models.py' is a file, and an engine is a folder"),
        (("run", "engine/plan.json"), "'engine/plan.json' is a file of an engine: name its folder, 'engine'"),
        (("run", "."), "holds no plan.json, so it holds no engine"),
        (("run", "engine", "--output", "no/y.npz"), "'no/y.npz' cannot be written: No such file or directory"),
        (("run", "engine", "--output", "/proc/y.npz"), "'/proc/y.npz' cannot be written"),
        (("run", "engine", "--picture", "a.txt"), "the name of a picture must end in .png"),
        (("optimize", "models.py:small", "--dtype", "int8"), "--dtype must be fp16, bf16, fp32 or fp64, got 'int8'"),
        (("explain", "."), "plan.json, so it holds no engine"),
        (("run", "engine", "--device", "cpu", "--input", "models.py"), "cannot be read as a .npy file"),
        (("run", "engine", "--device", "cpu", "--input", "no.npy"), "as a .npy file: No such file or directory\n"),
        (("run", "engine", "--device", "cpu", "--input", "a.npy", "--input", "b.npy"), "takes 1 input, got 2 files"),
        (("optimize", "models.py:by_name"), "must return an nn.Module and a tensor or a tuple of tensors"),
        (
            ("optimize", "models.py:small", "--mode", "off"),
            "mode must be one of heuristic, predict, predict-top, quick, full, got 'off'",
        ),
        (("optimize", "models.py:small", "--dtype", "fp12"), "fp12"),
        (("optimize", "models.py:small", "--buckets", "1;2"), "a bucket is written as 32, 32x3x224x224, or"),
        (("optimize", "models.py:small", "--buckets", "0"), "a bucket is a batch size, a shape, or"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, planned: str, words: tuple[str, ...], sentence: str) -> None:
    code, out, err = run(*words)
    assert code in (1, 2)
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_passes_say_what_they_change(run: Run) -> None:
    code, out, err = run("passes", "models.py:small", "--diff")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("captured: ")
    assert "  1 is folded into the weights of 0." in lines
    assert any(line.endswith(": 1 change, 3 nodes left") for line in lines), "a count of one has no plural"
    assert any(line.startswith("  -") and "pointwise" in line for line in lines)
    assert any(line.startswith("  +") and "w=0.weight with 1" in line for line in lines)
    code, out, _ = run("passes", "models.py:small")
    assert code == 0
    assert not any(line.startswith(("  -", "  +")) for line in out.splitlines())


def test_parts_of_a_model_are_planned_where_it_cannot_be_exported(run: Run) -> None:
    code, _, err = run("optimize", "models.py:branching", "--mode", "heuristic")
    assert code == 1
    assert err.splitlines() == [
        "the model's own line",
        "convwright: the model cannot be exported as a whole: what it does next depends on the values in a tensor "
        "(models.py, line 19, in forward); `partial=True`, or --partial, plans the parts that can be exported",
    ]
    code, out, err = run("optimize", "models.py:branching", "--mode", "heuristic", "--partial")
    assert code == 0
    assert [line for line in out.splitlines() if line.endswith(":")] == ["first:", "second:"]
    code, _, err = run("optimize", "models.py:branching", "--mode", "heuristic", "--partial", "--out", "parts")
    assert code == 2
    assert "cannot be written to a folder" in err


def test_a_memory_budget_is_kept_or_refused(run: Run) -> None:
    code, out, _ = run(
        "optimize", "models.py:small", "--mode", "heuristic", "--memory-budget", "1MiB", "--out", "engine"
    )
    assert code == 0
    assert "arena: " in out
    code, out, err = run("run", "engine", "--device", "cpu", "--memory")
    assert (code, err) == (0, "")
    assert "peak, without weights and inputs: " in out
    code, out, err = run("optimize", "models.py:small", "--mode", "heuristic", "--memory-budget", "1kB")
    assert (code, out) == (1, "")
    assert "does not fit into a memory budget of 1,000 bytes: the smallest possible is " in err
