"""The tests on a GPU, on all GPUs of a host at once, and a record of what passed.

    python benchmarks/gpu_tests.py [--workers 15] [--minutes 9] [--part 1/2] [--record h200-tests.txt]

Each GPU has some of the files, which so many processes share. What is marked `alone` comes afterwards, one by one. On a
GPU that is lent for minutes, run part 1/2 and part 2/2, which has all that is marked `alone`: 6 and 10 minutes on an
H200 with 16 processors. A line of the record is written as soon as a test has ended, with what went wrong, so that a
run which is stopped has not run in vain.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1] / "tests" / "gpu"
RECORD = "CONVWRIGHT_GPU_TESTS_RECORD"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """As a plugin of pytest: note how a test has ended."""
    if "PYTEST_XDIST_WORKER" in os.environ or not (report.when == "call" or report.failed or report.skipped):
        return
    with Path(os.environ[RECORD]).open("a") as file:
        file.write(f"{report.outcome.upper()} {report.nodeid}\n")
        if report.failed:
            file.write(f"{report.longreprtext}\n")


def run(files: list[Path], record: Path, until_s: float, *options: str, gpu: int) -> subprocess.Popen[bytes]:
    """Pytest on some files, with one of the GPUs."""
    here = Path(__file__).resolve()
    path = os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu), "PYTHONPATH": path, RECORD: str(record)}
    seconds = max(until_s - perf_counter(), 1.0)
    command = ["timeout", str(seconds), sys.executable, "-m", "pytest", "-q", "-p", here.stem, *options]
    return subprocess.Popen([*command, *map(str, files)], env=environment, stdout=subprocess.DEVNULL)


def _part(text: str) -> tuple[int, int]:
    """Which part, of how many.

    >>> _part("2/3")
    (2, 3)
    """
    part, _, parts = text.partition("/")
    if not 1 <= int(part) <= int(parts):
        raise ValueError(text)
    return int(part), int(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=Path("gpu-tests.txt"))
    parser.add_argument("--workers", type=int, default=15, help="processes on each GPU")
    parser.add_argument("--part", type=_part, default=(1, 1), help="of the files, such as 2/3")
    parser.add_argument("--minutes", type=float, default=30.0, help="stop what still runs after so long")
    options = parser.parse_args()
    until_s, gpus = perf_counter() + 60 * options.minutes, torch.cuda.device_count()
    files, record = sorted(TESTS.glob("test_*.py")), options.record.resolve()
    record.unlink(missing_ok=True)
    beside = ["-n", str(options.workers), "--dist", "worksteal", "-m", "not alone"]
    part, parts = options.part
    some = files[part - 1 :: parts]
    running = [run(some[gpu::gpus], record, until_s, *beside, gpu=gpu) for gpu in range(gpus)]
    for each in running:
        each.wait()
    if part == parts:
        run(files, record, until_s, "-m", "alone", gpu=0).wait()
    outcomes = Counter(line.partition(" ")[0] for line in record.read_text().splitlines())
    print(", ".join(f"{outcomes[word]} {word.lower()}" for word in ("PASSED", "SKIPPED", "FAILED")))


if __name__ == "__main__":
    main()
