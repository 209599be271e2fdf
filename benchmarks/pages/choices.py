"""A record of `suite_choices` as a table: one row a setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.choices_summary import by_setting, latest, outside_the_rule
from common.retiming import faster

from convwright.measuring.compare import Outcome
from convwright.report.benchmarks.table import geometric_mean

Line = Mapping[str, Any]
_WORDS = {
    "default": "PyTorch",
    "benchmark": "with `benchmark=True`",
    "channels-last": "channels last",
    "compile": "`torch.compile`",
}
_OUTCOMES = (Outcome.FAST, Outcome.SAME, Outcome.SLOW, Outcome.AMBIGUOUS)
_WHERE = ("driver", "cuda", "cudnn", "torch", "triton")


def table(lines: Sequence[Line]) -> str:
    """How many rows came out how beside the fastest of PyTorch's calls, and how many times as fast as each they are."""
    lines = latest(lines)
    good = [line for line in lines if not line["failure"]]
    # Of calls that stand beside the rows of some settings only, the fastest is counted, but has no column.
    beside = [name for name in good[0]["beside"] if all(name in line["beside"] for line in good)]
    head = ["setting", "rows", " / ".join(outcome.upper() for outcome in _OUTCOMES)]
    head += [f"times as fast as {_WORDS[name]}" for name in beside] + ["as the fastest of them"]
    rows = [_row(_called(name), group, beside) for name, group in by_setting(good)]
    known = good[0]["conditions"]
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in _WHERE if word in known)])
    told = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    failed = len(lines) - len(good)
    eager = sum("timed by events" in line["conditions"] for line in good)
    caches = sorted({line.get("cache", "hot") for line in good})
    about = (
        f"{where}; device time, {' or '.join(caches)} cache, all sides interleaved and replayed from CUDA graphs"
        + (f", but for {eager} row{'s' * (eager > 1)} with calls that were launched one by one" if eager else "")
        + f", in a process that only read what another had found in {_budgets(good)} a row, on other inputs; "
        f"weights {good[0]['weights']}; geometric means."
        + (f" {failed} rows failed." if failed else "")
        + "".join(
            f" {words[0].upper()}{words[1:]}, and is not counted as the fastest there."
            for words in outside_the_rule(good)
        )
    )
    return "\n".join([told[0], "|" + "---|" * len(head), *told[1:], "", about])


def _called(setting: str) -> str:
    """A setting whose suite is a file by that file's name."""
    suite, comma, rest = setting.partition(",")
    return Path(suite).stem + comma + rest


def _budgets(lines: Sequence[Line]) -> str:
    """What the searches were given."""
    least, most = min(line["budget_s"] for line in lines), max(line["budget_s"] for line in lines)
    return f"{least:g} s" if least == most else f"{least:g} to {most:g} s"


def _row(name: str, lines: Sequence[Line], beside: Sequence[str]) -> list[str]:
    counts = Counter(line["outcome"] for line in lines)
    ratios = [[line["ratios"][each]["ratio"] for line in lines] for each in beside]
    means = [_mean(each) for each in (*ratios, [line["ratio"] for line in lines])]
    return [name, f"{len(lines)}", " / ".join(f"{counts[outcome]}" for outcome in _OUTCOMES), *means]


def _mean(ratios: Sequence[Mapping[str, Any]]) -> str:
    mean = geometric_mean([faster(ratio) for ratio in ratios])
    assert mean is not None
    return f"{mean.value:.2f} ± {(mean.high - mean.low) / 2:.2f}"
