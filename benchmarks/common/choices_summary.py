"""What the rows of `suite_choices` say, one by one and together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from common.retiming import OURS, counted, faster, interval, mean_in_words

from convwright.core.problem import ConvProblem
from convwright.measuring.compare import Outcome

Line = Mapping[str, Any]


class Row(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def problem(self) -> ConvProblem: ...
    @property
    def batch(self) -> int | None: ...
    @property
    def tf32(self) -> bool | None: ...


def setting(
    suite: str, problem: ConvProblem, batch: int | None, tf32: bool | None, *, finite: bool = False, cache: str = "hot"
) -> str:
    """Under what a row ran, in words.

    >>> setting("gtc", ConvProblem.parse("ic8ih9oc8kh3 ep:bias"), 1, False)
    'gtc, batch 1, forward, fp32, TF32 off, nchw, bias'
    """
    words = [suite, "" if batch is None else f"batch {batch}", f"{problem.direction}, {problem.dtype}"]
    words += ["" if tf32 is None else f"TF32 {'on' if tf32 else 'off'}", str(problem.x.layout)]
    words += [str(problem.epilogue) if problem.epilogue else "", "finite inputs" if finite else ""]
    words += ["" if cache == "hot" else f"{cache} cache"]
    return ", ".join(word for word in words if word)


def told(line: Line) -> str:
    """One row."""
    if line["failure"]:
        return f"{line['name']:20} failed: {line['failure']}"
    other = "" if line["choice"] == line["searched"] else f", but the search chose {line['searched']}"
    times = " ".join(f"{name} {_time(line, name)}" for name in (OURS, *line["beside"]))
    errors = " ".join(f"{line['errors'][name]['relative_l2']:.1e}" for name in (OURS, *line["beside"]))
    beside = ", ".join(f"{faster(line['ratios'][name]['ratio']).value:.3f} of {name}" for name in line["beside"])
    wrong = "".join(f"; {name} {objection}" for name, objection in line.get("objections", {}).items())
    limit_us = line.get("limit_us")
    share = f" ({100 * limit_us / line['times_us'][OURS]['value']:.0f} % of the limit)" if limit_us else ""
    return (
        f"{line['name']:20} {line['choice'] + other:48} {times} µs{share}; times as fast: {beside}; "
        f"{line['outcome'].upper()} beside {line['best']}; errors {errors}{wrong}"
    )


def _time(line: Line, name: str) -> str:
    time_us = interval(line["times_us"][name])
    return f"{time_us.value:.2f} ± {100 * time_us.relative_halfwidth:.1f} %"


def summary(lines: Iterable[Line]) -> str:
    """Each setting by itself: geometric means, how many came out how, and the rows that did not come out well."""
    return "\n".join(_of_setting(name, group) for name, group in by_setting(latest(lines)))


def latest(lines: Iterable[Line]) -> list[Line]:
    """Each row as it was last: one that failed and was taken again has not failed."""
    return list({(line["name"], line["problem"], _setting(line)): line for line in lines}.values())


def by_setting(lines: Iterable[Line]) -> list[tuple[str, list[Line]]]:
    """The rows of each setting."""
    keyed = sorted(((_setting(line), line) for line in lines), key=lambda entry: entry[0])
    return [(name, [line for _, line in group]) for name, group in groupby(keyed, key=lambda entry: entry[0])]


def _setting(line: Line) -> str:
    problem, finite = ConvProblem.parse(line["problem"]), line.get("finite_inputs", False)
    cache = line.get("cache", "hot")
    return setting(line["suite"], problem, line["batch"], line["tf32"], finite=finite, cache=cache)


def _of_setting(name: str, lines: Sequence[Line]) -> str:
    good = [line for line in lines if not line["failure"]]
    said = [f"{name}: {len(good)} rows; {counted(good)} beside the best of {', '.join(_beside(good))}"]
    said += [f"  {each}: {mean_in_words(line['ratios'][each]['ratio'] for line in good)}" for each in _beside(good)]
    if good:
        said.append(f"  the best of them: {mean_in_words(line['ratio'] for line in good)}")
    said += [f"  {words}" for words in outside_the_rule(good)]
    for outcome in (Outcome.SLOW, Outcome.AMBIGUOUS):
        rows = [line for line in good if line["outcome"] == outcome]
        if rows:
            said.append(f"  {outcome.upper()}: {', '.join(map(_named, rows))}")
    said += [f"  failed: {line['name']}: {line['failure']}" for line in lines if line["failure"]]
    return "\n".join(said)


def outside_the_rule(lines: Sequence[Line]) -> list[str]:
    """Which of PyTorch's calls the error rule objects to, on how many rows, and on how many these are the fastest."""
    said = []
    for name in _beside(lines):
        wrong = [line for line in lines if name in line.get("objections", {})]
        quicker = [line for line in wrong if _us(line, name) < _us(line, line["best"])]
        if wrong:
            said.append(f"the error rule objects to {name} on {len(wrong)} rows, and it is faster on {len(quicker)}")
    return said


def _us(line: Line, name: str) -> float:
    return float(line["times_us"][name]["value"])


def _beside(lines: Sequence[Line]) -> list[str]:
    """The calls that all rows were held against."""
    return [name for name in (lines[0]["beside"] if lines else []) if all(name in line["ratios"] for line in lines)]


def _named(line: Line) -> str:
    ratio = interval(line["ratio"])
    return f"{line['name']} ({line['choice']}, {ratio.value:.3f} of the time of {line['best']})"


def missing(suite: str, rows: Iterable[Row]) -> str:
    """Which rows there was no time for."""
    left: dict[str, list[int]] = {}
    for row in rows:
        left.setdefault(setting(suite, row.problem, row.batch, row.tf32), []).append(row.index)
    return "\n".join(f"no time for {name}: rows {_ranges(indexes)}" for name, indexes in left.items())


def _ranges(indexes: Sequence[int]) -> str:
    """As slices.

    >>> _ranges([3, 4, 5, 9])
    '3:6, 9:10'
    """
    starts = [index for place, index in enumerate(indexes) if not place or indexes[place - 1] != index - 1]
    ends = [i + 1 for place, i in enumerate(indexes) if place + 1 == len(indexes) or indexes[place + 1] != i + 1]
    return ", ".join(f"{start}:{end}" for start, end in zip(starts, ends, strict=True))
