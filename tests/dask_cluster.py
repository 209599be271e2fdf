"""A Dask scheduler and its workers, as processes that can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """One worker for each of ``resources``, such as "CPU=1"."""

    def __init__(self, *resources: str) -> None:
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        self._words = [("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")]
        self._words += [
            ("worker", self.address, "--nthreads", "1", "--no-nanny", "--resources", each, "--no-dashboard")
            for each in resources
        ]
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for words in self._words:
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
                )
            )  # fmt: skip

    def kill(self) -> None:
        """With all of their processes."""
        for process in self._running:
            _kill(process)
        self._running.clear()

    def kill_worker(self, place: int) -> None:
        """The worker of the resource at this place."""
        _kill(self._running[1 + place])

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
