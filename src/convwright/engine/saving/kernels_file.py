"""The compiled kernels of an engine, in a file beside its plan.

A kernel is code: the file is read only if the user trusts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from convwright import strict_json
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.engine.blueprint import Blueprint
from convwright.engine.saving.saved import digest
from convwright.errors import BadInput
from convwright.store.kept_plans import KeptPlans, Place
from convwright.strict_json import JsonError
from convwright.tuning.stored_plan import place_of, stored_plan

VERSION = 1
# The key of a kernel in the file.
_PLACE = ("problem", "device", "candidate", "fingerprint")


def kernels_written(engines: Iterable[Blueprint], device: DeviceFacts) -> bytes:
    """The kernels that engines run, each once. Kernels that their backend cannot write are left out."""
    texts = dict[Place, str]()
    for engine in engines:
        texts |= _texts(engine, device)
    kernels = [
        {**dict(zip(_PLACE, place, strict=True)), "sha256": _checksum(text), "text": text}
        for place, text in sorted(texts.items())
    ]
    return f"{strict_json.dumps({'version': VERSION, 'kernels': kernels}, indent=1)}\n".encode()


def _texts(engine: Blueprint, device: DeviceFacts) -> dict[Place, str]:
    """The kernels of one engine. They are built again, which compiles only what no cache holds."""
    kept = KeptPlans({} if engine.kernels is None else engine.kernels.texts)
    leaves = _leaves(engine, device)
    for place, leaf in leaves.items():
        if place not in kept.texts:
            stored_plan(leaf, device, kept)
    return {place: kept.texts[place] for place in leaves if place in kept.texts}


def kernels_read(path: Path, raw: bytes, engines: Iterable[Blueprint], device: DeviceFacts) -> KeptPlans:
    """The kernels in ``path``, which must be kernels that the engines run here."""
    try:
        data = strict_json.loads(raw)
    except JsonError as error:
        raise BadInput(f"{path} holds no kernels: {error}") from None
    if not isinstance(data, dict) or "version" not in data:
        raise BadInput(f"{path} holds no kernels")
    if data["version"] != VERSION:
        version = str(data["version"])[:80]
        raise BadInput(
            f"{path} has version {version}, and this convwright reads version {VERSION}: load without trust_kernels"
        )
    texts = _checked(path, data.get("kernels"))
    needed = {place for engine in engines for place in _leaves(engine, device)}
    for problem, _, candidate, fingerprint in sorted(texts.keys() - needed):
        kernel = f"{candidate[:80]!r} of {fingerprint[:80]!r} for {problem[:80]!r}"
        raise BadInput(f"{path} holds a kernel that the plan does not run: {kernel}")
    return KeptPlans(texts)


def _checked(path: Path, kernels: Any) -> dict[Place, str]:
    """Texts by key, with their checksums verified."""
    texts = dict[Place, str]()
    for each in kernels if isinstance(kernels, list) else [None]:
        if not isinstance(each, Mapping) or not all(isinstance(each.get(name), str) for name in (*_PLACE, "text")):
            raise BadInput(f"{path} holds no kernels: each has {', '.join(_PLACE)} and text")
        problem, device, candidate, fingerprint = (each[name] for name in _PLACE)
        if _checksum(each["text"]) != each.get("sha256"):
            raise BadInput(
                f"{path} was changed after saving: the checksum of {candidate[:80]!r} differs; "
                "load without trust_kernels"
            )
        texts[problem, device, candidate, fingerprint] = each["text"]
    return texts


def _checksum(text: str) -> str:
    return digest(text.encode(errors="replace"))  # JSON may hold text that UTF-8 cannot encode


def _leaves(engine: Blueprint, device: DeviceFacts) -> dict[Place, Candidate]:
    """The candidates that compute the steps, without rewrites."""
    candidates = [step.candidate.leaf for step in engine.assignment.steps if step.candidate is not None]
    return {place_of(leaf, device): leaf for leaf in candidates}
