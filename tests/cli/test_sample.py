"""`convwright sample`: mistakes are one sentence, and observations are carried as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from convwright.cli.main import main
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.settings import settings
from convwright.store.store import Store
from tuning.made import candidate, measurement

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, stdout and stderr of `convwright sample …`."""

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["convwright", "sample", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        settings.cache_clear()
        said = capsys.readouterr()
        code = done.value.code
        return code if isinstance(code, int) else 0, said.out, said.err

    return command


def seen(created: float) -> Observation:
    measured = replace(measurement(20.0), conditions=(("origin", "random"),))
    return Observation(
        candidate(), "NVIDIA H200", "1", Outcome.MEASURED, measured, None, (19.0, 20.0, 21.0), Policy(), "campaign",
        25_000.0, created,
    )  # fmt: skip


def test_observations_are_carried_from_one_store_to_another(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    here, there, file = tmp_path / "here.sqlite", tmp_path / "there.sqlite", tmp_path / "seen.parquet"
    with Store.open(here) as store:
        store.observe([seen(1.0), seen(2.0)])
    assert run("export", file, "--store", here) == (0, f"2 observations written to {file}\n", "")
    assert run("import", file, "--store", there) == (0, "2 observations taken in, 0 already in the store\n", "")
    assert run("import", file, "--store", there) == (0, "0 observations taken in, 2 already in the store\n", "")
    with Store.open(there) as store:
        assert list(store.observations()) == [seen(1.0), seen(2.0)]
    assert run("export", file, "--store", here, "--mode", "full") == (0, f"0 observations written to {file}\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--for says how long to measure, for example --for 8m"),
        (("--for", "8 years"), "--for takes a time above 0, such as 90s, 8m or 2h, got '8 years'"),
        (("--for", "1s", "--sources", "zoo"), "a source of problems is one of random, networks, kinds, got 'zoo'"),
        (("--for", "1s", "--device", "tpu"), "a campaign measures on cpu or cuda, which must be in this machine, got"),
        (
            ("--for", "1s", "--device", "cpu", "--gpus", "x"),
            "`gpus` are numbers of GPUs, and the device is the CPU: leave out gpus='x'",
        ),
        (("--for", "1s", "--device", "cpu", "--campaign", ""), "a campaign needs a name, got ''"),
        (
            ("--for", "1s", "--cluster", "127.0.0.1"),
            "a cluster is given by the address of its Dask scheduler with a port, tcp://host:8786, got '127.0.0.1'",
        ),
        (
            ("--for", "1s", "--cluster", "http://host:1"),
            "a cluster is given by the address of its Dask scheduler with a port, tcp://host:8786, got 'http://host:1'",
        ),
        (("--for", "1s", "--repeat", "3"), "`repeat` is a share of the problems, between 0 and 1, got 3.0"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    store = () if not words else ("--store", tmp_path / "store.sqlite")
    code, out, told = run(*words, *store)
    assert (code, out) == (2, "")
    assert told.startswith(f"convwright: {said}")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "said"), [("--sources=nets", "a source of problems"), ("--device=h200", "a campaign measures on")]
)
def test_sources_and_device_are_checked_before_the_store(run: Run, tmp_path: Path, option: str, said: str) -> None:
    code, _, told = run("--for", "1s", option, "--store", tmp_path)
    assert code == 2
    assert told.startswith(f"convwright: {said}")


@pytest.mark.parametrize("place", ["none", "file/x.sqlite"])
def test_a_campaign_says_that_it_needs_a_store(run: Run, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    store = place if place == "none" else tmp_path / place
    code, out, told = run("--for", "1s", "--device", "cpu", "--store", store)
    assert code
    assert out == ""
    assert told.startswith("convwright: a campaign needs a store for its observations: ")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (".", "convwright: . is a folder: name a file in it, such as observations.parquet\n"),
        (
            "t.txt",
            "convwright: observations are written as Apache Parquet: the file must end in .parquet, got 't.txt'\n",
        ),
    ],
)
def test_observations_go_to_a_parquet_file(run: Run, tmp_path: Path, file: str, said: str) -> None:
    with Store.open(tmp_path / "here.sqlite") as store:
        store.observe([seen(1.0)])
    assert run("export", file, "--store", tmp_path / "here.sqlite") == (2, "", said)


def test_options_in_the_place_of_those_of_a_verb_are_refused(run: Run, tmp_path: Path) -> None:
    code, _, told = run("--store", tmp_path / "store.sqlite", "export", "seen.parquet")
    assert code == 2
    assert told == "convwright: options go after the verb: convwright sample export FILE --store PATH\n"


def test_a_campaign_without_time_says_that_nothing_was_measured(run: Run, tmp_path: Path) -> None:
    code, out, told = run("--for", "0.1s", "--store", tmp_path / "store.sqlite", "--device", "cpu")
    assert (code, told) == (0, "")
    assert out.startswith("0 observations of 0 problems on ")
    assert out.endswith("need some seconds to start: give a longer time, such as 60 s\n")
