"""The site builds, what is generated in it is fresh, and every command that a page shows exists."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pages import engines, records

import convwright
from convwright.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CLI = runpy.run_path(str(DOCS / "make_cli.py"))
REFERENCE = runpy.run_path(str(DOCS / "make_reference.py"))
GAINS = runpy.run_path(str(DOCS / "make_gains.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def test_the_page_of_the_command_line_is_fresh() -> None:
    assert (DOCS / "cli.md").read_text() == CLI["page"](), "make docs brings it up to date"


@pytest.mark.parametrize("path", sorted(REFERENCE["pages"]()), ids=lambda path: path.name)
def test_the_reference_is_fresh(path: Path) -> None:
    assert path.read_text() == REFERENCE["pages"]()[path], "make docs brings it up to date"


def test_the_picture_of_the_first_pages_is_fresh() -> None:
    lines = records.read(GAINS["RECORD"])
    made = GAINS["picture"](engines.compared(lines), lines[0]["conditions"]["device"])
    assert GAINS["PICTURE"].read_text() == made, "make docs brings it up to date"
    for page in (ROOT / "README.md", DOCS / "index.md"):
        (shown,) = re.findall(r"!\[.*?\]\((.*?)\)", page.read_text(), flags=re.DOTALL)
        assert page.parent / shown == GAINS["PICTURE"]


def test_the_reference_has_no_other_pages() -> None:
    assert set((DOCS / "reference").iterdir()) == set(REFERENCE["pages"]())


def test_the_reference_has_every_public_name() -> None:
    named = [name for page in REFERENCE["PAGES"] for name in page.names]
    assert len(named) == len(set(named))
    assert {name for name in named if ":" not in name} == set(convwright._HOMES), "PAGES of docs/make_reference.py"


def test_every_command_has_its_section() -> None:
    names = {name for name, _ in CLI["everything"]()}
    text = (DOCS / "cli.md").read_text()
    assert {"convwright find", "convwright store", "convwright store export"} <= names
    assert names <= set(re.findall(r"^#+ (convwright .*)$", text, flags=re.MULTILINE))


def shown(path: Path) -> Iterator[str]:
    """The command lines in a page: indented or fenced, and ahead of what is said about them."""
    fenced = False
    for line in path.read_text().splitlines():
        fenced ^= line.startswith("```")
        if re.match(r"convwright [a-z]" if fenced else r" {4}convwright [a-z]", line):
            yield re.split(r" {2,}", line.strip())[0]


COMMAND: Any = typer.main.get_command(app)
COMMANDS = [pytest.param(line, id=f"{path.name}: {line}") for path in PAGES for line in dict.fromkeys(shown(path))]


@pytest.mark.parametrize("line", [param for param in COMMANDS if "OPTIONS]" not in str(param.values[0])])
def test_commands_can_be_typed(line: str) -> None:
    """Each is parsed as the command line would, without running it."""
    words = shlex.split(line)[1:]
    command = COMMAND
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    command.make_context(line, words)


def test_a_command_that_is_not_there_would_be_noticed() -> None:
    with pytest.raises(BaseException, match="No such option"):
        test_commands_can_be_typed("convwright find ic4ih8oc4kh3 --nonsense")


def test_examples_in_the_house_are_there() -> None:
    for path in PAGES:
        for example in re.findall(r"examples/\w+\.py", path.read_text()):
            assert (ROOT / example).is_file(), f"{path.name} names {example}"


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The site of ``root``, as `make docs` builds it: a warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_what_is_wrong_in_a_page_is_an_error(tmp_path: Path) -> None:
    """`--quiet` would have made strictness a matter of appearance. The pages hold a title only: that is quick."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for page in (tmp_path / "docs").rglob("*.md"):
        page.write_text(f"# {page.stem}\n")
    (tmp_path / "docs" / "index.md").write_text("[away](nowhere.md) [away](using.md#no-such-section)\n")
    (tmp_path / "docs" / "left_out.md").write_text("# Left out\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert said.count("WARNING") == 3
    assert all(each in said for each in ("'nowhere.md'", "'#no-such-section'", "left_out.md"))


def test_every_page_is_in_the_site(site: Path) -> None:
    for path in DOCS.rglob("*.md"):
        assert (site / path.relative_to(DOCS).with_suffix(".html")).is_file()
    assert not list(site.rglob("*.py"))


class Fetched(HTMLParser):
    """What a browser would fetch in order to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {"link": "href", "script": "src", "img": "src", "iframe": "src"}.get(tag)
        self.places += [value for name, value in attrs if name == wanted and value]


def test_the_architecture_names_every_package() -> None:
    package = Path(convwright.__file__).parent
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    text = (DOCS / "architecture.md").read_text().partition("## Packages")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(modules | folders)


def test_the_site_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"] for entry in index["docs"] if "memory budget" in entry["text"]}
    assert any(place.startswith("engine.html") for place in found)


def test_reading_the_site_needs_no_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text())
        assert parser.places
        outside = [place for place in parser.places if re.match(r"(https?:)?//", place)]
        assert not outside, f"{page.name} fetches {outside}"


def test_whatever_is_given_back_goes_to_json() -> None:
    (page,) = [page for page in REFERENCE["PAGES"] if page.file == "results.md"]
    homes = [name.split(":") if ":" in name else (convwright._HOMES[name], name) for name in page.names]
    given = [getattr(import_module(home), name) for home, name in homes]
    assert [each.__name__ for each in given if not callable(getattr(each, "to_json", None))] == []
