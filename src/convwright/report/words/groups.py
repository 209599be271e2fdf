"""Names grouped by the reason that they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

_MOST_NAMES = 6


def grouped(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """One line for each reason, in the order of their first names; without a reason, the names alone.

    >>> grouped([("cudnn/gemm", "needs a GPU"), ("torch/default", ""), ("cudnn/fft", "needs a GPU")])
    ('cudnn/gemm, cudnn/fft: needs a GPU', 'torch/default')
    """
    groups: dict[str, list[str]] = {}
    for name, reason in pairs:
        groups.setdefault(reason, []).append(name)
    return tuple(f"{_some(names)}: {reason}" if reason else _some(names) for reason, names in groups.items())


def _some(names: Sequence[str]) -> str:
    shown, rest = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def print_reasons(said: str, pairs: Sequence[tuple[str, str]], console: Console) -> None:
    """Print the number of names, then a line for each reason with all names that share it."""
    if not pairs:
        return
    console.print(f"{len(pairs)} {said}:")
    reasons: dict[str, list[str]] = {}
    for name, reason in pairs:
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        console.print(Text(f"  {', '.join(names)}: {reason}", style="dim"))
