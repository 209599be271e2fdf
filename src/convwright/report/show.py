"""Print results as the commands print them."""

from __future__ import annotations

import sys
from reprlib import repr as brief

from rich.console import Console

from convwright.advising.advice import Advice
from convwright.advising.tuned import Tuned
from convwright.api.predicting import Predictions
from convwright.errors import BadInput
from convwright.quantizing.quantized import Quantized
from convwright.report.tables.advice import print_advice
from convwright.report.tables.findings import print_findings
from convwright.report.tables.predictions import print_predictions
from convwright.report.tables.quantized import print_quantized
from convwright.report.tables.steps import Planned, print_steps
from convwright.report.tables.tuned import print_tuned
from convwright.report.words.output import console, output
from convwright.tuning.findings import Findings

Shown = Findings | Predictions | Planned | Advice | Tuned | Quantized


def show(found: Shown, *, refusals: bool | None = None) -> None:
    """Print the result of ``find``, ``predict``, ``optimize``, ``advise``, ``tune`` or ``quantize`` as a table, like
    the command of the same name.

    Args:
        refusals: For ``find`` and for ``predict`` of a problem: whether to list the refusals with their reasons. For
            ``find`` on a CPU the default lists all but those that need a GPU, and counts these.

    >>> import convwright as cw
    >>> cw.show(cw.find("ic8ih9oc8kh3", device="h200", mode="heuristic"), refusals=False)  # doctest: +ELLIPSIS
    g1mb1ic8oc8ih9iw9oh7ow7kh3kw3sh1sw1ph0pw0dh0dw0 dt:fp32 dir:forward tag:nchw ep:none
    NVIDIA H200 ...
    """
    print_shown(found, _console(), refusals=refusals)


def print_shown(found: Shown, where: Console, *, refusals: bool | None = None) -> None:
    """Print what ``show`` shows to a console."""
    if isinstance(found, Findings):
        print_findings(found, where, refusals=refusals)
    elif isinstance(found, Predictions):
        print_predictions(found, where, refusals=refusals is not False)
    elif isinstance(found, Planned):
        print_steps(found, where)
    elif isinstance(found, Advice):
        print_advice(found, where)
    elif isinstance(found, Tuned):
        print_tuned(found, where)
    elif isinstance(found, Quantized):
        print_quantized(found, where)
    else:
        raise BadInput(
            "`show` takes a result of `find`, `predict`, `optimize`, `advise`, `tune` or `quantize`, "
            f"got {brief(found)}"
        )


def _console() -> Console:
    """Standard output; a notebook, which is no terminal, has a width of its own."""
    here = console()
    return here if here.is_jupyter or sys.stdout.isatty() else output()
