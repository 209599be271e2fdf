"""What the backend whose compiler writes down where it was is asked for, and what it wrote."""

from __future__ import annotations

from ast import literal_eval
from dataclasses import replace
from pathlib import Path

from convwright.core.candidate import Candidate
from tuning.made import PROBLEM
from tuning.made_backend import offer

SERVE = "import sys; sys.path[:0] = {paths}; from tuning.made_backend import serve_fatal; serve_fatal()"


def kernel(what: object) -> Candidate:
    return replace(offer(PROBLEM, f"fatal/{what}"), algorithm=str(what), compiles=True)


def written(path: Path) -> tuple[int, int, bool]:
    """The process that compiled, how nice it is, and whether it had loaded PyTorch."""
    process, niceness, torch = literal_eval(path.read_text())
    return process, niceness, torch
