"""The README's table from the recorded results, so that no figure in it is written by hand.

    python benchmarks/tables.py [--write]

Without ``--write`` the table is printed; with it, it replaces what stands between the markers in README.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "h200-find.jsonl"
START, END = "<!-- table: find -->", "<!-- end of table -->"


def row(found: dict[str, Any]) -> str:
    """One problem: what wins, its time and PyTorch's, both errors' first."""
    by_id = {candidate["id"]: candidate for candidate in found["candidates"]}
    best, torchs = by_id[found["choice"]], by_id[found["baseline"]]
    problem = found["problem"].replace(" dir:forward", "").replace(" ep:none", "")
    times = [_time(candidate["measurement"]["device_us"]) for candidate in (best, torchs)]
    errors = [candidate["measurement"]["errors"][0]["relative_l2"] for candidate in (best, torchs)]
    ratio = torchs["measurement"]["device_us"]["value"] / best["measurement"]["device_us"]["value"]
    name = best["id"].partition("[")[0] + (")" if "(" in best["id"] and "[" in best["id"] else "")
    return f"| `{problem}` | `{name}` | {times[0]} | {times[1]} | {ratio:.2f} | {errors[0]:.1e} | {errors[1]:.1e} |"


def _time(interval: dict[str, float]) -> str:
    return f"{interval['value']:.1f} ± {(interval['high'] - interval['low']) / 2:.1f}"


def table() -> str:
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    known = dict(found[0]["candidates"][0]["measurement"]["conditions"])
    names = ("device", "driver", "cuda", "cudnn", "torch", "triton")
    where = ", ".join(f"{name} {known[name]}" if name != "device" else known[name] for name in names if name in known)
    head = (
        "| problem | winner | µs | PyTorch, µs | times faster | its error | PyTorch's |\n|---|---|---|---|---|---|---|"
    )
    body = "\n".join(row(one) for one in found)
    return f"{head}\n{body}\n\n{where}; TF32 off; device time, hot cache; relative L2 on normal data."


def main() -> None:
    text = table()
    if "--write" not in sys.argv:
        print(text)
        return
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(START)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{START}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
