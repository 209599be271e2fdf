"""The store as tables: a count of one is told in the singular, and as data a device's key is what it is."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from convwright.report.store import print_problems, problems_to_json
from convwright.tuning.keeping.upkeep import KnownProblem


def test_a_device_of_one_thread() -> None:
    known = KnownProblem(problem="p", device="a cpu, 1 threads", findings=2, failures=0, newest=1.7e9)
    out = StringIO()
    print_problems([known], Console(file=out, width=120))
    assert "a cpu, 1 thread " in out.getvalue()
    assert problems_to_json([known])[0]["device"] == "a cpu, 1 threads"
