"""Plans of engines, changed at random and signed again."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from convwright.engine.saving.saved import PLAN, WEIGHTS, checksum, digest

_NESTED: list[Any] = []
for _ in range(300):
    _NESTED = [_NESTED]
_VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 64, 2**31, 2**63, 10**400, -0.5, 1e308, "", "x", "inf", "nan", [], {}, [1, 2],
    "fp16", "fp64", "../../../etc/passwd", "__class__", "aten.add_.Tensor", "aten.relu.default", "torch/default",
    "reference/direct", 'pointwise "__import__(a)" mb1ic4', _NESTED, {"tensor": 5}, [[], {}],
]  # fmt: skip


def changed(plan: dict[str, Any], random: Random, times: int = 1) -> dict[str, Any]:
    """A copy with random changes to its structure."""
    made = deepcopy(plan)
    for _ in range(times if made else 0):
        holder, key = _place(made, random)
        other_holder, other_key = _place(made, random)
        value = holder[key]
        action = random.randrange(7)
        if action == 0:
            del holder[key]
        elif action == 1:
            holder[key] = deepcopy(random.choice(_VALUES))
        elif action == 2:
            holder[key] = deepcopy(other_holder[other_key])
        elif action == 3 and isinstance(holder, list):
            holder.insert(random.randrange(len(holder) + 1), deepcopy(value))
        elif action == 4 and isinstance(holder, dict):
            holder[str(random.choice([other_key, "x", f"{key}x"]))] = holder.pop(key)
        elif isinstance(value, int) and not isinstance(value, bool):
            holder[key] = random.choice([value + 1, value - 1, -value, value * 2, value + 4, value * 1000])
        elif isinstance(value, str):
            holder[key] = _edited(value, random)
        elif isinstance(value, list):
            random.shuffle(value)
    return made


def _place(data: Any, random: Random) -> tuple[Any, Any]:
    """A holder and a key, as likely near the root as near the leaves."""
    while True:
        key = random.choice(list(data) if isinstance(data, dict) else range(len(data)))
        inside = data[key]
        if not isinstance(inside, dict | list) or not inside or random.random() < 0.25:
            return data, key
        data = inside


def _edited(text: str, random: Random) -> str:
    numbers = list(re.finditer(r"\d+", text))
    if numbers and random.random() < 0.7:
        at = random.choice(numbers)
        other = random.choice(["0", "1", "3", "8", "100000", str(2**40), "-1"])
        return text[: at.start()] + other + text[at.end() :]
    start, end = sorted(random.randrange(len(text) + 1) for _ in range(2))
    return text[:start] + random.choice(["", "x", '"', "(", text[start:end] * 2]) + text[end:]


def write(folder: Path, plan: dict[str, Any]) -> None:
    """Sign a plan and write it."""
    plan.pop("checksum", None)
    try:
        said = checksum(plan)
    except (ValueError, TypeError):
        said = ""
    (folder / PLAN).write_text(json.dumps(plan | {"checksum": said}))


def sign_weights(folder: Path, plan: dict[str, Any]) -> None:
    write(folder, plan | {"weights": digest((folder / WEIGHTS).read_bytes())})
