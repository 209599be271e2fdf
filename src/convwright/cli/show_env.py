"""``convwright show-env``: what convwright sees on this machine."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer

from convwright.errors import StoreWarning


def show_env(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the devices, libraries and settings of this machine."""
    facts = _facts()
    if as_json:
        from convwright.report.words.plain import as_json as strict_json

        print(strict_json(facts))
        return
    from rich.table import Table

    from convwright.naming import singular
    from convwright.report.words.output import output

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")  # a path that is cut is none
    for name, value in facts.items():
        if isinstance(value, dict):
            for inner, each in value.items():
                table.add_row(f"{name}: {inner}", singular(str(each)))
        else:
            table.add_row(name, str(value))
    output().print(table)


def _facts() -> dict[str, Any]:
    from convwright import __version__, flags
    from convwright.backends.registry import backends
    from convwright.core.plan import RestsOn
    from convwright.core.profiles import names
    from convwright.measuring.conditions import conditions
    from convwright.measuring.hardware.machine import device_facts
    from convwright.settings import settings
    from convwright.tuning.session import session

    device = device_facts()
    with warnings.catch_warnings(action="ignore", category=StoreWarning):  # it has a row
        store = session().store
    return {
        "convwright": __version__,
        "device": {"name": device.key, "architecture": device.architecture, "source": device.source},
        "known devices": ", ".join(names()),
        "conditions": dict(conditions(device)),
        "backends": {backend.name: backend.fingerprint(device) for backend in backends()},
        "libraries": {backend.name: backend.library() for backend in backends() if isinstance(backend, RestsOn)},
        "flags": {"fp32 convolutions may use tf32": flags.tf32_allowed(), "deterministic": flags.deterministic()},
        "mode": str(settings().mode),
        "store": store.place or "in memory",
        **({"store note": store.note} if store.note else {}),
    }
