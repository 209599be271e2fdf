"""Suites: fixed lists of problems, each in one file of data with its origin and licence.

>>> names()
('deepbench', 'gtc', 'msd', 'padding-sweep', 'zoo', 'zoo-sample')
>>> load("zoo-sample").rows[0].problem.c
176
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from os.path import isdir, isfile
from pathlib import Path

from convwright.errors import BadInput
from convwright.suites.reading import read
from convwright.suites.suite import Row as Row
from convwright.suites.suite import Suite as Suite
from convwright.suites.suite import of_problem

_SUFFIX = ".csv"


def names() -> tuple[str, ...]:
    """The suites that come with this package."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))


def asked_for(text: str, varied: Mapping[str, int] | None = None) -> Suite:
    """What ``text`` names: a suite, the file of one, or a single problem, in which sizes that will be ``varied`` need
    not be written.

    >>> asked_for("ic8ih9oc8kh3").rows[0].name
    'ic8ih9oc8kh3'
    """
    if _is_suite(text):
        return load(text)
    is_folder = isdir(text)
    if is_folder or not any(letter.isdigit() for letter in text):
        given = f"and {text!r} is a folder" if is_folder else f"got {text!r}"
        raise BadInput(
            f"a problem such as ic8ih9oc8kh3, a suite ({', '.join(names())}) or the path of a suite's file is needed, "
            f"{given}"
        )
    return of_problem(text, varied)


def _is_suite(text: str) -> bool:
    return text in names() or text.endswith(_SUFFIX) or isfile(text)


def load(name_or_path: str | Path) -> Suite:
    """The suite of that name, or the one in that file.

    A file has one problem a line, ``name,problem`` and, where they are wanted, ``,count,source``; lines that begin with
    ``#`` are comments, of which ``# title:``, ``# source:`` and ``# licence:`` are read.
    """
    name = str(name_or_path)
    if name in names():
        return read((resources.files(__name__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8"), name=name, place=name)
    path = Path(name_or_path)
    if not _is_suite(name):
        raise BadInput(f"a suite is one of {', '.join(names())}, or the path of a file, got {name!r}")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"there is no file {name!r}") from None
    except OSError as error:
        raise BadInput(f"{name!r} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise BadInput(f"{name!r} is no suite, which is text in UTF-8") from None
    return read(text, name=path.stem, place=name)
