"""What users get wrong with the commands that take a model, with `time` and with `bench`: one sentence each, which says
what was expected and what was given, and never a traceback."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from convwright.cli.main import main

SOURCE = """
import torch
from torch import nn

X = torch.ones(1, 3, 8, 8)
value = 3


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x) if x.sum() > 0 else x


def conv(): return nn.Conv2d(3, 4, 3).eval(), X
def channels(): return nn.Conv2d(3, 4, 3).eval(), torch.ones(1, 2, 8, 8)
def flat(): return nn.Conv2d(3, 4, 3).eval(), torch.ones(8)
def half(): return nn.Conv2d(3, 4, 3).eval(), X.half()
def whole(): return nn.Conv2d(3, 4, 3).eval(), X.long()
def meta(): return nn.Conv2d(3, 4, 3).eval(), X.to("meta")
def text(): return nn.Conv2d(3, 4, 3).eval(), "image.png"
def nothing(): return None
def alone(): return nn.Conv2d(3, 4, 3)
def three(): return nn.Conv2d(3, 4, 3), X, 1
def swapped(): return X, nn.Conv2d(3, 4, 3)
def lazy(): return nn.LazyConv2d(4, 3), X
def raises(): raise RuntimeError("no checkpoint")
def needs(path): return nn.Conv2d(3, 4, 3), X
def nan(): return nn.Conv2d(3, 4, 3), X / 0
def too_small(): return nn.Conv2d(3, 4, 9).eval(), X
def no_samples(): return []
def bad_samples(): return [torch.ones(1, 2, 8, 8)]
def text_samples(): return ["a"]
def dicts(): return nn.Conv2d(3, 4, 3).eval(), {"input": X}
def branches(): return Branch().eval(), X
def fine(): return torch.ones(10)
"""

MISTAKES = [
    # What a target names.
    ("advise nets.py", "module:function or path/to/file.py:function, got 'nets.py'"),
    ("advise nets.py:nosuch", "'nets.py' has no attribute 'nosuch'"),
    ("advise nets.py:too_smal", "'nets.py' has no attribute 'too_smal', did you mean 'too_small'?"),
    ("advise nets.py:conv --top many", "--top must be a whole number, got 'many'"),
    ("find ic4ih8oc4kh3 --max-error abc", "--max-error must be a number, got 'abc'"),
    ("advise nets.py:value", "'nets.py:value' must name something callable, got int"),
    ("advise nosuch.py:conv", "there is no file 'nosuch.py'"),
    ("advise nosuch:conv", "No module named 'nosuch'"),
    ("advise folder", "'folder' is a folder"),
    ("advise folder:conv", "'folder' is a folder"),
    ("optimize engine", "'engine' is a folder; `convwright run` takes the folder of an engine"),
    ("predict ./folder", "'./folder' is a folder"),
    ("tune notes.txt:conv", "one of Python, whose name ends in .py, got 'notes.txt'"),
    ("passes broken.py:f", "file 'broken.py' cannot be imported: SyntaxError"),
    ("quantize empty.py:conv", "'empty.py' has no attribute 'conv'"),
    ("advise os:getcwd", "'os:getcwd' is built in or of Python's standard library"),
    ("advise nets.py:raises", "raised RuntimeError: no checkpoint (nets.py, line"),
    ("advise nets.py:needs", "missing 1 required positional argument: 'path'"),
    # What its function returns.
    ("advise nets.py:nothing", "'nets.py:nothing' must return (model, example), got NoneType"),
    ("advise nets.py:alone", "or give the shape of its input, as --input 1,3,224,224"),
    ("advise nets.py:three", "must return (model, example), got a tuple of 3"),
    ("advise nets.py:swapped", "`model` must be an nn.Module or another callable, got Tensor"),
    ("advise nets.py:lazy", "`weight` of the model gets its shape at the first call"),
    ("advise nets.py:text", "`example` must be a tensor, a tuple of arguments or a dict of keyword arguments, got str"),
    ("optimize nets.py:dicts", "must return an nn.Module and a tensor or a tuple of tensors"),
    ("passes nets.py:nothing", "must return (model, example), got NoneType"),
    # Shapes, dtypes and devices of examples.
    ("advise nets.py:channels", "the model does not run on its example: RuntimeError: Given groups=1"),
    ("advise nets.py:flat", "the model does not run on its example: RuntimeError: Expected 3D (unbatched) or 4D"),
    ("advise nets.py:half", "the model does not run on its example: RuntimeError: Input type"),
    ("tune nets.py:whole", "the model does not run on its example: RuntimeError: Input type"),
    ("advise nets.py:too_small", "Kernel size can't be greater than actual input size"),
    ("advise nets.py:conv --input 1,3", "the model does not run on its example"),
    ("advise nets.py:conv --input 1,3,-8,8", "--input must be the shape of an input, for example 1,3,224,224, got"),
    ("optimize nets.py:channels", "the model cannot be called with the example: Given groups=1"),
    ("optimize nets.py:meta", 'the example is on "meta", where nothing runs'),
    ("quantize nets.py:meta", 'sample 0 is on "meta"'),
    ("quantize nets.py:nan", "sample 0 holds a NaN or an infinity"),
    (
        "time nets.py:channels",
        "the model of 'nets.py:channels' does not run on its example: RuntimeError: Given groups",
    ),
    # Devices.
    ("advise nets.py:conv --device gtx480", "got 'gtx480'"),
    ("advise nets.py:conv --device h200 --mode full", "so that mode full would be ignored"),
    ("bench ic3ih8oc4kh3 --device h200 --mode full", "so that --mode full would be ignored"),
    ("tune nets.py:conv --device h200", "--plan-only"),
    ("optimize nets.py:conv --device h200", "h200 is a device to plan for with --plan-only"),
    ("predict nets.py:conv --device nosuch", "got 'nosuch'"),
    ("time nets.py:fine --device tpu", "got device 'tpu'"),
    # Options.
    ("advise nets.py:conv --mode fast", "'fast'"),
    ("advise nets.py:conv --mode off", "'off'"),
    ("advise nets.py:conv --top 0", "`top` must be at least 1, got 0"),
    ("advise nets.py:conv --objective speed", "'speed'"),
    ("advise nets.py:conv --max-error -1", "`max_error` must be positive (multiples of PyTorch's error), got -1.0"),
    ("advise nets.py:conv --max-workspace big", "got 'big'"),
    ("advise nets.py:conv --mode heuristic --compiled", "so that `compiled` would be ignored"),
    ("optimize nets.py:conv --dtype fp8", "dtype must be one of"),
    ("optimize nets.py:conv --buckets a,b --mode heuristic", "a bucket is written as 32, 32x3x224x224"),
    ("optimize nets.py:conv --kernels", "--kernels belongs to --out"),
    ("tune nets.py:conv --budget 0", "--budget takes a finite number above 0, got 0"),
    ("tune nets.py:conv --budget nan", "--budget takes a finite number above 0, got nan"),
    ("tune nets.py:conv --plan-only --budget 3", "--plan-only measures nothing, so that --budget would be ignored"),
    ("predict nets.py:conv --layout nhwc", "--layout is of a problem, and a network was given"),
    ("predict nets.py:conv --batch 0", "`batch` must be a whole number above 0, or None, got 0"),
    ("quantize nets.py:alone", "so --samples must say where inputs are, or --input which shape they have"),
    ("quantize nets.py:conv --samples nets.py:no_samples", "`samples` must hold at least one input, got none"),
    ("quantize nets.py:conv --samples nets.py:bad_samples", "sample 0: the model does not run on its example"),
    ("quantize nets.py:conv --samples nets.py:text_samples", "sample 0: it must be a tensor"),
    ("quantize nets.py:conv --samples nets.py:nothing", "must return an iterable of inputs, got NoneType"),
    ("quantize nets.py:conv --keep layer9", "`keep` names 'layer9', and the model is a convolution itself"),
    ("quantize nets.py:conv --ranges most", "`ranges` must be one of mse, largest, got 'most'"),
    ("quantize nets.py:conv --max-layer-error 0", "`max_layer_error` must be above 0 (relative L2), got 0.0"),
    ("time nets.py:alone", "returns a model (Conv2d) without an example, so only making it could be timed"),
    ("time nets.py:raises", "raised RuntimeError: no checkpoint"),
    ("time nets.py:fine nets.py:fine", "each target can be given once"),
    ("time nets.py:fine --budget 0", "--budget takes a finite number above 0, got 0"),
    ("time nets.py:fine --cache warm", "--cache must be hot or cold, got 'warm'"),
    ("time nets.py:fine --threads 0", "`threads` must be at least 1, got 0"),
    # Files.
    (
        "optimize nets.py:conv --mode heuristic --out notes.txt",
        "an engine is written to a folder, and 'notes.txt' is a file",
    ),
    (
        "bench ic3ih8oc4kh3 --mode heuristic --out store.jsonl",
        "'store.jsonl' does not hold benchmark results, and was not changed",
    ),
    (
        "bench ic3ih8oc4kh3 --mode heuristic --out folder",
        "results need a regular file, and 'folder' is not one",
    ),
    ("bench ic3ih8oc4kh3 --resume", "--resume continues the file that --out names: give --out too"),
    ("bench ic3ih8oc4kh3 --sweep iq=1..3", "a sweep is written ih=64..512:*2"),
    ("bench ic3ih8oc4kh3 --limit 0", "--limit takes a finite number above 0, got 0"),
    ("bench folder", "'folder' is a folder"),
    ("bench notes.txt", "notes.txt, line 1"),
    # Commands of a problem.
    ("find nets.py:conv", "'nets.py:conv' is a model: `convwright advise` and `convwright optimize` take models"),
    ("explain nets.py:conv", "'nets.py:conv' is a model: `convwright advise` and `convwright optimize` take models"),
    ("find 1,3,224,224", "'1' in '1,3,224,224' is no size with its number"),
    ("find mb-1ic8ih8oc8kh3", "'mb-1' in 'mb-1ic8ih8oc8kh3' is no size with its number"),
    ("find ic8ih8oc8kh3kh5", "'kh' stands twice in 'ic8ih8oc8kh3kh5'"),
    ("find ic8ih8oc8kh3sh0", "`sh` must be at least 1, got 0"),
    ("find 'poool max ic8ih8 kh2'", "no kind of problem is called 'poool'; there are conv, linear"),
    ("find ic8ih8oc8kh3 --why torch/default --csv", "so that --csv would be ignored"),
    ("find ic8ih8oc8kh3 --input 1,8,8,8 --weight 8,8,3,3", "or --input and --weight, got both"),
    ("find ic8ih8oc8kh3 --store folder", "folder is a folder: name a file in it, such as folder/findings.sqlite"),
    ("predict ic8ih8oc8kh3 --batch 3", "--batch is of a network (module:function), and 'ic8ih8oc8kh3' is a problem"),
    ("predict ic8ih8oc8kh3 --plot p.png", "--plot draws a sweep: give --sweep too, for example --sweep iw=200:260"),
    ("bench ic8ih8oc8kh3 --sweep ih=9..4:*2", "a sweep goes from a smaller value to a larger one"),
    ("bench ic8ih8oc8kh3 --sweep ih=4,5 --sweep ih=6,7", "each size can be swept once"),
    ("bench ic8ih8oc8kh3 --sweep ih=4,5 --plot-fit p.png", "--plot-fit draws the timing of one problem, got 2"),
    ("bench ic8ih8oc8kh3 --fresh --store a.sqlite", "so that --store would be ignored"),
    ("emit-c nets.py:conv --device h200", "'nets.py:conv' is a model: `convwright advise` and"),
    (
        "emit-c ic8ih8oc8kh3 --device h200 --algorithm triton/direct",
        "a C file needs an algorithm or an engine of cuDNN",
    ),
    # Engines, placements and campaigns.
    ("run engine --output y.npy", "--output takes the name of a .npz file, such as y.npz, got 'y.npy'"),
    ("run engine --input no.npy", "plan.json"),
    ("place notes.txt", "notes.txt is not TOML"),
    ("place folder", "folder is a folder: give a file of TOML"),
    ("place jobs.toml --simulate 0", "--simulate takes a finite number above 0, got 0"),
    ("place jobs.toml --limit -1", "--limit takes a finite number above 0, got -1"),
    (
        "sample --device cpu --for 1m --repeat 3 --store s.sqlite",
        "`repeat` is a share of the problems, between 0 and 1, got 3.0",
    ),
    ("sample --device cpu --for 1m --store folder", "folder is a folder: name a file in it"),
    ("store export new.jsonl --store nosuch.sqlite", "there is no store at nosuch.sqlite"),
    ("store import notes.txt --store s.sqlite", "line 1 of notes.txt is not a line of exported findings"),
]
STORE = '{"schema": 5}\n{"kind": "finding"}\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what users have, which is the present one."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    files = {"nets.py": SOURCE, "empty.py": "", "broken.py": "def f(:\n", "notes.txt": "x", "store.jsonl": STORE}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    for folder in ("folder", "engine"):
        (tmp_path / folder).mkdir()
    (tmp_path / "engine" / "plan.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_sentence(
    line: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["convwright", *shlex.split(line)])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    assert done.value.code in (1, 2)
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("convwright: ")
    assert sentence in said.err
    assert (here / "store.jsonl").read_text() == STORE
    assert (here / "notes.txt").read_text() == "x"


def test_what_is_no_mistake_runs(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same files, used as they are meant."""
    monkeypatch.setattr(sys, "argv", ["convwright", "advise", "nets.py:conv", "--mode", "heuristic"])
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    assert "torch/default" in capsys.readouterr().out
    assert (here / "nets.py").read_text() == SOURCE
