"""Tables of the README and of pages from the recorded results, so that no figure in them is written by hand.

    python benchmarks/tables.py [--write]

Without ``--write`` the tables are printed; with it, each of `TABLES` replaces what stands between its markers on one
of `SHOWN_ON`: ``<!-- table: NAME -->`` and ``<!-- end of table -->``. Those of `PAGES` are written as a whole, with
their entries in the site's navigation. What has no record yet is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pages import (
    choices,
    clinic,
    cpu_zoo,
    engines,
    few_channels,
    found,
    gtc,
    models,
    own_kernels,
    padding_sweep,
    profiles,
    records,
    suites,
)

ROOT = Path(__file__).resolve().parents[1]
DOCS, SITE = ROOT / "docs", ROOT / "mkdocs.yml"
SHOWN_ON = (
    ROOT / "README.md", DOCS / "index.md", DOCS / "measured.md", DOCS / "bench.md", DOCS / "engine.md",
    DOCS / "kernels.md", DOCS / "wrapper-clinic.md",
)  # fmt: skip
END = "<!-- end of table -->"
_BEHIND = "      - Benchmarks: bench.md\n"


class Table:
    """What stands between the markers of a name, made of the lines of all its records."""

    def __init__(self, make: Callable[[records.Lines], str], *names: str) -> None:
        self.make = make
        self.records = [records.record(name) for name in names]

    def text(self) -> str | None:
        """None where a record is missing."""
        if not all(record.exists() for record in self.records):
            return None
        return self.make([line for record in self.records for line in records.read(record)])


TABLES = {
    "engines": Table(engines.table, "h200-whole-networks.jsonl"),
    "engines-autotuned": Table(engines.autotuned, "h200-max-autotune.jsonl"),
    "engines-in-short": Table(engines.in_short, "h200-whole-networks.jsonl"),
    "engines-cpu": Table(engines.table, "cpu-whole-networks.jsonl"),
    "find": Table(found.table, "h200-find.jsonl"),
    "cpu-zoo": Table(cpu_zoo.table, "cpu-zoo.jsonl"),
    "cpu-models": Table(models.table, "cpu-enable-models.jsonl"),
    "networks": Table(models.table, "h200-networks.jsonl"),
    "clinic": Table(clinic.table, "h200-wrapper-clinic.jsonl"),
    "deepbench": Table(choices.table, "h200-deepbench.jsonl"),
    "deepbench-h100": Table(choices.table, "h100-deepbench.jsonl"),
    "classes": Table(choices.table, "h200-classes.jsonl"),
    "classes-h100": Table(choices.table, "h100-classes.jsonl"),
    "suites": Table(suites.table, "h200-deepbench.jsonl", "h200-suites.jsonl", "h200-classes.jsonl"),
    "suites-h100": Table(suites.table, "h100-deepbench.jsonl", "h100-suites.jsonl", "h100-classes.jsonl"),
    "activations": Table(choices.table, "h200-activations.jsonl"),
    "activations-h100": Table(choices.table, "h100-activations.jsonl"),
    "fused-zoo": Table(choices.table, "h200-fused-zoo.jsonl"),
    "fused-zoo-h100": Table(choices.table, "h100-fused-zoo.jsonl"),
    "own-kernels": Table(own_kernels.table, "h200-own-kernels.jsonl"),
    "depthwise-profiles": Table(profiles.table, "h100-depthwise-profiles.jsonl"),
}


@dataclass(frozen=True)
class Page:
    """A page of its own: its file under docs/, what makes it of its record's lines, its entry in the navigation, and
    what draws the images that it shows into a folder."""

    file: str
    record: Path
    make: Callable[[records.Lines], str]
    title: str
    draw: Callable[[records.Lines, Path], None] | None = None

    def write(self, folder: Path) -> None:
        lines = records.read(self.record)
        (folder / self.file).write_text(self.make(lines))
        if self.draw is not None:
            self.draw(lines, folder)


PAGES = (
    Page("gtc.md", records.record("h200-gtc.jsonl"), gtc.page, "Every algorithm", gtc.draw),
    Page(
        "few-channels.md", records.record("h200-few-channels.jsonl"), few_channels.page, "Few channels",
        few_channels.draw,
    ),
    Page(
        "padding-sweep.md", records.record("h200-padding-sweep.jsonl.gz"), padding_sweep.page, "Padding and width",
        padding_sweep.draw,
    ),
)  # fmt: skip


def in_navigation(site: str, page: Page) -> str:
    """``site`` with an entry for ``page`` behind that of the benchmarks, where it has none."""
    entry = f"      - {page.title}: {page.file}\n"
    return site if entry in site else site.replace(_BEHIND, _BEHIND + entry)


def written(shown: str, name: str, text: str) -> str:
    """``shown`` with ``text`` between the markers of the table called ``name``; without them as it is."""
    start = f"<!-- table: {name} -->"
    before, found_it, rest = shown.partition(start)
    return f"{before}{start}\n{text}\n{END}{rest.partition(END)[2]}" if found_it else shown


def main() -> None:
    made = {name: text for name, table in TABLES.items() if (text := table.text()) is not None}
    if "--write" not in sys.argv:
        print("\n\n".join(made.values()))
        return
    for file in SHOWN_ON:
        shown = file.read_text()
        for name, text in made.items():
            shown = written(shown, name, text)
        file.write_text(shown)
    for page in PAGES:
        if page.record.exists():
            page.write(DOCS)
            SITE.write_text(in_navigation(SITE.read_text(), page))


if __name__ == "__main__":
    main()
