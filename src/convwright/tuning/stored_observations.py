"""A store's findings of a device as observations, from which its model is learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.errors import ConvwrightError
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.predicting import own_call

# Candidates are looked for by name whatever a policy allows: sums in fp16 are listed only where it names them.
_EVERYTHING = Policy(max_workspace_bytes=1 << 50, arithmetic=frozenset(Arithmetic))


def stored_observations(store: Store, device: DeviceFacts) -> Iterator[Observation]:
    """What the store has measured on a device, of candidates that this version still has."""
    for known in store.problems():
        if known.device != device.key:
            continue
        found = store.findings(known.problem, device.key)
        timed = {id_: each for id_, each in found.items() if each.measurement is not None}
        candidates = candidates_named(timed, parse(known.problem), device)
        for id_, candidate in candidates.items():
            each = timed[id_]
            conditions = dict(each.measurement.conditions) if each.measurement is not None else {}
            yield Observation(
                candidate, device.key, each.fingerprint, Outcome.MEASURED, each.measurement, None, (), Policy(),
                conditions.get("mode", "full"), None, each.created,
            )  # fmt: skip


def candidates_named(ids: Iterable[str], problem: Problem, device: DeviceFacts) -> Mapping[str, Candidate]:
    """The candidates with these ids, as far as this version has them. PyTorch's own call is one on any device."""
    known = {each.id: each for each in listing.candidates(listing.direct(problem, device, _EVERYTHING))}
    found = ((id_, known.get(id_) or _named(id_, problem, device)) for id_ in ids)
    return {id_: candidate for id_, candidate in found if candidate is not None}


def _named(id_: str, problem: Problem, device: DeviceFacts) -> Candidate | None:
    name, _, setting = id_.removesuffix("]").partition("[")
    if name in ("torch/default", "torch/cudnn"):
        return own_call(problem, device, name.partition("/")[2], setting.removeprefix("tf32="))
    try:
        return listing.with_id(id_, problem, device, _EVERYTHING)
    except ConvwrightError:  # whatever made it cannot be asked here
        return None
