"""Which fingerprints count on this machine. Findings of other versions are not used."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.core.device import DeviceFacts


def counting(device_keys: Iterable[str]) -> dict[str, frozenset[str]]:
    """By device key the fingerprints that count, for those devices that are here.

    >>> from convwright.measuring.hardware.machine import device_facts
    >>> cpu = device_facts("cpu").key
    >>> any("torch" in print_ for print_ in counting([cpu, "a device on the moon"]).pop(cpu))
    True
    """
    import torch

    from convwright.backends.registry import fingerprints
    from convwright.measuring.hardware.machine import device_facts

    here = [device_facts("cpu"), *(device_facts(f"cuda:{index}") for index in range(torch.cuda.device_count()))]
    found = {}
    for key in device_keys:
        facts = next((each for each in here if _is_of(key, each)), None)
        if facts is not None:
            found[key] = fingerprints(facts)
    return found


def _is_of(key: str, facts: DeviceFacts) -> bool:
    """A CPU has a key for each number of threads; the versions of libraries do not depend on it."""
    return key == facts.name or key.startswith(f"{facts.name}, ")
