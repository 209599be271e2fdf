"""Accepted names of cuDNN's algorithms: our names, cuDNN's numbers, and engines with any knobs."""

from __future__ import annotations

import re

from convwright.backends.cudnn.classic.listing import FAMILIES
from convwright.core.candidate import Config, leaf_id
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

_NUMBER = re.compile(r"cudnn/(\d{1,9})(\[.*\])?")
_CONFIGURED_ENGINE = re.compile(r"cudnn/engine-\d{1,18}\[.*\]")
_ENGINE = re.compile(r"cudnn/(engine-\d{1,18})(?:\[(k\d{1,9}=-?\d{1,9}(?:,k\d{1,9}=-?\d{1,9})*)\])?")


def spelled(name: str, problem: ConvProblem) -> str:
    """The name that candidates use, from one with a number or with knobs in another order.

    >>> spelled("cudnn/7", ConvProblem.parse("ic8ih9oc8kh3"))
    'cudnn/winograd-nonfused'
    >>> spelled("cudnn/engine-48[k13=2,k2=1]", ConvProblem.parse("ic8ih9oc8kh3"))
    'cudnn/engine-48[k2=1,k13=2]'
    """
    if _CONFIGURED_ENGINE.fullmatch(name) and not _ENGINE.fullmatch(name):
        raise BadInput(f"knobs of an engine are written as in cudnn/engine-48[k2=1,k13=2], got {name!r}")
    number, engine = _NUMBER.fullmatch(name), engine_named(name)
    if number is not None:
        return f"cudnn/{_classic(int(number[1]), problem)}{number[2] or ''}"
    return name if engine is None else leaf_id("cudnn", *engine)


def engine_named(name: str) -> tuple[str, Config] | None:
    """The algorithm and configuration of an engine that ``name`` names; None if it names none."""
    found = _ENGINE.fullmatch(name)
    if found is None:
        return None
    pairs = (part.split("=") for part in (found[2] or "").split(",") if part)
    return found[1], tuple(sorted(((knob, int(value)) for knob, value in pairs), key=lambda pair: int(pair[0][1:])))


def _classic(number: int, problem: ConvProblem) -> str:
    numbers = {algorithm.number: algorithm.name for algorithm in FAMILIES[problem.direction].algorithms}
    if number not in numbers:
        named = ", ".join(f"{number} ({name})" for number, name in numbers.items())
        raise BadInput(f"cuDNN's algorithms for {problem.direction} are {named}, got cudnn/{number}")
    return numbers[number]
