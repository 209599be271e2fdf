"""`convwright store`: what is remembered is shown, carried, pruned and forgotten, and mistakes harm nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from convwright.cli.counting import counting
from convwright.cli.main import main
from convwright.core.problem import ConvProblem
from convwright.settings import settings
from convwright.store.schema import SCHEMA_VERSION
from convwright.store.store import Store
from tuning.made import measurement
from unprivileged import read_only

TEXT = "ic8ih9oc8kh3"
KEY = ConvProblem.parse(TEXT).key
OTHER = ConvProblem.parse("ic4ih9oc4kh3").key
DEVICE, PRINT = "NVIDIA H200", "torch 2.13"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three findings, of which one is a failure, and one candidate in quarantine."""
    path = tmp_path / "findings.sqlite"
    with Store.open(path) as store:
        store.record(KEY, DEVICE, "torch/default", PRINT, measurement(20.0), None)
        store.record(KEY, DEVICE, "cudnn/gemm", "cudnn 9.19", measurement(10.0), None)
        store.record(OTHER, DEVICE, "cudnn/fft", "cudnn 9.19", None, "ran out of memory")
        store.record_search(KEY, DEVICE, "quick", ["torch/default", "cudnn/gemm"])
    with closing(sqlite3.connect(path)) as database, database:
        row = (KEY, DEVICE, "cudnn/engine-7[k2=0]", "token", "cudnn 9.19", "elsewhere", None, 7, None, 1.7e9)
        database.execute("INSERT INTO trying VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    return path


@pytest.fixture
def run(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, stdout and stderr of `convwright store …` on that store."""

    def command(*words: str, store: Path | None = path) -> tuple[int, str, str]:
        named = [] if store is None else ["--store", str(store)]
        monkeypatch.setattr(sys, "argv", ["convwright", "store", *words, *named])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return command


def data(run: Run, *words: str) -> Any:
    code, out, err = run(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def names(path: Path, problem: str = KEY) -> set[str]:
    with Store.open(path) as store:
        return set(store.findings(problem, DEVICE))


@pytest.mark.parametrize("words", [[], ["show"]])
def test_by_itself_it_shows_how_much_there_is(words: list[str], run: Run, path: Path) -> None:
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert f"{path} · " in out
    assert f"schema {SCHEMA_VERSION}" in out
    assert "finished searches: 1; in quarantine: 1" in out
    row = next(line for line in out.splitlines() if line.startswith(DEVICE))
    assert row.split()[2:5] == ["2", "3", "1"]
    found = data(run, *words)
    assert (found["path"], found["schema"], found["note"]) == (str(path), SCHEMA_VERSION, None)
    assert found["nbytes"] >= path.stat().st_size
    assert [(d["device"], d["problems"], d["findings"], d["failures"]) for d in found["devices"]] == [(DEVICE, 2, 3, 1)]


def test_the_store_of_the_settings_is_the_default(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(store=None)
    assert (code, out) == (2, "")
    assert "in memory only (CONVWRIGHT_STORE is none)" in err
    monkeypatch.setenv("CONVWRIGHT_STORE", str(path))
    settings.cache_clear()
    assert run(store=None)[:2] == run()[:2]


@pytest.mark.parametrize("words", [(), ("import", "findings.jsonl")])
def test_a_store_that_is_none_is_no_file_of_that_name(
    words: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "findings.jsonl").touch()
    code, out, err = run(*words, store=Path("none"))
    assert (code, out) == (2, "")
    assert "in memory only (--store is none)" in err
    assert not (tmp_path / "none").exists()


def test_the_path_may_begin_with_a_home_and_is_not_empty(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    assert run(f"--store=~/{path.name}", store=None)[:2] == run()[:2]
    assert run("show", "--store", "", store=None) == (2, "", "convwright: --store takes a path, got ''\n")
    code, out, err = run("--store=~nobody at all/x", store=None)
    assert (code, out) == (2, "")
    assert "--store begins with the home of a user who is not known here: '~nobody at all/x'" in err


def test_a_store_that_cannot_be_written_to_is_read(run: Run, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fixed = Path(folder) / "findings.sqlite"
        shutil.copy(path, fixed)
        with read_only(fixed):
            for words in (["show"], ["list"], ["list", TEXT], ["quarantine"], ["export", "-"]):
                code, out, err = run(*words, store=fixed)
                assert (code, "H200" in out) == (0, True), words
                assert err.startswith(f"convwright: new findings are kept in memory only, since {fixed} cannot be ")
                assert err.count("\n") == 1
                assert "in memory only" not in out
            for words in (["clear", "--yes"], ["prune", "--older-than", "0"], ["quarantine", "--release", "all"]):
                code, out, err = run(*words, store=fixed)
                assert (code, out) == (1, "")
                denied = f"{fixed} cannot be written to: permission denied"
                assert err == f"convwright: nothing was done, since {denied}\n"


@pytest.mark.parametrize(
    "words", [[], ["--json"], ["list"], ["export", "-"], ["prune", "--older-than", "30"], ["clear", "--yes"]]
)
def test_damage_further_on_in_a_file_is_an_error(words: list[str], run: Run, path: Path) -> None:
    """An export of nothing would pass for a backup of all."""
    first_page = path.read_bytes()[:4096]
    path.write_bytes(first_page + b"\xff" * (path.stat().st_size - len(first_page)))
    code, _, err = run(*words)
    assert code == 1
    assert f"{path} was corrupt and now lies at {path}.corrupt-" in err
    assert err.count("corrupt and now") == 1


def test_list_names_the_problems(run: Run) -> None:
    assert [(row["problem"], row["device"], row["findings"], row["failures"]) for row in data(run, "list")] == [
        (OTHER, DEVICE, 1, 1),
        (KEY, DEVICE, 2, 0),
    ]
    code, out, _ = run("list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["ic4oc4ih9kh3", "ic8oc8ih9kh3"]
    created = data(run, "list", TEXT)["devices"][DEVICE]["cudnn/gemm"]["created"]
    assert datetime.fromisoformat(created).tzinfo is not None


@pytest.mark.parametrize("problem", [TEXT, KEY])
def test_list_of_a_problem_tells_what_is_known_of_it_the_fastest_first(problem: str, run: Run) -> None:
    found = data(run, "list", problem)
    assert found["problem"] == KEY
    assert set(found["devices"]) == {DEVICE}
    assert found["devices"][DEVICE]["cudnn/gemm"]["measurement"]["device_us"]["value"] == 10.0
    code, out, _ = run("list", problem)
    rows = [line.split()[:2] for line in out.splitlines() if "/" in line.partition(" ")[0]]
    assert (code, rows) == (0, [["cudnn/gemm", "10.00"], ["torch/default", "20.00"]])
    assert "ran out of memory" in run("list", "ic4ih9oc4kh3")[1]
    assert "nothing is remembered of it" in run("list", "ic4ih9oc4kh1")[1]
    assert run("list", "hello")[0] == 2


def test_export_and_import_carry_findings(run: Run, path: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "findings.jsonl", tmp_path / "other.sqlite"
    code, out, _ = run("export", str(file))
    assert (code, out) == (0, f"4 lines of findings, searches and observations written to {file}\n")
    code, out, _ = run("import", str(file), store=other)
    assert code == 0
    assert out == (
        "taken in: 3 findings, 1 finished search, 0 observations; left out, since not newer than what was known: 0\n"
    )
    assert names(other) == names(path)
    assert data(run, "import", str(file)) == {"findings": 0, "searches": 0, "observations": 0, "older": 4}
    assert data(run, "export", str(file)) == {"lines": 4, "file": str(file)}


def test_a_file_of_a_newer_version_is_a_mistake_like_others(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "findings.jsonl"
    file.write_text(json.dumps({"schema": SCHEMA_VERSION + 1}))
    code, out, err = run("import", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"convwright: {file} was written by a newer convwright (schema {SCHEMA_VERSION + 1}, ")


def test_export_and_import_work_in_a_pipe(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run("export", "-")
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[0]) == {"schema": SCHEMA_VERSION}
    monkeypatch.setattr(sys, "stdin", io.StringIO(out))
    assert run("import", "-", store=tmp_path / "other.sqlite")[0] == 0
    assert len(names(tmp_path / "other.sqlite")) == 2
    assert run("export", "-", "--json")[0] == 2


def test_a_bad_import_is_one_sentence_and_takes_nothing_in(run: Run, tmp_path: Path) -> None:
    file, other = tmp_path / "findings.jsonl", tmp_path / "other.sqlite"
    run("export", str(file))
    file.write_text(file.read_text() + "nonsense\n")
    code, out, err = run("import", str(file), store=other)
    assert (code, out) == (2, "")
    assert err.startswith(f"convwright: line 6 of {file} is not a line of exported findings")
    assert err.count("\n") == 1
    assert names(other) == set()


def test_prune_takes_out_what_is_old(run: Run, path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE finding SET created = ? WHERE problem = ?", (time.time() - 40 * 86_400, OTHER))
    assert run("prune", "--older-than", "60")[:2] == (0, "removed 0 findings\n")
    assert run("prune", "--older-than", "30.5")[:2] == (0, "removed 1 finding\n")
    assert names(path, OTHER) == set()
    assert len(names(path)) == 2


def test_prune_takes_out_what_does_not_count_on_devices_that_are_here(run: Run, path: Path) -> None:
    from convwright.measuring.hardware.machine import device_facts

    cpu = device_facts("cpu")
    (prints,) = counting([cpu.key]).values()
    assert prints
    with Store.open(path) as store:
        for key in (cpu.key, f"{cpu.name}, 97 threads"):
            for name, fingerprint in (("old", "torch 1.0"), *((print_, print_) for print_ in prints)):
                store.record(KEY, key, name, fingerprint, measurement(1.0), None)
    assert data(run, "prune", "--stale") == {"removed": 2, "observations": 0}
    with Store.open(path) as store:
        assert set(store.findings(KEY, cpu.key)) == prints
        assert set(store.findings(KEY, f"{cpu.name}, 97 threads")) == prints
    assert len(names(path)) == 2


def test_clear_wants_a_yes(run: Run, path: Path) -> None:
    code, out, err = run("clear")
    assert (code, out) == (2, "")
    assert f"clear forgets 3 findings in {path}: say so with --yes" in err
    assert len(names(path)) == 2
    assert run("clear", "--yes")[:2] == (0, "forgot 3 findings\n")
    assert data(run, "show")["devices"] == []
    assert data(run, "quarantine") == []


def test_quarantine_is_listed_and_released(run: Run) -> None:
    (row,) = data(run, "quarantine")
    assert (row["problem"], row["device"], row["candidate"]) == (KEY, DEVICE, "cudnn/engine-7[k2=0]")
    assert "never finished" in row["why"]
    assert "cudnn/engine-7[k2=0]" in run("quarantine")[1]
    code, out, err = run("quarantine", "--release", "cudnn/engine-8")
    assert (code, out) == (2, "")
    assert "no candidate called 'cudnn/engine-8' is in quarantine" in err
    assert run("quarantine", "--release", "cudnn/engine-7[k2=0]")[:2] == (0, "released 1 candidate\n")
    assert run("quarantine")[:2] == (0, "nothing is in quarantine\n")


def test_all_is_released_at_once(run: Run) -> None:
    assert data(run, "quarantine", "--release", "all") == {"released": 1}
    assert data(run, "quarantine", "--release", "all") == {"released": 0}


MISTAKES = [
    (["prune"], "--older-than DAYS, --stale"),
    (["prune", "--older-than", "-1"], "got -1"),
    (["prune", "--older-than", "nan"], "got nan"),
    (["prune", "--older-than", "1e400"], "--older-than takes a finite number that is not negative, got inf"),
    (["import", "absent.jsonl"], "absent.jsonl cannot be read"),
    (["export", "absent/findings.jsonl"], "absent/findings.jsonl cannot be written to"),
]


@pytest.mark.parametrize(("words", "named"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_exit_code_2(words: list[str], named: str, run: Run, path: Path) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("convwright: ")
    assert err.count("\n") == 1
    assert named in err
    assert len(names(path)) == 2


def test_a_file_that_is_no_store_is_left_where_it_is(run: Run, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work\n" * 100)
    for given, reason in ((thesis, "a file of another kind"), (tmp_path, "a folder"), (tmp_path / "no", "there is no")):
        code, out, err = run("show", store=given)
        assert (code, out) == (2, "")
        assert reason in err
    assert thesis.read_text().startswith("years of work")
    assert not (tmp_path / "no").exists()


def test_a_store_is_not_exported_over_itself(run: Run, path: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked.sqlite"
    linked.symlink_to(path)
    for target in (path, linked):
        code, out, err = run("export", str(target))
        assert (code, out) == (2, "")
        assert (
            err == f"convwright: {target} is the store itself, which an export would overwrite: choose another file\n"
        )
    assert len(names(path)) == 2


def test_a_newer_store_is_refused(run: Run, path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    code, out, err = run("show")
    assert (code, out) == (2, "")
    assert "newer convwright" in err


def test_another_programs_database_is_refused(run: Run, path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE songs (name TEXT)")
    code, out, err = run("show")
    assert (code, out) == (2, "")
    assert "(its tables are songs); name another path, by CONVWRIGHT_STORE, --store or `store`" in err


def test_options_belong_behind_the_verb(run: Run, path: Path) -> None:
    code, _, err = run("--store", str(path), "list", store=None)
    assert code == 2
    assert "convwright store list --store PATH" in err


def test_help_names_the_verbs(run: Run) -> None:
    code, out, _ = run("--help", store=None)
    assert code == 0
    for verb in ("show", "list", "export", "import", "prune", "clear", "quarantine"):
        assert verb in out


@pytest.mark.parametrize("words", [[], ["list"], ["export", "-"], ["quarantine"], ["prune", "--stale"]])
def test_a_question_makes_no_store(words: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "absent" / "findings.sqlite"
    monkeypatch.setenv("CONVWRIGHT_STORE", str(absent))
    settings.cache_clear()
    told = run(*words, store=None)
    assert told == (2, "", f"convwright: there is no store at {absent}\n") == run(*words, store=absent)
    assert not absent.parent.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_a_pipe_is_no_store_and_nobody_waits_for_it(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv("CONVWRIGHT_STORE", str(pipe))
    settings.cache_clear()
    for given in (pipe, None):
        code, out, err = run(store=given)
        assert (code > 0, out) == (True, "")
        assert f"{pipe} is no store of findings: it is no regular file" in err
