"""How a model nests its output tensors: tuples, lists and dicts, as JSON data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from convwright.errors import BadInput, Refused

Structure = Any  # the place of a tensor, or a dict with one of these words
_SEQUENCES: dict[str, Any] = {"tuple": tuple, "list": list}
_DICTS: dict[str, Any] = {"dict": dict, "ordered dict": OrderedDict}


def structure_of(nested: Any) -> Structure:
    """The structure of ``nested``, in which ints stand for tensors: their places.

    >>> structure_of({"a": 0, "b": (1, 2)})
    {'dict': [['a', 0], ['b', {'tuple': [1, 2]}]]}
    """
    if isinstance(nested, int):
        return nested
    for word, sequence in _SEQUENCES.items():
        if type(nested) is sequence:
            return {word: [structure_of(each) for each in nested]}
    for word, mapping in _DICTS.items():
        if type(nested) is mapping and all(isinstance(key, str) for key in nested):
            return {word: [[key, structure_of(each)] for key, each in nested.items()]}
    raise Refused(
        f"the model returns a {type(nested).__name__}; only tensors, and tuples, lists and dicts of them can be planned"
    )


def filled(structure: Structure, tensors: Sequence[Any]) -> Any:
    """The structure with tensors in their places.

    >>> filled({"dict": [["a", 0], ["b", {"tuple": [1, 0]}]]}, "xy")
    {'a': 'x', 'b': ('y', 'x')}
    """
    if isinstance(structure, int) and 0 <= structure < len(tensors):
        return tensors[structure]
    if isinstance(structure, dict) and len(structure) == 1:
        ((word, inside),) = structure.items()
        if word in _SEQUENCES:
            return _SEQUENCES[word](filled(each, tensors) for each in inside)
        if word in _DICTS:
            return _DICTS[word]((key, filled(each, tensors)) for key, each in inside)
    raise BadInput(f"{structure!r} is not a structure of outputs: save the engine again")
