"""Findings for tests of the store, and processes that write them."""

from __future__ import annotations

from pathlib import Path

from convwright.core.finding import Interval, KindError, Measurement
from convwright.store.store import Store
from forked import Program

PROBLEM, DEVICE = "g1mb1ic8oc8ih9iw9oh7ow7kh3kw3", "H200"
MEASUREMENT = Measurement(
    device_us=Interval(12.5, 12.4, 12.6),
    prepare_us=Interval(3.0, 2.5, 3.5),
    errors=(KindError("normal", 1e-7, 0.5), KindError("one infinity", float("inf"), 0.0)),
    workspace_bytes=4096,
    samples=31,
    conditions=(("clock_mhz", "1980"), ("cache", "network")),
)
# A store's file that is corrupt.
DAMAGED = b"SQLite format 3\x00" + b"and then nothing that it could read" * 100

WRITER = """
import sys
from pathlib import Path
from convwright.store.store import Store
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with Store.open(path) as store:
    for i in range(count):
        store.record("problem", "device", f"{name}/{i}", "1", None, "x" * 200)
        if i == 10:
            print("ten", flush=True)
"""


def writers_at_once(path: Path, processes: int, count: int) -> list[Program]:
    """Processes that all open the store and write to it at the same moment."""
    writers = [Program(WRITER, str(path), f"writer-{i}", str(count)) for i in range(processes)]
    for process in writers:
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        process.stdin.write("go\n")
        process.stdin.flush()
    return writers


def finish(writers: list[Program]) -> None:
    for process in writers:
        process.communicate()
    assert [process.returncode for process in writers] == [0] * len(writers)


def record(store: Store, candidate: str = "torch/default") -> None:
    store.record(PROBLEM, DEVICE, candidate, "torch 2.13", MEASUREMENT, None)
