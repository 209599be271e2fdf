"""Names that share a reason, on one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
