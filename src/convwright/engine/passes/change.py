"""The result of a pass: a changed network, and one sentence for each change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convwright.engine.network import Network


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    network: Network
    sentences: tuple[str, ...] = ()


Pass = Callable[[Network], Changed]
