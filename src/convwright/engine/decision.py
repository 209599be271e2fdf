"""The decision for a network, remembered in the store with the findings that it rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from convwright import flags, strict_json
from convwright.backends import registry
from convwright.backends.triton.fingerprints import whole_hash
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.planning.assignment import Assignment
from convwright.engine.saving.plan_checks import check_assignment
from convwright.engine.saving.plan_text import graph_written, read, spec_written, written
from convwright.engine.saving.saved import digest
from convwright.graph.graph import Graph
from convwright.settings import Mode, Trust, settings
from convwright.store.kept_plans import Place
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.recall import magnitude, permission
from convwright.tuning.search import resolved

# Their source decides which of the known candidates a plan has.
_DECIDING = tuple(Path(__file__).parents[1] / name for name in ("core", "graph", "tuning", "engine"))


@dataclass(frozen=True, slots=True)
class Decision:
    """The place in the store of an assignment for one network under one policy. It counts while the versions of
    libraries, the source that decides and every finding that it rests on are the same."""

    place: Place
    device: DeviceFacts
    max_workspace_bytes: int | None
    store: Store

    @classmethod
    def of(
        cls, graph: Graph, device: DeviceFacts, policy: Policy, mode: Mode, store: Store, *,
        tf32: Collection[str] | None, memory_budget: int | None,
    ) -> Decision:  # fmt: skip
        limit = resolved(policy, listing.tiny(device), device).max_workspace_bytes
        # A limit that follows free memory changes every minute.
        workspace = magnitude(limit or 0) if policy.max_workspace_bytes is None else f"{limit} bytes"
        constants = {name: spec_written(graph.values[name]) for name in graph.constants}
        asked = [
            permission(policy, workspace), mode, None if tf32 is None else sorted(tf32), memory_budget,
            flags.state(), flags.matmul_tf32_allowed(), flags.onednn_enabled(),
        ]  # fmt: skip
        network = f"network {_digest([graph_written(graph), constants])}"
        return cls((network, device.key, f"plan {_digest(asked)}", _versions(device)), device, limit, store)

    def remembered(self) -> Assignment | None:
        """The assignment, if there is one that counts. A damaged one raises some error."""
        text = self.store.kept_plan(*self.place) if settings().trust is Trust.TRUST else None
        if text is None:
            return None
        record = strict_json.loads(text)
        if any(self.store.state(each, self.device.key) != known for each, known in record["findings"].items()):
            return None
        found = read(record["plan"], self.device)
        check_assignment(found, self.device.kind)
        limited = replace(Policy(), max_workspace_bytes=self.max_workspace_bytes)
        candidates = [step.candidate for step in found.steps if step.candidate is not None]
        return found if all(listing.objection(each, limited) is None for each in candidates) else None

    def remember(self, assignment: Assignment, findings: Mapping[str, str]) -> None:
        """Keep an assignment for later processes. ``findings`` are the states of the problems that it rests on."""
        self.store.keep_plan(*self.place, strict_json.dumps({"findings": findings, "plan": written(assignment)}))


def _versions(device: DeviceFacts) -> str:
    prints = [listing.fingerprints(device, kind) for kind in registry.kinds()]
    return _digest([torch.__version__, *map(whole_hash, _DECIDING), prints])


def _digest(data: object) -> str:
    return digest(strict_json.dumps(data, compact=True).encode())[:32]
