"""The records under results/: a line of JSON for each result."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
Lines = list[dict[str, Any]]


def record(name: str) -> Path:
    return RESULTS / name


def read(file: Path) -> Lines:
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
    return [json.loads(line) for line in text.splitlines()]
