"""The process in which a library is asked why it refuses: ``python -m convwright.tuning.attempt``.

A request comes pickled on standard input. The answer, an object of JSON, goes to the file descriptor that the first
argument names; standard error is the library's log.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from convwright.backends.registry import backend
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Explains
from convwright.errors import BackendError, BadInput, ConvwrightError


@dataclass(frozen=True, slots=True)
class Request:
    """One algorithm of one backend, by its id without the backend's name."""

    backend: str
    algorithm: str
    problem: Problem
    device: DeviceFacts


def serve(request: Request) -> dict[str, Any]:
    """What the library answers: a workspace, a refusal, or that there is no such thing to be asked about."""
    member = backend(request.backend, request.problem.kind)
    assert isinstance(member, Explains)
    try:
        return {"workspace_bytes": member.attempt(request.problem, request.algorithm, request.device)}
    except BadInput as mistake:
        return {"mistake": str(mistake)}
    except BackendError as refused:  # the library said so, and its log tells more
        return {"refused": str(refused), "logged": True}
    except ConvwrightError as refused:
        return {"refused": str(refused)}


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "w") as answers:
        json.dump(serve(pickle.load(sys.stdin.buffer)), answers)


if __name__ == "__main__":
    main()
