"""Tables of the README and of pages from the recorded results, so that no figure in them is written by hand.

    python benchmarks/tables.py [--write]

Without ``--write`` the tables are printed; with it, each replaces what stands between its markers on one of `PAGES`:
``<!-- table: find -->``, ``cpu-zoo``, ``cpu-models``, ``clinic``, ``deepbench``, ``deepbench-h100``, ``classes``,
``classes-h100``, ``suites-h100``, ``activations-h100``, ``fused-zoo``, ``fused-zoo-h100`` or ``own-kernels``, and
``<!-- end of table -->``. A table whose record is not there yet is left out.
Pages that are made as a whole, and their entries in the site's navigation, are written once there is a record of them.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import choices_table
import few_channels_page
import gtc_page
import own_kernels_table
import padding_page

from convwright import suites
from convwright.core.direction import Direction
from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.report.bench import geometric_mean

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "h200-find.jsonl"
ZOO_RESULTS = ROOT / "benchmarks" / "results" / "cpu-zoo.jsonl"
MODELS_RESULTS = ROOT / "benchmarks" / "results" / "cpu-enable-models.jsonl"
DEEPBENCH_RESULTS = ROOT / "benchmarks" / "results" / "h200-deepbench.jsonl"
DEEPBENCH_H100_RESULTS = ROOT / "benchmarks" / "results" / "h100-deepbench.jsonl"
CLASSES_RESULTS = ROOT / "benchmarks" / "results" / "h200-classes.jsonl"
CLASSES_H100_RESULTS = ROOT / "benchmarks" / "results" / "h100-classes.jsonl"
SUITES_RESULTS = ROOT / "benchmarks" / "results" / "h100-suites.jsonl"
ACTIVATIONS_RESULTS = ROOT / "benchmarks" / "results" / "h100-activations.jsonl"
FUSED_RESULTS = ROOT / "benchmarks" / "results" / "h200-fused-zoo.jsonl"
FUSED_H100_RESULTS = ROOT / "benchmarks" / "results" / "h100-fused-zoo.jsonl"
OWN_RESULTS = ROOT / "benchmarks" / "results" / "h200-own-kernels.jsonl"
CLINIC_RESULTS = ROOT / "benchmarks" / "results" / "h200-wrapper-clinic.jsonl"
PAGES = (
    ROOT / "README.md", ROOT / "docs" / "bench.md", ROOT / "docs" / "kernels.md", ROOT / "docs" / "wrapper-clinic.md",
)  # fmt: skip
START, END = "<!-- table: find -->", "<!-- end of table -->"


def row(found: dict[str, Any]) -> str:
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


_KINDS = ("1x1", "3x3", "larger filters", "groups", "1x1 images")
_OUTCOMES = ("fast", "same", "slow", "ambiguous")


def zoo_table() -> str:
    """Layers of networks on a CPU, by batch and kind: how many came out how, and how many times faster they are."""
    lines = [json.loads(line) for line in ZOO_RESULTS.read_text().splitlines()]
    batches = sorted({line["batch"] for line in lines})
    groups = [(f"{batch}", kind, [one for one in lines if (one["batch"], _kind(one)) == (batch, kind)])
              for batch in batches for kind in _KINDS]  # fmt: skip
    groups += [(f"{batch}", "**all**", [line for line in lines if line["batch"] == batch]) for batch in batches]
    head = (
        "| batch | kind | layers | FAST | SAME | SLOW | AMBIGUOUS | times faster, geometric mean | best | worst |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    body = "\n".join(_zoo_row(*group) for group in groups if group[2])
    known, words = lines[0]["conditions"], ("threads", "torch", "python", "system")
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in words)])
    return (
        f"{head}\n{body}\n\n{where}; `cw.conv2d` beside `F.conv2d`, fp32, NCHW, hot cache, in a process that only "
        f"read what another had found in mode {lines[0]['search_mode']}, on other inputs."
        f"{_slow(lines)}{_disturbed(lines)}"
    )


def _slow(lines: list[dict[str, Any]]) -> str:
    """Where PyTorch's own call is the choice and its time is not reached, what the look-up takes is what is missing."""
    slow = [line for line in lines if line["outcome"] == "slow"]
    own = [line for line in slow if line["choice"] == "torch/default"]
    if not own:
        return ""
    lost = [line["ours_us"]["value"] - line["torch_us"]["value"] for line in own]
    longest = max(line["torch_us"]["value"] for line in own)
    return (
        f" In {len(own)} of the {len(slow)} SLOW rows PyTorch's own call is what was chosen, takes at most "
        f"{longest:.0f} µs, and finding that out {min(lost):.1f} to {max(lost):.1f} µs."
    )


def _disturbed(lines: list[dict[str, Any]]) -> str:
    own = sum(line["outcome"] == "fast" and line["choice"] == "torch/default" for line in lines)
    return f" {own} of the FAST are PyTorch's own call on both sides: other work disturbed them." if own else ""


def _kind(line: dict[str, Any]) -> str:
    problem = ConvProblem.parse(line["problem"])
    if problem.groups > 1:
        return "groups"
    if problem.x.shape[2:] == (1, 1):
        return "1x1 images"
    return {1: "1x1", 3: "3x3"}.get(problem.taps[0], "larger filters")


def _zoo_row(batch: str, kind: str, lines: list[dict[str, Any]]) -> str:
    ratios = [line["ratio"] for line in lines]
    faster = [Interval(1 / ratio["value"], 1 / ratio["high"], 1 / ratio["low"]) for ratio in ratios]
    counts, mean = Counter(line["outcome"] for line in lines), geometric_mean(faster)
    assert mean is not None
    values = [ratio.value for ratio in faster]
    cells = [batch, kind, str(len(lines)), *(str(counts[outcome]) for outcome in _OUTCOMES)]
    cells += [f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})", f"{max(values):.2f}", f"{min(values):.2f}"]
    return f"| {' | '.join(cells)} |"


def models_table() -> str:
    """Whole models under ``cw.enable()``, beside PyTorch's own convolutions."""
    lines = [json.loads(line) for line in MODELS_RESULTS.read_text().splitlines()]
    head = (
        "| model | `cw.enable()`, ms | PyTorch, ms | of PyTorch's time | error | PyTorch's |\n|---|---|---|---|---|---|"
    )
    rows = []
    for line in lines:
        ratio, errors = line["ratio"]["ratio"], line["relative_l2"]
        times = f"{line['ours_us'] / 1e3:.2f} | {line['torch_us'] / 1e3:.2f}"
        among = f"{ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
        rows.append(f"| {line['model']} | {times} | {among} | {errors['ours']:.1e} | {errors['torch']:.1e} |")
    known, words = lines[0]["conditions"], ("threads", "torch", "torchvision", "python", "system")
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in words)])
    how = "the share of PyTorch's time is the median over rounds in which both ran"
    about = f"{where}; fp32, batch {lines[0]['batch']}, 224 × 224, no gradient; {how}."
    return "\n".join([head, *rows, "", about])


def clinic_table() -> str:
    """A hand-written wrapper, cure by cure."""
    lines = [json.loads(line) for line in CLINIC_RESULTS.read_text().splitlines()]
    head = "| with this cure as well | µs a call | PyTorch, µs | times as long |\n|---|---|---|---|"
    rows = []
    for line in lines:
        ours_us, torch_us = line["ours_us"], line["torch_us"]
        rows.append(f"| {line['cure']} | {ours_us:.1f} | {torch_us:.1f} | {ours_us / torch_us:.2f} |")
    known, words = lines[0]["conditions"], ("driver", "cudnn", "torch")
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in words)])
    about = (
        f"{where}; `{lines[0]['problem']}`, TF32 allowed; whole calls on an empty queue, the least of several rounds."
    )
    return "\n".join([head, *rows, "", about])


def suites_table() -> str:
    """Each suite in fp32, forward, with TF32 off, from whichever record has it."""
    records = (DEEPBENCH_H100_RESULTS, SUITES_RESULTS, CLASSES_H100_RESULTS)
    return choices_table.table([line for record in records for line in _lines(record) if _of_a_suite(line)])


def _of_a_suite(line: dict[str, Any]) -> bool:
    if line["suite"] not in suites.names() or line["tf32"] is not False:
        return False
    return ConvProblem.parse(line["problem"]).direction is Direction.FORWARD


def _lines(record: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(record.read_bytes()).decode() if record.suffix == ".gz" else record.read_text()
    return [json.loads(line) for line in text.splitlines()]


# By the name that stands in the markers: the record, and what makes a table of it.
TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "find": (RESULTS, table),
    "cpu-zoo": (ZOO_RESULTS, zoo_table),
    "cpu-models": (MODELS_RESULTS, models_table),
    "clinic": (CLINIC_RESULTS, clinic_table),
    "deepbench": (DEEPBENCH_RESULTS, lambda: choices_table.table(_lines(DEEPBENCH_RESULTS))),
    "deepbench-h100": (DEEPBENCH_H100_RESULTS, lambda: choices_table.table(_lines(DEEPBENCH_H100_RESULTS))),
    "classes": (CLASSES_RESULTS, lambda: choices_table.table(_lines(CLASSES_RESULTS))),
    "classes-h100": (CLASSES_H100_RESULTS, lambda: choices_table.table(_lines(CLASSES_H100_RESULTS))),
    "suites-h100": (SUITES_RESULTS, suites_table),
    "activations-h100": (ACTIVATIONS_RESULTS, lambda: choices_table.table(_lines(ACTIVATIONS_RESULTS))),
    "fused-zoo": (FUSED_RESULTS, lambda: choices_table.table(_lines(FUSED_RESULTS))),
    "fused-zoo-h100": (FUSED_H100_RESULTS, lambda: choices_table.table(_lines(FUSED_H100_RESULTS))),
    "own-kernels": (OWN_RESULTS, lambda: own_kernels_table.table(_lines(OWN_RESULTS))),
}


@dataclass(frozen=True)
class Page:
    """A page of its own: its file under docs/, what makes it of its record's lines, its entry in the navigation, and
    what draws the images that it shows into a folder."""

    file: str
    record: Path
    make: Callable[[list[dict[str, Any]]], str]
    title: str
    draw: Callable[[list[dict[str, Any]], Path], None] | None = None


GENERATED = (
    Page("gtc.md", ROOT / "benchmarks" / "results" / "h200-gtc.jsonl", gtc_page.page, "Every algorithm"),
    Page(
        "few-channels.md", ROOT / "benchmarks" / "results" / "h100-few-channels.jsonl", few_channels_page.page,
        "Few channels", few_channels_page.draw,
    ),
    Page(
        "padding-sweep.md", ROOT / "benchmarks" / "results" / "h200-padding-sweep.jsonl.gz", padding_page.page,
        "Padding and width", padding_page.draw,
    ),
)  # fmt: skip
NAVIGATION, BEHIND = ROOT / "mkdocs.yml", "      - Benchmarks: bench.md\n"


def in_navigation(site: str, title: str, page: Path) -> str:
    """``site`` with an entry for ``page`` behind that of the benchmarks, where it has none."""
    entry = f"      - {title}: {page.name}\n"
    return site if entry in site else site.replace(BEHIND, BEHIND + entry)


def written(readme: str, name: str, text: str) -> str:
    """``readme`` with ``text`` between the markers of the table called ``name``; without them as it is."""
    start = f"<!-- table: {name} -->"
    before, found, rest = readme.partition(start)
    return f"{before}{start}\n{text}\n{END}{rest.partition(END)[2]}" if found else readme


def main() -> None:
    made = {name: make() for name, (record, make) in TABLES.items() if record.exists()}
    if "--write" not in sys.argv:
        print("\n\n".join(made.values()))
        return
    for readme in PAGES:
        text = readme.read_text()
        for name, each in made.items():
            text = written(text, name, each)
        readme.write_text(text)
    for page in GENERATED:
        if page.record.exists():
            lines, file = _lines(page.record), ROOT / "docs" / page.file
            file.write_text(page.make(lines))
            if page.draw is not None:
                page.draw(lines, file.parent)
            NAVIGATION.write_text(in_navigation(NAVIGATION.read_text(), page.title, file))


if __name__ == "__main__":
    main()
