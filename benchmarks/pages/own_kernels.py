"""The table of what our own kernels took for some layers, of the record that `own_kernels.py` leaves."""

from __future__ import annotations

from typing import Any

HEAD = (
    "| problem | cache | PyTorch, µs | fastest of ours | µs | times faster | its error | PyTorch's |\n"
    "|---|---|---|---|---|---|---|---|"
)
# What PyTorch is held against is the faster of these.
_TORCH = ("default", "benchmark")


def table(lines: list[dict[str, Any]]) -> str:
    """A row for each problem, by the last line that tells of it."""
    last = {(line["setting"], line["problem"]): line for line in lines}
    where = lines[0]["conditions"]
    rows = [_row(line) for line in last.values()]
    about = (
        f"{where['device']}, torch {where['torch']}; TF32 off, device time, weights packed once where they are; "
        "relative L2 on normal data. PyTorch's is the faster of its default and `benchmark=True`; of fp32 only those "
        "of ours are counted that compute it as accurately."
    )
    return "\n".join([HEAD, *rows, "", about])


def _row(line: dict[str, Any]) -> str:
    times, errors = line["us"], line["relative_l2"]
    own = min(_TORCH, key=lambda name: times[name]["value"])
    exact = [name for name in times if name not in _TORCH and not _rounds(name)]
    best = min(exact, key=lambda name: times[name]["value"])
    own_us, best_us = times[own]["value"], times[best]["value"]
    problem = line["problem"].replace(" dir:forward", "").replace(" ep:none", "")
    name = best.partition("[")[0] + ("[…,packed=1]" if "packed=1" in best else "")
    cache = "cold" if line["setting"].endswith("cold cache") else "hot"
    return (
        f"| `{problem}` | {cache} | {own_us:.1f} | `{name}` | {best_us:.1f} | {own_us / best_us:.2f} | "
        f"{errors[best]:.1e} | {errors[own]:.1e} |"
    )


def _rounds(name: str) -> bool:
    """Whether an algorithm rounds fp32 to TF32."""
    return name.partition("[")[0].removesuffix("-packed").endswith("-tf32")
