"""The command line as a whole: wrong words and options, the version, help, and output that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from convwright import __version__
from convwright.cli import main as cli
from convwright.cli.main import main

MAIN = "from convwright.cli.main import main; main()"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line in this process."""
    monkeypatch.setattr(sys, "argv", ["convwright", *words])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


MISTAKES = [
    (["find", "--budget", "x"], "--budget", "'x'"),
    (["store", "prune", "--older-than", "soon"], "--older-than", "'soon'"),
    (["find", "--nonsense"], "--nonsense", "convwright find --help"),
    (["find", "one", "two"], "two", "convwright find --help"),
    (["find", "--json=3"], "--json", "value"),
    (["bench", "--limit"], "--limit", "argument"),
    (["time"], "missing argument", "targets"),
    (["fnd"], "'fnd'", "did you mean 'find'?"),
    (["store", "fnd"], "'fnd'", "convwright store --help"),
]


@pytest.mark.parametrize(("words", "option", "value"), MISTAKES, ids=[" ".join(words) for words, *_ in MISTAKES])
def test_wrong_words_and_options_are_one_sentence_and_exit_code_2(
    words: list[str], option: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("convwright: ")
    assert option in err
    assert value in err


def test_without_a_word_the_help_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch)
    assert (code, err) == (2, "")
    assert "show-env" in out


@pytest.mark.parametrize("words", [[], ["find"], ["store"], ["store", "prune"]], ids=" ".join)
def test_h_is_help(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = (run(capsys, monkeypatch, *words, option) for option in ("-h", "--help"))
    assert short == long
    assert short[0] == 0
    assert "Usage" in short[1]


def test_the_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(capsys, monkeypatch, "--version") == (0, f"convwright {__version__}\n", "")


@pytest.mark.parametrize(("raised", "code"), [(typer.Exit(7), 7), (typer.Abort(), 1), (KeyboardInterrupt(), 130)])
def test_other_ends_keep_their_exit_codes(
    raised: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end() -> None:
        raise raised

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(end)
    monkeypatch.setattr(cli, "app", app)
    assert run(capsys, monkeypatch)[:2] == (code, "")


def test_ctrl_c_ahead_of_the_command_ends_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_command", interrupted)
    assert run(capsys, monkeypatch, "show-env") == (130, "", "")


def test_an_error_of_the_system_that_is_not_about_output_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> None:
        Path("/nowhere/at/all").read_text()

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(end)
    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["convwright"])
    with pytest.raises(FileNotFoundError):
        main()


def ended(command: str, shell: str) -> tuple[int, str]:
    """Exit code and stderr of a process whose stdout goes where ``shell`` says."""
    words = f'exec "$0" -c "{MAIN}" {command} {shell}'
    done = subprocess.run(["sh", "-c", words, sys.executable], stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    return done.returncode, done.stderr


def test_output_that_cannot_be_written_is_one_sentence() -> None:
    assert ended("--version", ">&-") == (1, "convwright: standard output is closed, so nothing can be printed\n")
    if not Path("/dev/full").exists():
        pytest.skip("no device here is always full")
    code, err = ended("--help", ">/dev/full")
    assert (code, err) == (1, "convwright: the output cannot be written: No space left on device\n")


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape", "iso-8859-5"])
def test_an_output_without_some_letters_gets_the_nearest(encoding: str) -> None:
    words = ["find", "ic2ih4oc2kh3ph1", "--device", "h200", "--mode", "heuristic", "--no-refusals", "µ"]
    script = f"import sys; sys.argv[0] = 'convwright'; {MAIN}"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", script, *words[:-1]], capture_output=True, env=environment)
    printed = done.stdout.decode(encoding.partition(":")[0])
    assert (done.returncode, done.stderr) == (0, b"")
    assert "NVIDIA H200 . " in printed
    assert "limit us" in printed
    assert "?" not in printed
    wrong = subprocess.run([sys.executable, "-c", script, words[0], words[-1]], capture_output=True, env=environment)
    assert (wrong.returncode, wrong.stderr.split()[-1]) == (2, b"'u'")


ASKED = """
import sys
from convwright.cli.main import main
for words in sys.argv[1:]:
    sys.argv = ["convwright", *words.split()]
    try:
        main()
    except SystemExit as ended:
        print("exit code", ended.code or 0, "torch" in sys.modules)
"""


def asked(*commands: str) -> subprocess.CompletedProcess[str]:
    """Commands one after the other in a new process, which prints after each whether PyTorch is loaded."""
    return subprocess.run([sys.executable, "-c", ASKED, *commands], capture_output=True, text=True, check=True)


def test_help_and_version_need_no_torch() -> None:
    done = asked("--help", "--version")
    assert done.stderr == ""
    assert [line for line in done.stdout.splitlines() if "exit code" in line] == ["exit code 0 False"] * 2


def test_what_is_wrong_with_a_question_is_said_without_waiting_for_torch() -> None:
    done = asked("find ic2zz4", "find ic2ih4oc2kh1 --mode much", "explain ic2zz4", "emit-c ic2zz4")
    assert done.stdout == "exit code 2 False\n" * 4, done.stderr


@pytest.mark.parametrize(("columns", "boxes"), [("40", False), ("69", False), ("70", True), ("200", True)])
def test_in_a_narrow_terminal_names_of_options_can_be_read(
    columns: str, boxes: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words, option in ((["find"], "--max-workspace BYTES"), (["store", "list"], "--store ")):
        code, out, _ = run(capsys, monkeypatch, *words, "--help")
        assert code == 0
        assert ("╭" in out) == boxes
        assert boxes or option in out


def test_lines_of_help_are_as_long_as_the_terminal_allows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = run(capsys, monkeypatch, "place", "--help")
    paragraph = out[out.index("Times of a [[model]]") : out.index("Arguments")].splitlines()
    lines = [line.strip() for line in paragraph if line.strip(" ╭─")]
    assert len(lines) == 3
    assert all(len(line) > 80 for line in lines[:-1])


@pytest.mark.parametrize("columns", ["60", "100"])
def test_words_in_brackets_stay_in_the_help(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = run(capsys, monkeypatch, "place", "--help")
    assert code == 0
    assert "tables [[job]]" in out
    assert "Times of a [[model]] without an [[estimate]] are predicted." in " ".join(out.split())
