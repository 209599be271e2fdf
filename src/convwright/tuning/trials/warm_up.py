"""One-time setup of a process before its first search on a device: load what backends need to run."""

from __future__ import annotations

from math import inf

from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.conditions import conditions
from convwright.settings import Mode
from convwright.shortage import SHORTAGES, is_shortage
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.recall import Recall
from convwright.tuning.trials.quick_timing import QuickTimings
from convwright.tuning.trials.side_by_side import Stopwatch
from convwright.tuning.trials.trial import Bench

_HEAT_US = 2000.0
_warm: set[str] = set()


def warm_up(device: DeviceFacts, store: Store) -> None:
    """Run the first candidate of each backend once on a tiny problem, and check and time one. Compiled kernels are left
    out, since loading them helps no other. Loading libraries and PyTorch's own kernels takes half a second, which the
    first problem should not be charged for."""
    here = device.torch_name or device.key  # two GPUs of one kind have the same key
    if here in _warm:
        return
    _warm.add(here)
    conditions(device)
    try:
        _run_tiny(device, store)
    except SHORTAGES as error:
        if not is_shortage(error):
            raise
        _warm.discard(here)


def _run_tiny(device: DeviceFacts, store: Store) -> None:
    tiny, policy = listing.tiny(device), Policy()
    recall = Recall(tiny, device, policy, store, "direct")
    looks = QuickTimings(Bench(tiny, device, Mode.QUICK, seed=0), Budget(inf), policy, recall.trying)
    for candidate in listing.first_of_each(listing.candidates(listing.direct(tiny, device, policy)), policy):
        if not candidate.compiles and recall.finding(candidate) is None:
            looks.at(candidate)
    for look in list(looks.looked.values())[:1]:
        ErrorCheck(tiny, looks.bench.device, reference=sampled_reference).errors(look.trial.run)
        Stopwatch(looks.bench).heat([look.trial], _HEAT_US)


def forget() -> None:
    """Be cold again."""
    _warm.clear()
