"""Which fingerprints count on this machine, so that findings of other versions can be told from those that are used."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.backends.registry import backends, kinds
from convwright.core.device import DeviceFacts
from convwright.core.plan import Backend, SeveralFingerprints
from convwright.measuring.hardware.machine import device_facts


def counting(device_keys: Iterable[str]) -> dict[str, frozenset[str]]:
    """By device key the fingerprints that count, for those devices that are here.

    >>> from convwright.measuring.hardware.machine import device_facts
    >>> cpu = device_facts("cpu").key
    >>> any("torch" in print_ for print_ in counting([cpu, "a device on the moon"]).pop(cpu))
    True
    """
    import torch

    here = [device_facts("cpu"), *(device_facts(f"cuda:{index}") for index in range(torch.cuda.device_count()))]
    found = {}
    for key in device_keys:
        facts = next((each for each in here if _is_of(key, each)), None)
        if facts is not None:
            found[key] = _fingerprints(facts)
    return found


def _is_of(key: str, facts: DeviceFacts) -> bool:
    """A CPU has a key for each number of threads; the versions of libraries do not depend on it."""
    return key == facts.name or key.startswith(f"{facts.name}, ")


def _fingerprints(facts: DeviceFacts) -> frozenset[str]:
    """Those under any setting of what is a user's to switch from one run to the next."""
    return frozenset().union(*(_of(member, facts) for kind in kinds() for member in backends(kind)))


def _of(member: Backend, facts: DeviceFacts) -> frozenset[str]:
    if isinstance(member, SeveralFingerprints):
        return member.fingerprints(facts)
    return frozenset({member.fingerprint(facts)})
