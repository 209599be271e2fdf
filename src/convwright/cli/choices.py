"""Options that take one of a few words, each of which `--help` lists."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from convwright.cli.objective import HELP as OBJECTIVE
from convwright.core.dtype import one_of_dtypes
from convwright.core.policy import Objective


class SearchMode(StrEnum):
    """How much runs."""

    HEURISTIC = "heuristic"
    PREDICT = "predict"
    PREDICT_TOP = "predict-top"
    QUICK = "quick"
    FULL = "full"


class WholePrecision(StrEnum):
    """The type of all layers of a network."""

    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"


class Precision(StrEnum):
    """The type of all layers of a network, or of each layer its own."""

    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    MIXED = "mixed"


_Precision = TypeVar("_Precision", WholePrecision, Precision)


def precision_of(kind: type[_Precision], given: str | None) -> _Precision | None:
    """The value of ``--precision``. A dtype has the same aliases as for ``--dtype``.

    >>> precision_of(Precision, "half"), precision_of(Precision, None)
    (<Precision.FP16: 'fp16'>, None)
    """
    return None if given is None else one_of_dtypes(kind, "--precision", given)


class PlacementAim(StrEnum):
    """What a placement makes least."""

    MAKESPAN = "makespan"
    ENERGY = "energy"
    LATENCY = "latency"
    COST = "cost"


class RecordedMode(StrEnum):
    """What an observation was made by."""

    CAMPAIGN = "campaign"
    FULL = "full"
    QUICK = "quick"


# The words stand in the help and not in the place of the value, where --help would break them.
MODE_HELP = (
    "heuristic (nothing runs), predict (a model chooses), predict-top (three candidates run at most), quick (200 ms) "
    "or full (30 s)."
)

ModeOption = Annotated[SearchMode | None, typer.Option(metavar="MODE", help=MODE_HELP, show_default="full")]
QuickModeOption = Annotated[SearchMode | None, typer.Option(metavar="MODE", help=MODE_HELP, show_default="quick")]
ObjectiveOption = Annotated[Objective, typer.Option(metavar="OBJECTIVE", help=OBJECTIVE)]
