"""``--max-workspace`` and ``--memory-budget``: an amount of memory, as people write it."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

import typer

from convwright.naming import MOST_DIGITS

_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:b?|([kmgt])(i?)b)", re.IGNORECASE | re.ASCII)


def nbytes(text: str) -> int:
    """So many bytes: a number with or without a unit, decimal or binary, in any case.

    >>> nbytes("0"), nbytes("64MB"), nbytes("1.5 gib"), nbytes("512kB")
    (0, 64000000, 1610612736, 512000)
    """
    amount = _AMOUNT.fullmatch(text.strip())
    if amount is not None and len(amount[1]) <= MOST_DIGITS:
        number, prefix, binary = amount.groups()
        power = "kmgt".index(prefix.lower()) + 1 if prefix else 0
        exact = Fraction(number) * (1024 if binary else 1000) ** power
        if exact.denominator == 1:
            return int(exact)
    raise typer.BadParameter(
        f"an amount of memory is bytes, or a number with a unit such as 64MB or 1GiB, got {text!r}"
    )


MaxWorkspace = Annotated[
    int | None,
    typer.Option(
        parser=nbytes, metavar="BYTES", help="Largest workspace allowed: bytes, or with a unit such as 64MB or 1GiB."
    ),
]

MemoryBudget = Annotated[
    int | None,
    typer.Option(
        parser=nbytes,
        metavar="BYTES",
        help="Most memory for results and workspaces: bytes, or with a unit such as 512MiB.",
    ),
]
