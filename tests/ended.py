"""Programs that are run to their end, and what of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

# A process of another's that has to end as well may take a moment: one that is beside others still begins, for some
# seconds, when it is to end.
PATIENCE_S, ENDING_S = 60.0, 20.0


class Ended:
    """A script that was run to its end in a folder of its own, with another one for what is temporary."""

    def __init__(self, script: str, folder: Path) -> None:
        self.mark, self.temporary = uuid4().hex, folder / "temporary"
        self.temporary.mkdir()
        environment = {
            **os.environ, "TMPDIR": str(self.temporary), "WHOSE_PROCESS": self.mark, "CONVWRIGHT_STORE": "none",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def check(self) -> None:
        said, complained = self.process.communicate(timeout=PATIENCE_S)
        assert (self.process.returncode, said, complained) == (0, "", "")
        until = time.monotonic() + ENDING_S
        while self.left() and time.monotonic() < until:
            time.sleep(0.05)
        assert self.left() == []
        assert list(self.temporary.iterdir()) == []

    def left(self) -> list[str]:
        """The commands of processes that it has begun and that are still there."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"WHOSE_PROCESS={self.mark}".encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it is another user's, or has ended
        return found
