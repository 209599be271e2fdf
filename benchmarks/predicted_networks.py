"""Whole networks as they are predicted, beside what was measured of them. Nothing runs here, and no GPU is needed.

    OMP_NUM_THREADS=1 python benchmarks/predicted_networks.py engines [--out results.jsonl]
    OMP_NUM_THREADS=1 python benchmarks/predicted_networks.py timm [--out results.jsonl] [--limit-s 3600] [--seed 0]
    OMP_NUM_THREADS=1 python benchmarks/predicted_networks.py summary --out results.jsonl

"engines" predicts engines on an H200: those of `results/h200-whole-networks.jsonl` and `h200-engine-energies.jsonl`.
"timm" predicts networks of timm on an RTX 4090, in a random order, until the time is over; others have measured them
called layer by layer (`data/README.md`), so that only their order can be compared. "summary" says how far predictions
are from what was measured, how often that lies in their interval, and Spearman's rank correlation, beside the one of
GMACs alone. A file that exists is added to, and what it has is not predicted again. torchvision and timm are no
dependencies of this project: `pip install --no-deps --target DIR torchvision timm`, and DIR in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from torch import nn

from convwright.core.finding import Interval
from convwright.engine.optimize import optimize
from convwright.engine.planned_engine import PlannedEngine
from convwright.errors import ConvwrightError
from convwright.prediction.sums import summed

HERE = Path(__file__).parent
ENGINES = [HERE / "results" / name for name in ("h200-whole-networks.jsonl", "h200-engine-energies.jsonl")]
TABLE = HERE / "data" / "timm_infer-amp-nhwc-pt240-cu124-rtx4090.csv.gz"
# No network is planned for longer than so many seconds of one core.
_MOST_S = 90
# What torchvision registers kernels for, and does not define where it was built for another PyTorch.
_OPERATORS = ("nms", "qnms")


@dataclass(frozen=True, slots=True)
class Case:
    """A network that was measured: ``us`` is the time of one batch, ``mj`` its energy."""

    benchmark: str
    network: str
    device: str
    batch: int
    size: int | None
    us: float
    gmacs: float | None = None
    modelled_us: float | None = None
    mj: float | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        return self.benchmark, self.network, self.batch, self.size

    def made(self) -> tuple[nn.Module, torch.Tensor]:
        return _of_engines(self) if self.benchmark == "engines" else _of_timm(self)


def engines() -> list[Case]:
    rows = [json.loads(line) for path in ENGINES for line in path.read_text().splitlines()]
    newest = {(row["network"], row["batch"]): row for row in rows if row["dtype"] == "fp16"}
    return [
        Case("engines", row["network"], "h200", row["batch"], row["size"], row["us"].get("run", row["us"]["engine"]),
             modelled_us=row["modelled_us"], mj=_call_mj(row))
        for row in newest.values()
    ]  # fmt: skip


def _call_mj(row: dict[str, Any]) -> float | None:
    energy = row.get("energy")
    return None if energy is None else float(energy["call_mj"]["value"])


def timm() -> list[Case]:
    with gzip.open(TABLE, "rt") as file:
        return [
            Case("timm", row["model"], "rtx4090", int(row["infer_batch_size"]), int(row["infer_img_size"]),
                 1e6 * int(row["infer_batch_size"]) / float(row["infer_samples_per_sec"]), float(row["infer_gmacs"]))
            for row in csv.DictReader(file)
        ]  # fmt: skip


def _of_engines(case: Case) -> tuple[nn.Module, torch.Tensor]:
    _define_operators()
    from enable_models import network

    model, shape, _ = network(case.network)
    size = case.size or shape[-1]
    return model.eval().half(), torch.randn(case.batch, shape[0], *(size for _ in shape[1:])).half()


def _of_timm(case: Case) -> tuple[nn.Module, torch.Tensor]:
    """Without memory, as most of these would take long to fill."""
    _define_operators()
    assert case.size is not None
    with torch.device("meta"):
        model: nn.Module = import_module("timm").create_model(case.network, pretrained=False).eval().half()
        channels, *_ = model.default_cfg["input_size"]  # type: ignore[index]
        x = torch.empty(case.batch, channels, case.size, case.size, dtype=torch.float16)
    return model, x.contiguous(memory_format=torch.channels_last)


@cache
def _define_operators() -> object:
    """Whoever holds what this returns keeps the operators, so it is kept."""
    library: Any = torch.library
    defined = library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            defined.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return defined


def row_of(case: Case) -> dict[str, Any]:
    begun_s, begun_cpu_s = perf_counter(), process_time()
    row: dict[str, Any] = {
        "benchmark": case.benchmark, "network": case.network, "device": case.device, "batch": case.batch,
        "size": case.size, "measured_us": case.us, "modelled_us": case.modelled_us, "gmacs": case.gmacs,
        "measured_mj": case.mj,
    }  # fmt: skip
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, _MOST_S)
    try:
        planned = optimize(*case.made(), plan_only=True, device=case.device, store="none")
    except TimeoutError:
        row["refused"] = f"not planned within {_MOST_S} s of one core"
    except ConvwrightError as why:
        row["refused"] = str(why)
    except Exception as error:  # whatever a network's own code raises
        row["refused"] = f"{type(error).__name__}: {error}"[:200]
    else:
        found = planned.prediction
        row |= {
            "predicted_us": found.time_us.to_json(),
            "predicted_mj": found.energy_mj and found.energy_mj.to_json(),
            "independent_us": independent(planned).to_json(),
            "rough_share": found.rough_share, "steps": len(planned.bases), "memory_bytes": found.memory_bytes,
            "weights_bytes": planned.memory.weights, "arena_bytes": planned.memory.arena,
        }  # fmt: skip
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return row | {
        "planned_s": round(perf_counter() - begun_s, 2), "cpu_s": round(process_time() - begun_cpu_s, 2),
    }  # fmt: skip


def independent(planned: PlannedEngine) -> Interval:
    """The sum as if no step's error had anything to do with another's."""
    return summed((str(number), step.time_us) for number, step in enumerate(planned.assignment.steps))


def _late(*_: object) -> None:
    raise TimeoutError


def rows(cases: Sequence[Case], done: set[tuple[Any, ...]], limit_s: float) -> Iterator[dict[str, Any]]:
    begun_s = perf_counter()
    for case in cases:
        if case.key not in done and perf_counter() - begun_s < limit_s:
            yield row_of(case)


def summary(found: Sequence[dict[str, Any]]) -> str:
    lines = list[str]()
    for benchmark in dict.fromkeys(row["benchmark"] for row in found):
        every = [row for row in found if row["benchmark"] == benchmark]
        known = [row for row in every if "predicted_us" in row]
        lines.append(f"{benchmark}: {len(known)} networks predicted, {len(every) - len(known)} refused")
        if len(known) < 2:
            continue
        measured = [row["measured_us"] / row["batch"] for row in known]
        predicted = [row["predicted_us"]["value"] / row["batch"] for row in known]
        lines.append(f"  Spearman's rank correlation of the time per image: {spearman(predicted, measured):.3f}")
        if all(row["gmacs"] is not None for row in known):
            lines.append(f"  of GMACs alone: {spearman([row['gmacs'] for row in known], measured):.3f}")
        ratios = sorted(row["predicted_us"]["value"] / row["measured_us"] for row in known)
        off = sorted(abs(ratio - 1) for ratio in ratios)
        lines.append(
            f"  predicted / measured: median {ratios[len(ratios) // 2]:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}; "
            f"median error {off[len(off) // 2]:.0%}"
        )
        energies = [row["predicted_mj"]["value"] / row["measured_mj"] for row in known if row.get("measured_mj")]
        if energies:
            off_mj = sorted(abs(ratio - 1) for ratio in energies)
            lines.append(f"  energy of {len(off_mj)}: median error {off_mj[len(off_mj) // 2]:.0%}")
        inside, alone = (sum(_is_inside(row, name) for row in known) for name in ("predicted_us", "independent_us"))
        lines.append(f"  in the interval: {inside} of {len(known)}; with independent steps it would be {alone}")
        slowest = max(row["cpu_s"] for row in known)
        mean_s = sum(row["cpu_s"] for row in known) / len(known)
        lines.append(f"  made and planned in {mean_s:.1f} s of one core, {slowest:.0f} at most")
        if benchmark == "engines":
            lines += map(_line, known)
    return "\n".join(lines)


def _is_inside(row: dict[str, Any], name: str) -> bool:
    interval = row[name]
    return bool(float(interval["low"]) <= row["measured_us"] <= float(interval["high"]))


def _line(row: dict[str, Any]) -> str:
    found = row["predicted_us"]
    return (
        f"  {row['network']:24} batch {row['batch']:3}: predicted {found['value']:7,.0f} µs ({found['low']:,.0f} to "
        f"{float(found['high']):,.0f}), measured {row['measured_us']:7,.0f}, "
        f"modelled from searches {row['modelled_us']:7,.0f}; {row['steps']} steps"
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["engines", "timm", "summary"])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--limit-s", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0, help="of the order of timm's networks")
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed(sys.argv[1:])
    lines = options.out.read_text().splitlines() if options.out is not None and options.out.exists() else []
    found = [json.loads(line) for line in lines]
    if options.what != "summary":
        cases = engines() if options.what == "engines" else timm()
        if options.what == "timm":
            random.Random(options.seed).shuffle(cases)
        done = {(row["benchmark"], row["network"], row["batch"], row["size"]) for row in found}
        for row in rows(cases, done, options.limit_s):
            found.append(row)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(summary(found))


if __name__ == "__main__":
    main()
