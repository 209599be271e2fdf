"""``convwright emit-c``: two files, what was chosen in words or as JSON, and one sentence for a mistake."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from convwright.backends.cudnn.library import Missing, load
from convwright.cli.main import main
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.one import emit_c
from convwright.store.store import Store
from unprivileged import read_only

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

PROBLEM = "mb2ic16ih10oc16kh3ph1"
KEY = "g1mb2ic16oc16ih10iw10oh10ow10kh3kw3sh1sw1ph1pw1dh0dw0"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line in this process."""
    monkeypatch.setattr(sys, "argv", ["convwright", "emit-c", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_a_convolution(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    words = ["--device", "h200", "--name", "mine", "--dtype", "fp16", "--layout", "nhwc", "--epilogue", "bias+relu"]
    code, out, err = run(capsys, monkeypatch, PROBLEM, *words, "--out", str(tmp_path))
    assert (code, err) == (0, "")
    expected = emit_c(f"{PROBLEM} dt:fp16 tag:nhwc ep:bias+relu", device="h200", name="mine")
    assert (tmp_path / "mine.c").read_text() == expected.source
    assert (tmp_path / "mine.h").read_text() == expected.header
    key = f"{KEY} dt:fp16 dir:forward tag:nhwc ep:bias+relu"
    assert out == f"{tmp_path / 'mine.c'}\n{tmp_path / 'mine.h'}\n{key}: {expected.chosen[0].id}\n"


def test_json_tells_files_and_choice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["--device", "h200", "--algorithm", "cudnn/engine-0", "--direction", "backward_weight", "--json"]
    code, out, err = run(capsys, monkeypatch, PROBLEM, *words, "--out", str(tmp_path))
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["files"] == [str(tmp_path / "conv.c"), str(tmp_path / "conv.h")]
    assert told["problem"] == f"{KEY} dt:fp32 dir:backward_weight tag:nchw ep:none"
    assert told["candidate"].startswith("cudnn/engine-0")
    assert told["arithmetic"] == "fp32"
    assert isinstance(told["workspace_bytes"], int)


def test_tf32_is_permitted_as_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {}
    for permission in ("--tf32", "--no-tf32"):
        words = ["mb32ic64ih56oc64kh3ph1", "--device", "h200", permission, "--json", "--out", str(tmp_path)]
        found[permission] = json.loads(run(capsys, monkeypatch, *words)[1])["arithmetic"]
    assert found == {"--tf32": "tf32", "--no-tf32": "fp32"}


def test_any_sizes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    words = ["--dynamic", "--device", "h200", "--out", str(tmp_path), "--table", PROBLEM]
    words += ["--table", "mb1ic8iw9oc8kw3", "--dtype", "fp16", "--layout", "nhwc"]
    code, out, _ = run(capsys, monkeypatch, *words, "--json")
    told = json.loads(out)
    assert code == 0
    key = f"{KEY} dt:fp16 dir:forward tag:nhwc ep:none"
    assert [row["problem"] for row in told["table"]] == [key], "the options say what the text does not"
    assert "two dimensions" in told["left_out"][0]["reason"]
    expected = emit_c_dynamic([f"{PROBLEM} dt:fp16 tag:nhwc"], dtype="fp16", layout="nhwc", device="h200")
    assert (tmp_path / "conv.c").read_text() == expected.source
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert "left out: g1mb1ic8oc8iw9ow7kw3" in out


def test_what_a_problem_in_the_table_says_of_itself_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = {
        "dt:fp32": "the table needs fp16 with the epilogue bias",
        "tag:nchw": "dense in nhwc",
        "ep:relu": "the table needs fp16 with the epilogue bias",
        "dir:backward_data": "the table needs forward convolutions",
        "dir:backward_weight ep:none": "the table needs forward convolutions",
    }
    words = ["--dynamic", "--device", "h200", "--out", str(tmp_path), "--json"]
    words += ["--dtype", "fp16", "--layout", "nhwc", "--epilogue", "bias"]
    for own in ("", *others):
        words += ["--table", f"{PROBLEM} {own}".strip()]
    code, out, _ = run(capsys, monkeypatch, *words)
    told = json.loads(out)
    assert code == 0
    assert [row["problem"] for row in told["table"]] == [f"{KEY} dt:fp16 dir:forward tag:nhwc ep:bias"]
    assert len(told["left_out"]) == len(others)
    for left_out, (own, reason) in zip(told["left_out"], others.items(), strict=True):
        assert own.split()[0] in left_out["problem"]
        assert reason in left_out["reason"]


def test_a_store_that_cannot_be_written_to_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "fixed" / "findings.sqlite", Path(folder) / "out"
        for place in (path.parent, out):
            place.mkdir()
        for place in (out, out.parent):
            place.chmod(0o777)
        Store.open(path).close()
        words = [PROBLEM, "--device", "h200", "--out", str(out)]
        expected = run(capsys, monkeypatch, *words)
        for file in out.iterdir():  # which is nobody else's to write over
            file.unlink()
        with read_only(path):
            code, said, err = run(capsys, monkeypatch, *words, "--store", str(path))
    assert (code, said) == (0, expected[1])
    assert err.startswith(f"convwright: new findings are kept in memory only, since {path} cannot be ")
    assert err.count("\n") == 1


def test_an_empty_table_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["--dynamic", "--device", "h200", "--out", str(tmp_path)]
    empty = "the table is empty: every size goes by cuDNN's heuristic"
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")
    assert out.splitlines()[2:] == [f"{empty}; give --table"]
    code, out, _ = run(capsys, monkeypatch, *words, "--table", f"{PROBLEM} dt:fp16")
    assert out.splitlines()[3:] == [empty]
    code, out, _ = run(capsys, monkeypatch, *words, "--table", PROBLEM)
    assert empty not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algorithm", "cudnn/gemm[math=tf32]", "--no-tf32"], "computes in tf32, allowed are"),
        (["--algorithm", "cudnn/algo-0", "--direction", "backward_data", "--deterministic"], "is not deterministic"),
        (["--algorithm", "cudnn/fft", "--max-workspace", "8"], "bytes of workspace, 8 are allowed"),
        (["--epilogue", "gelu"], "a C file fuses only residual, bias and relu"),
        (["--name", "pthread"], "the name pthread is a header"),
    ],
)
def test_what_is_named_keeps_to_what_is_asked_for(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, out, err = run(capsys, monkeypatch, PROBLEM, *words, "--device", "h200", "--out", str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "emit-c needs a problem such as"),
        ([PROBLEM, "--table", "zoo"], "--table is of the sizes that --dynamic chooses for"),
        (["--dynamic", PROBLEM], "each call gives the sizes: leave out the problem (--table PROBLEM"),
        (["--dynamic", "--algorithm", "cudnn/gemm"], "leave out --algorithm"),
        (["--dynamic", "--direction", "forward"], "leave out --direction"),
        (["--dynamic", "--table", "nonsense"], "got 'nonsense'"),
        ([PROBLEM, "--algorithm", "triton/implicit-gemm"], "got 'triton/implicit-gemm'"),
        ([PROBLEM, "--algorithm", "cudnn/nonsense"], "no algorithm here is called 'cudnn/nonsense'"),
        ([PROBLEM, "--name", "no name"], "the name must have at most 40 letters"),
        ([f"{PROBLEM} dt:fp16", "--dtype", "fp32"], "dt is given twice"),
        ([PROBLEM, "--max-workspace", "-1"], "such as 64MB or 1GiB, got '-1'"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    code, out, err = run(capsys, monkeypatch, *words, "--device", "h200", "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_gpu_has_to_be_named_where_there_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = run(capsys, monkeypatch, PROBLEM, "--out", str(tmp_path))
    assert code == 2
    assert "PyTorch sees no GPU in this machine" in err
