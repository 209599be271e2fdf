"""An engine from the folder that holds it. Nothing in the folder is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convwright import strict_json
from convwright.engine.blueprint import Blueprint
from convwright.engine.bucketed import BucketedEngine
from convwright.engine.bucketed_files import read_buckets
from convwright.engine.engine import Engine
from convwright.engine.plan_text import read as read_plan
from convwright.engine.saved import PLAN, VERSION, WEIGHTS, checksum, digest, fingerprints, safetensors
from convwright.engine.user_kernels import unlike
from convwright.errors import BadInput, ConvwrightError, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.strict_json import JsonError


def load(folder: Path | str, device: str | None = None) -> Engine | BucketedEngine:
    """The engine that was saved in a folder, for the same kind of device and the same versions of libraries."""
    folder = Path(folder)
    plan = _plan(folder)
    facts = device_facts(device)
    if plan["device"] != facts.key:
        raise Refused(f"{folder} was planned for {plan['device']}, and this is {facts.key}: plan the model again")
    try:
        raw = (folder / WEIGHTS).read_bytes()
    except OSError:
        raise BadInput(f"{folder} holds no {WEIGHTS}, so it holds no engine") from None
    if digest(raw) != plan["weights"]:
        raise BadInput(f"{folder / WEIGHTS} is not what was saved: its checksum differs")
    if (missing := unlike(plan.get("kernels", {}))) is not None:
        raise Refused(f"{folder} runs {missing}")
    try:
        constants = safetensors().load(raw)
        if "buckets" in plan:
            buckets, whole = read_buckets(plan, constants, facts), plan["whole"]
            planned = [*buckets.values()]
        else:
            planned = [Blueprint(read_plan(plan, facts), constants, plan["structure"])]
    except (KeyError, TypeError, ValueError, ConvwrightError) as error:
        raise BadInput(f"{folder / PLAN} cannot be read: {error}") from error
    if fingerprints([each.assignment for each in planned], facts) != plan["fingerprints"]:
        raise Refused(f"{folder} was planned with other versions of libraries: plan the model again")
    if "buckets" in plan:
        return BucketedEngine.of(buckets, facts, whole)
    return Engine(planned[0].assignment, constants, facts, planned[0].structure)


def _plan(folder: Path) -> dict[str, Any]:
    path = folder / PLAN
    try:
        plan = strict_json.loads(path.read_bytes())
    except OSError:
        raise BadInput(f"{folder} holds no {PLAN}, so it holds no engine") from None
    except (JsonError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no plan of an engine: {error}") from None
    if not isinstance(plan, dict) or "version" not in plan:
        raise BadInput(f"{path} is no plan of an engine")
    if plan["version"] != VERSION:
        raise BadInput(f"{path} has version {plan['version']!r}, and this convwright reads version {VERSION}")
    if plan.pop("checksum", None) != checksum(plan):
        raise BadInput(f"{path} is not what was saved: its checksum differs")
    return plan
