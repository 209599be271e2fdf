"""``convwright place``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from convwright.cli.main import main

SPEC = Path(__file__).resolve().parents[2] / "examples" / "place.toml"
Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*words: str | Path) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["convwright", "place", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_jobs_are_placed_and_what_limits_them_is_said(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "schedule.png"
    code, out, _ = run(SPEC, "--simulate", "20", "--wait", "0.005", "--picture", picture)
    assert not code
    assert "archive: h200/0, batch 256" in out
    assert "limited by device h200/0, which finishes last" in out
    assert "camera in a simulation of 20 s: half of the images within" in out
    assert f"schedule drawn to {picture}" in out.splitlines()
    assert picture.stat().st_size > 1000


def test_the_same_as_data(run: Run) -> None:
    _, out, _ = run(SPEC, "--objective", "cost", "--json", "--simulate", "5")
    found = json.loads(out)
    assert found["objective"] == "cost"
    assert found["gap"] == 0
    assert {each["job"]["name"] for each in found["assigned"]} == {"archive", "camera", "segments"}
    assert [each["job"] for each in found["simulated"]["streams"]] == ["camera"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("images = 20_000", "images = 0", "line 26: `images` of job 'segments' must be a whole number above 0, got 0"),
        ("deadline_s = 3600", "deadline_s = 1", "archive"),
        ("rate_per_s", "rate", "a job has no 'rate'"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, tmp_path: Path, before: str, after: str, said: str) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.read_text().replace(before, after))
    code, _, error = run(spec)
    assert code in (1, 2)
    assert said in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--wait", "1"), "--wait is of a simulation: give --simulate SECONDS too, or leave it out"),
        (("--seconds", "1"), "--seconds limits a run: give --run ADDRESS too, or leave it out"),
        (("--run", "tcp://127.0.0.1:1", "--simulate", "5"), "--simulate is of a placement that does not run: leave out "
         "--run or --simulate"),
        (("--run", "tcp://127.0.0.1:1"), "job 'archive' cannot run: no model is given for its key 'resnet50': give one "
         "(`models=`, or a table [[model]])"),
        (("--store", "s.sqlite"), "--store is for models whose times are predicted, and place.toml has no "
         "[[model]]: leave it out"),
        (("--picture", "s.doc"), "the name of a picture must end in .png, .svg, .pdf, got 's.doc'"),
    ],
)  # fmt: skip
def test_options_that_would_be_ignored_are_refused(run: Run, options: tuple[str, ...], said: str) -> None:
    code, out, error = run(SPEC, *options)
    assert (code, out, error) == (2, "", f"convwright: {said}\n")


def test_an_unknown_name_in_a_file_is_named_with_its_line(run: Run, tmp_path: Path) -> None:
    spec = tmp_path / "empty.toml"
    spec.write_text("# nothing\nx = 1\n")
    _, _, error = run(spec)
    assert error == (
        "convwright: empty.toml, line 2: 'x' is not known; the tables are [[job]], [[device]], [[model]] and "
        "[[estimate]]\n"
    )
