"""Hashes of each kernel's source: its own modules and all that they import.

A finding is valid as long as its kernel's hash is the same. Edits of one kernel leave findings of others valid. Only
modules of this package are followed, including imports inside functions and in the source of generated kernels.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGE = "convwright.backends.triton"
_ROOT = Path(__file__).parent
# Python's parser takes 100 ms for the modules of one kernel, this 1 ms (2-core CPU).
_IMPORTS = re.compile(rf"^[ \t]*from {re.escape(_PACKAGE)}([.\w]*) import (\([^)]*\)|[^\n#]*)", re.MULTILINE)


@cache
def triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "absent"


@cache
def source_hash(kernel: str, root: Path = _ROOT) -> str:
    """The hash of everything that the kernel in this folder uses."""
    return _hash(modules_used(kernel, root), root)


@cache
def whole_hash(root: Path = _ROOT) -> str:
    """The hash of all modules of this package."""
    return _hash(root.rglob("*.py"), root)


def modules_used(kernel: str, root: Path = _ROOT) -> frozenset[Path]:
    """The kernel's ``offers`` and ``plan``, and all modules that these import. A kernel without its own plan uses the
    plan in ``by_role``."""
    plan = root / kernel / "plan.py"
    found, open_ = (
        set[Path](),
        {root / kernel / "offers.py", plan if plan.is_file() else root / "by_role" / "plan.py"},
    )
    while open_:
        path = open_.pop()
        found.add(path)
        open_ |= imported(path, root) - found
    return frozenset(found)


@cache
def imported(path: Path, root: Path = _ROOT) -> frozenset[Path]:
    """The files of this package's modules that one module imports."""
    found = set[Path]()
    for module, names in _IMPORTS.findall(path.read_text(encoding="utf-8")):
        home = root.joinpath(*module.split("."))
        found |= {*_files(home), *(file for name in _named(names) for file in _files(home / name))}
    return frozenset(found)


def _files(module: Path) -> Iterator[Path]:
    """The file of a module or of a package; none if it does not exist."""
    yield from filter(Path.is_file, (module.with_suffix(".py"), module / "__init__.py"))


def _named(names: str) -> Iterable[str]:
    return (each.split()[0] for each in names.strip("()").split(",") if each.strip())


def _hash(paths: Iterable[Path], root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
