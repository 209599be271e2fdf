"""PyTorch's operators as data: names and arguments in a graph, and the calls made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from convwright import strict_json, torch_api
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export.packed import packed, unpacked
from convwright.errors import BadInput, Refused
from convwright.graph.layouts import dense
from convwright.graph.operations import Foreign

# Arguments that JSON cannot represent are written as a dict with one of these keys.
_TENSOR, _DTYPE, _LAYOUT, _DEVICE, _FORMAT = "tensor", "dtype", "layout", "device", "memory_format"
_WORDS: dict[str, type] = {_DTYPE: torch.dtype, _LAYOUT: torch.layout, _FORMAT: torch.memory_format}
# A constant of a dtype that graphs do not hold, such as an index or a mask, is an argument with its numbers.
_CONSTANT = "constant"


def written(args: Sequence[Any], kwargs: dict[str, Any], place_of: Callable[[Any], int | None]) -> str:
    """Arguments as strict JSON. ``place_of`` gives the place of a tensor, which is written instead of it, and None for
    any other argument. A ``Tensor`` among them is written with its numbers."""

    def word(argument: Any) -> Any:
        place = place_of(argument)
        if place is not None:
            return {_TENSOR: place}
        if isinstance(argument, list | tuple):
            return [word(each) for each in argument]
        if isinstance(argument, Tensor):
            return {_CONSTANT: packed(argument)}
        if argument is None or isinstance(argument, bool | int | float | str):
            return strict_json.in_words(argument) if isinstance(argument, float) else argument
        for name, kind in _WORDS.items():
            if isinstance(argument, kind):
                return {name: str(argument).removeprefix("torch.")}
        if isinstance(argument, torch.device):
            return {_DEVICE: str(argument)}
        raise Refused(f"{type(argument).__name__} cannot be written as an argument of an operator")

    return strict_json.dumps([word(list(args)), {name: word(each) for name, each in kwargs.items()}], compact=True)


def concatenation(inputs: Sequence[TensorSpec], result: TensorSpec, dim: int) -> Foreign:
    """PyTorch's own ``cat``."""
    listed = [{_TENSOR: place} for place in range(len(inputs))]
    return Foreign("aten.cat.default", strict_json.dumps([[listed, dim], {}], compact=True), tuple(inputs), (result,))


def permutation(x: TensorSpec, order: tuple[int, ...]) -> Foreign:
    """PyTorch's own ``permute``, copied."""
    result = TensorSpec(tuple(x.shape[dim] for dim in order), x.dtype)
    arguments = [[{_TENSOR: 0}, list(order)], {}]
    return Foreign("aten.permute.default", strict_json.dumps(arguments, compact=True), (dense(x),), (result,))


def read(arguments: str, tensors: Sequence[Tensor], constants: Sequence[Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments parsed, with ``tensors`` in their places and ``constants`` in order."""
    (args, kwargs), following = _words(arguments), iter(constants)

    def argument(word: Any) -> Any:
        if isinstance(word, list):
            return [argument(each) for each in word]
        if not isinstance(word, dict):
            return float(word) if word in ("inf", "-inf", "nan") else word
        ((name, value),) = word.items()
        if name == _TENSOR:
            return tensors[value]
        if name == _CONSTANT:
            return next(following)
        return torch.device(value) if name == _DEVICE else _member(_WORDS[name], value)

    return [argument(each) for each in args], {name: argument(each) for name, each in kwargs.items()}


def constants(operation: Foreign, device: torch.device) -> list[Tensor]:
    """The constants among the arguments, in order."""
    return [unpacked(data).to(device) for data in _named(_CONSTANT, _words(operation.arguments))]


def devices(operation: Foreign) -> list[str]:
    """The devices named in the arguments."""
    return [each for each in _named(_DEVICE, _words(operation.arguments)) if isinstance(each, str)]


def _named(name: str, word: Any) -> Iterator[Any]:
    """What each ``{name: …}`` among the arguments holds, in order."""
    if isinstance(word, dict) and word.keys() == {name}:
        yield word[name]
        return
    for part in word.values() if isinstance(word, dict) else word if isinstance(word, list) else ():
        yield from _named(name, part)


def on_device(operation: Foreign, device: str) -> Foreign:
    """The same operator with another device in its arguments. On "meta" it allocates nothing."""

    def word(given: Any) -> Any:
        if _is_device(given):
            return {_DEVICE: device}
        if isinstance(given, dict):
            return {name: word(each) for name, each in given.items()}
        return [word(each) for each in given] if isinstance(given, list) else given

    return replace(operation, arguments=strict_json.dumps(word(_words(operation.arguments)), compact=True))


def _is_device(word: Any) -> bool:
    return isinstance(word, dict) and isinstance(word.get(_DEVICE), str)


@lru_cache(maxsize=1024)
def _words(arguments: str) -> Any:
    return strict_json.loads(arguments)


def _member(kind: type, name: str) -> Any:
    member = getattr(torch, name, None)
    if not isinstance(member, kind):
        raise BadInput(f"PyTorch has no {kind.__name__} called {name!r}")
    return member


def operator_named(target: str) -> Any:
    """PyTorch's operator of this name. Since a name may come from a file, only operators of PyTorch's own library that
    write to no argument are allowed."""
    library, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    packet = getattr(torch.ops.aten, name, None) if library == "aten" else None
    found = getattr(packet, overload or "default", None)
    schema = torch_api.schema_of(found)
    if found is None or schema is None:
        raise BadInput(f"PyTorch has no operator called {target!r}")
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    if schema.is_mutable or not takes_tensors:
        raise BadInput(f"{target} is no operator that computes a tensor from tensors")
    return found


def prepared(operation: Foreign) -> Callable[[Sequence[Tensor]], tuple[Tensor, ...]]:
    """The operator as a function of tensors. Its results share no memory with them."""
    operator, wanted = operator_named(operation.target), len(operation.results)
    is_view = any(each.alias_info is not None for each in torch_api.schema_of(operator).returns)

    kept: dict[torch.device, list[Tensor]] = {}

    def run(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        device = tensors[0].device
        if device not in kept:
            kept[device] = constants(operation, device)
        args, kwargs = read(operation.arguments, tensors, kept[device])
        result = operator(*args, **kwargs)
        several = result[:wanted] if isinstance(result, tuple | list) else (result,)
        return tuple(each.clone() if is_view else each for each in several)

    return run


def compute(operation: Foreign, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The operator's results for these tensors."""
    return prepared(operation)(tensors)
