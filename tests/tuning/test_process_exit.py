"""However a process ends that has used convwright: with code 0, without a word, and nothing of it stays behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from ended import PATIENCE_S, Ended

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not tell who is left")

BEGIN = """
import os, signal, sys, threading, time
from pathlib import Path
import torch
import convwright as cw
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in its background
torch.set_num_threads(1)
here = Path(sys.argv[1])
x, w = torch.randn(2, 4, 16, 16), torch.randn(6, 4, 3, 3)
"""
FATAL = """
from convwright.backends import registry
from convwright.tuning import workers
from convwright.tuning.compile_queue import CompileQueue, Priority
from convwright.tuning.workers import WorkerPool
from tuning.fatal import SERVE, kernel
from tuning.made import CPU
registry.BACKENDS["fatal"] = "tuning.fatal:Fatal"
workers.COMMAND = [sys.executable, "-c", SERVE.format(paths=sys.path)]
"""
COMPILES = """
CompileQueue(most=1, quiet_s=0.0).want([kernel("hangs")], CPU, Priority.BACKGROUND)
children = Path("/proc/self/task")
while not any((task / "children").read_text() for task in children.iterdir()):
    time.sleep(0.01)
time.sleep(0.5)
"""
INTERRUPTED = """
def progress(done, of, doing):
    if doing == "first looks":
        (here / "begun").touch()
try:
    cw.find("mb8ic64ih28oc64kh3ph1", device="cpu", budget_us=60e6, progress=progress, isolate={isolate})
except KeyboardInterrupt:
    sys.exit(0)
sys.exit(7)
"""
SCRIPTS = {
    "after calls": """
for _ in range(4):
    cw.conv2d(x, w)
cw.conv2d(x, w, algorithm="reference/gemm")
""",
    "after a search": """
cw.find(x, w, mode="quick", store=here / "store" / "findings.sqlite")
""",
    "in an open context": """
cw.algorithms(forward="reference/gemm").__enter__()
cw.enable()
torch.nn.functional.conv2d(x, w)
""",
    "while something is compiled": FATAL + COMPILES,
    "beside a compiler that rests": FATAL + """
WorkerPool(1).ask("compile", kernel(here / "compiled"), CPU)
""",
    "with a compiler that is asked from another thread": FATAL + """
asked = WorkerPool(1)
threading.Thread(target=asked.ask, args=("compile", kernel("hangs"), CPU), daemon=True).start()
while not asked._places._value == 0:
    time.sleep(0.01)
time.sleep(5.0)  # until it compiles, which it begins late beside other tests
""",
    # One that is inside of PyTorch's own convolution when the interpreter ends makes PyTorch abort.
    "beside a daemon that has made calls": """
made = threading.Event()
def call():
    with cw.algorithms(forward="reference/gemm"):
        cw.conv2d(x, w)
        cw.find(x, w, mode="heuristic")
        made.set()
        while True:
            time.sleep(0.001)
threading.Thread(target=call, daemon=True).start()
made.wait()
""",
    "before a thread that goes on": """
def call():
    time.sleep(0.5)
    for _ in range(20):
        cw.conv2d(x, w, algorithm="reference/gemm")
    cw.find(x, w, mode="quick", budget_us=5e4)
threading.Thread(target=call).start()
""",
}  # fmt: skip


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("how", SCRIPTS)
def test_a_process_ends_quietly(how: str, tmp_path: Path) -> None:
    Ended(BEGIN + SCRIPTS[how], tmp_path).check()


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("isolate", [False, True])
def test_a_search_that_is_interrupted(isolate: bool, tmp_path: Path) -> None:
    ended = Ended(BEGIN + INTERRUPTED.format(isolate=isolate), tmp_path)
    until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    ended.process.send_signal(signal.SIGINT)
    ended.check()


@pytest.mark.slow
def test_a_search_that_is_interrupted_while_it_compiles(tmp_path: Path) -> None:
    script = (
        FATAL
        + """
from dataclasses import replace
from convwright.tuning.kernels import compiling
from convwright.tuning.search import Search
from convwright.tuning.budget import Budget
from convwright.store.store import Store
from convwright.settings import Mode
search = Search(kernel("hangs").problem, CPU, cw.Policy(), Mode.FULL, Store.open(None), Budget(60e6))
try:
    with compiling(search, [kernel("hangs")], 0, afresh=False, then=None) as ready:
        (here / "begun").touch()
        ready.wait()
except KeyboardInterrupt:
    sys.exit(0)
sys.exit(7)
"""
    )
    ended = Ended(BEGIN + script, tmp_path)
    until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(1.5)
    ended.process.send_signal(signal.SIGINT)
    ended.check()
