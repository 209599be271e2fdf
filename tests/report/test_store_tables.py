"""The store as tables: a count of one is told in the singular, and as data its key stands beside."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from convwright.core.problem import ConvProblem
from convwright.report.tables.store import print_problems, problems_to_json
from convwright.store.upkeep import KnownProblem


def test_a_device_of_one_thread() -> None:
    known = KnownProblem(problem="p", device="a cpu, 1 threads", findings=2, failures=0, newest=1.7e9)
    out = StringIO()
    print_problems([known], Console(file=out, width=120))
    assert "a cpu, 1 thread " in out.getvalue()
    (row,) = problems_to_json([known])
    assert (row["device"], row["device_key"]) == ("a cpu, 1 thread", "a cpu, 1 threads")


def test_dates_are_in_iso_8601_as_data_and_problems_are_short_in_tables() -> None:
    key = ConvProblem.parse("ic8ih9oc8kh3").key
    known = KnownProblem(problem=key, device="a cpu", findings=2, failures=0, newest=1.7e9)
    assert problems_to_json([known])[0]["newest"] == "2023-11-14T22:13:20+00:00"
    assert problems_to_json([known])[0]["problem"] == key
    out = StringIO()
    print_problems([known], Console(file=out, width=120))
    assert "\nic8oc8ih9kh3 " in out.getvalue()
