"""The kernels that candidates launch, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.measuring.kernels import Kernel, Size
from convwright.naming import by
from convwright.report.words.amounts import bytes_text

_UNKNOWN = "–"
_FOLDED = ("candidate", "kernel")
_COLUMNS = ("candidate", "kernel", "grid", "block", "registers", "shared", "µs")


def print_kernels(kernels: Mapping[str, tuple[Kernel, ...] | None], console: Console) -> None:
    """Print a row for each launch, in order. A candidate's name is in the row of its first launch."""
    if not kernels:
        console.print("Nothing was measured, so no kernels can be listed.")
        return
    table = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        if name in _FOLDED:
            table.add_column(name, overflow="fold", min_width=12)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for candidate, launched in kernels.items():
        for row in _rows(candidate, launched):
            table.add_row(*map(Text, row))
    console.print(table)


def _rows(candidate: str, launched: tuple[Kernel, ...] | None) -> list[tuple[str, ...]]:
    if not launched:
        said = "could not be run again" if launched is None else "none"
        return [(candidate, said, *[_UNKNOWN] * (len(_COLUMNS) - 2))]
    return [(candidate if not at else "", *_cells(kernel)) for at, kernel in enumerate(launched)]


def _cells(kernel: Kernel) -> tuple[str, ...]:
    return (
        kernel.name,
        _size(kernel.grid),
        _size(kernel.block),
        _UNKNOWN if kernel.registers is None else str(kernel.registers),
        bytes_text(kernel.shared_bytes),
        _UNKNOWN if kernel.duration_us is None else f"{kernel.duration_us:.2f}",
    )


def _size(size: Size | None) -> str:
    return _UNKNOWN if size is None else by(size)
