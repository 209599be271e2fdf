"""Suites: fixed lists of problems as data, one file each with its origin and licence.

>>> names()
('deepbench', 'gtc', 'msd', 'padding-sweep', 'zoo', 'zoo-sample')
>>> load("zoo-sample").rows[0].problem.c
176
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from convwright.errors import BadInput
from convwright.suites.reading import read
from convwright.suites.suite import Row as Row
from convwright.suites.suite import Suite as Suite

_SUFFIX = ".csv"


def names() -> tuple[str, ...]:
    """The suites that come with this package."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))


def is_suite(text: str) -> bool:
    """True where ``text`` is meant as a suite: it names one, or looks like a file."""
    return text in names() or text.endswith(_SUFFIX) or Path(text).is_file()


def load(name_or_path: str | Path) -> Suite:
    """The suite of that name, or the one in that file.

    A file has one problem a line, ``name,problem`` and, where they are wanted, ``,count,source``; lines that begin with
    ``#`` are comments, of which ``# title:``, ``# source:`` and ``# licence:`` are read.
    """
    name = str(name_or_path)
    if name in names():
        return read((resources.files(__name__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8"), name=name, place=name)
    path = Path(name_or_path)
    if not is_suite(name):
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
