"""The C that is the same in every file: names, words, and that it is in the package."""

from __future__ import annotations

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import convwright
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.one import emit_c
from convwright.emit.templates import assemble, check_name, part
from convwright.errors import BadInput
from emit.compiled import LANGUAGES, headers, missing

ROOT = Path(convwright.__file__).parent
TEMPLATES = sorted(path.name for path in (ROOT / "emit" / "c").iterdir())


def test_a_name_is_given_to_everything_public_and_to_nothing_else() -> None:
    text = assemble(["plan.c"], "my_2nd", {})
    assert "int my_2nd_create(my_2nd_plan **plan)" in text
    assert "MY_2ND_BAD_ARGUMENT" in text
    assert "defined(MY_2ND_ANY_CUDNN)" in text
    assert not re.search(r"\bconv", text, flags=re.IGNORECASE)
    assert "PLAN(build)" in text


def test_words_are_put_in_their_places_as_they_are() -> None:
    assert assemble(["data.c"], "other", {"data": "conv_ @x@"}) == ("/* ---- This problem ---- */\n\nconv_ @x@\n")


@pytest.mark.parametrize("name", ["", "9x", "_x", "a-b", "a b", "x" * 41, "ä", "a;"])
def test_what_is_no_name_in_c_is_bad_input(name: str) -> None:
    with pytest.raises(BadInput, match="the name must have at most 40 letters"):
        assemble(["plan.c"], name, {})


@pytest.mark.parametrize("name", ["graph", "classic", "cudnn_"])
def test_a_name_that_is_taken_is_bad_input(name: str) -> None:
    parts = ["graph.c", "engine.c", "pack.c", "classic.c", "plan.c"]
    if name == "cudnn_":
        assemble(parts, name, {})
    else:
        with pytest.raises(BadInput, match=f"two things the name {name}_"):
            assemble(parts, name, {})


@pytest.mark.parametrize(
    "name", ["pthread", "pthread_attr", "timer", "cuda", "CUDNN", "cudnn_status", "string", "stdio"]
)
def test_a_name_that_a_header_has_is_bad_input(name: str) -> None:
    with pytest.raises(BadInput, match=f"the name {name} is a header that a C file includes"):
        assemble(["plan.c"], name, {})


INCLUDED = [name for file in TEMPLATES for name in re.findall(r"^#include <(\w+)\.h>", part(file), re.MULTILINE)]
ENDS = [
    {end for file in TEMPLATES for end in re.findall(rf"\b{start}_(\w+)", part(file))} for start in ("conv", "CONV")
]
# Constants and macros have the name in capitals.
CLASH = re.compile(rf"([A-Za-z]\w*?)_(?:{'|'.join(ENDS[0])})|([A-Z][A-Z0-9_]*?)_(?:{'|'.join(ENDS[1])})")


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_name_that_would_clash_with_a_header_is_bad_input(language: str) -> None:
    """Whatever the compiler reads in the headers and ends as a public name does."""
    source = "".join(f"#include <{name}.h>\n" for name in INCLUDED)
    command = [*LANGUAGES[language], "-D_GNU_SOURCE", "-E", "-dD", *(f"-I{place}" for place in headers()), "-"]
    command[1:1] = ["-x", "c"] if language == "C" else []  # which no file's name tells here
    read = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    found = (CLASH.fullmatch(word) for word in set(re.findall(r"\w+", read)))
    taken = {match[1] or match[2] for match in found if match}
    assert {"pthread", "CUDNN_STATUS"} <= taken
    for name in [*INCLUDED, *taken]:
        with pytest.raises(BadInput, match="is a header"):
            check_name(name)


@pytest.mark.parametrize("file", TEMPLATES)
def test_templates_are_within_the_width_of_the_house(file: str) -> None:
    assert not [line for line in part(file).splitlines() if len(line) > 120 or line != line.rstrip()]


def test_everything_that_is_no_python_is_in_the_package() -> None:
    patterns = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for path in ROOT.rglob("*"):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            assert any(fnmatch(name, pattern) for pattern in patterns["convwright"]), name


@pytest.mark.parametrize("epilogue", ["none", "relu"])
def test_the_comments_of_a_header_keep_the_width_whatever_is_put_into_them(epilogue: str) -> None:
    pytest.importorskip("nvidia", reason="cuDNN is not installed")
    text = f"mb64ic512id16ih128iw128oc2048kd3kh3kw3 dt:fp16 tag:nhwc ep:{epilogue}"
    for found in (emit_c(text, device="h200"), emit_c_dynamic([], epilogue=epilogue, device="h200")):
        assert not [line for line in found.header.splitlines() if len(line) > 120 or line != line.rstrip()]
        assert "@" not in found.header + found.source
