"""What stands in the place of the process that measures: PyTorch's own call, and candidates that ruin a process."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = str(Path(__file__).parents[1])


def command(*algorithms: str) -> list[str]:
    """How a process is started that has these algorithms besides PyTorch's own."""
    script = f"import sys; sys.path.append({TESTS!r}); from campaign.made_child import serve_made"
    return [sys.executable, "-c", f"{script}; serve_made({algorithms!r})"]


def serve_made(algorithms: tuple[str, ...]) -> None:
    """What such a process does. No rewrites stand around its candidates."""
    from campaign.ruinous import Ruinous
    from convwright.backends import registry
    from convwright.campaign import child
    from convwright.tuning import chains
    from convwright.tuning.worker import serve

    del registry.BACKENDS["cudnn"], registry.BACKENDS["triton"], registry.BACKENDS["reference"]
    registry.BACKENDS["ruinous"] = "campaign.ruinous:Ruinous"
    chains.REWRITES = ()
    Ruinous.algorithms = algorithms
    serve(child.TASKS)
