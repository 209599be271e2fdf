"""All passes in their order."""

from __future__ import annotations

from collections.abc import Mapping

from convwright.engine.network import Network
from convwright.engine.passes.change import Changed, Pass
from convwright.engine.passes.fold_constants import fold_constants
from convwright.engine.passes.fold_padding import fold_padding
from convwright.engine.passes.fold_scale import fold_scale
from convwright.engine.passes.merge_duplicates import merge_duplicates

PASSES: Mapping[str, Pass] = {
    "fold_constants": fold_constants,
    "merge_duplicates": merge_duplicates,
    "fold_padding": fold_padding,
    "fold_scale": fold_scale,
}


def passed(network: Network) -> Changed:
    """The network after all passes, and their sentences."""
    sentences: list[str] = []
    for change in PASSES.values():
        changed = change(network)
        network = changed.network
        sentences += changed.sentences
    return Changed(network, tuple(sentences))
