"""What our Triton kernels took in the records, as times of what `backends/triton/estimates` says they should take.

    python benchmarks/kernel_estimates.py [--device h200] [results.jsonl …]

For each kernel, in planes and with channels last: how many configurations were measured, the ratio that a tenth of them
stay below, the median, the ratio that a tenth lie above, and how many in a hundred are between half and twice the
estimate. Runs nothing. Where a median is far from 1, the kernel's entry in ``_TIMES`` is to be multiplied by it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.operands import is_in_planes
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

RESULTS = Path(__file__).parent / "results"
RECORDS = [RESULTS / f"h200-{name}.jsonl" for name in ("own-kernels", "classes", "deepbench", "fused-zoo")]
# Sums in fp16 are offered to who names them alone.
ANY = Policy(arithmetic=frozenset(Arithmetic))


def measured(line: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Ids of a record's line, of `own_kernels` or `suite_choices`, each with the µs that it took by itself."""
    if line.get("benchmark") == "own kernels":
        yield from ((id_, us["value"]) for id_, us in line["us"].items())
    for entry in line.get("table", ()):
        if entry["us"] is not None:
            yield entry["id"], entry["us"]["value"]


@cache
def offered(problem: ConvProblem, device: DeviceFacts) -> dict[str, Candidate]:
    offers = TritonKernels().candidates(problem, device, ANY)
    return {offer.id: offer for offer in offers if isinstance(offer, Candidate)}


def ratios(files: list[Path], device: DeviceFacts) -> dict[str, list[float]]:
    """By kernel and layout, of what is offered still."""
    found = defaultdict[str, list[float]](list)
    for line in (json.loads(text) for file in files for text in file.read_text().splitlines()):
        problem = ConvProblem.parse(line["problem"])
        for id_, us in measured(line):
            candidate = offered(problem, device).get(id_) if id_.startswith("triton/") else None
            if candidate is not None and candidate.estimated_us is not None:
                layout = "in planes" if is_in_planes(problem.x) else "channels last"
                found[f"{candidate.algorithm}, {layout}"].append(us / candidate.estimated_us)
    return found


def told(name: str, each: list[float]) -> str:
    each = sorted(each)
    low, median, high = (each[int(share * (len(each) - 1))] for share in (0.1, 0.5, 0.9))
    within = sum(0.5 <= ratio <= 2 for ratio in each) / len(each)
    return f"{name:50} {len(each):5}  {low:5.2f} {median:5.2f} {high:5.2f}  {within:4.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=RECORDS)
    parser.add_argument("--device", default="h200")
    options = parser.parse_args()
    found = ratios(options.files, profile(options.device))
    for name, each in sorted(found.items()):
        print(told(name, each))
    print(told("all", [ratio for each in found.values() for ratio in each]))


if __name__ == "__main__":
    main()
