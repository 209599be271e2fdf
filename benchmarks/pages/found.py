"""The table of full searches on a few problems, made of the record of `find_suite.py`."""

from __future__ import annotations

from typing import Any

from pages.records import Lines


def _row(found: dict[str, Any]) -> str:
    """One problem: what wins, its time and PyTorch's, both errors' first."""
    by_id = {candidate["id"]: candidate for candidate in found["candidates"]}
    best, torchs = by_id[found["choice"]], by_id[found["baseline"]]
    problem = found["problem"].replace(" dir:forward", "").replace(" ep:none", "")
    times = [_time(candidate["measurement"]["device_us"]) for candidate in (best, torchs)]
    errors = [candidate["measurement"]["errors"][0]["relative_l2"] for candidate in (best, torchs)]
    ratio = torchs["measurement"]["device_us"]["value"] / best["measurement"]["device_us"]["value"]
    name, configured, _ = best["id"].partition("[")
    name += ")" * name.count("(") if configured else ""
    return f"| `{problem}` | `{name}` | {times[0]} | {times[1]} | {ratio:.2f} | {errors[0]:.1e} | {errors[1]:.1e} |"


def _time(interval: dict[str, float]) -> str:
    return f"{interval['value']:.1f} ± {(interval['high'] - interval['low']) / 2:.1f}"


def table(found: Lines) -> str:
    known = dict(found[0]["candidates"][0]["measurement"]["conditions"])
    names = ("device", "driver", "cuda", "cudnn", "torch", "triton")
    where = ", ".join(f"{name} {known[name]}" if name != "device" else known[name] for name in names if name in known)
    head = (
        "| problem | winner | µs | PyTorch, µs | times faster | its error | PyTorch's |\n|---|---|---|---|---|---|---|"
    )
    body = "\n".join(_row(one) for one in found)
    return f"{head}\n{body}\n\n{where}; TF32 off; device time, hot cache; relative L2 on normal data."
