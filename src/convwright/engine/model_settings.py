"""What a model's modules say about what they compute, as text by name, so that another model can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.errors import BadInput

_USUAL = frozenset(vars(nn.Module()))
_PLAIN = (bool, int, float, str)
_TENSOR = "a tensor"
_SHARED = f"{_TENSOR} shared with"


def settings_of(model: nn.Module) -> dict[str, str]:
    """The class and the settings of each module that contains no other; of all modules the plain attributes, functions,
    tensors that are not registered, and hooks; and names that share a tensor. Dropout computes nothing here.

    >>> settings_of(nn.Sequential(nn.ReLU()))
    {'0': 'ReLU()', '0.inplace': 'False'}
    """
    found = dict[str, str]()
    for path, module in model.named_modules():
        if "Drop" in type(module).__name__:
            continue
        if path and not [*module.children()]:
            found[path] = f"{type(module).__name__}({module.extra_repr()})"
        inside = f"{path}." if path else ""
        found.update((f"{inside}{name}", text) for name, text in _attributes(module))
    return found | dict(_shared(model))


def check_settings(planned: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse a model that has the planned weights and computes something else, as far as its settings say."""
    for name in {**planned, **now}:
        was, found = planned.get(name), now.get(name)
        # What shares a tensor only now has its numbers, and many models keep a tensor that a call has made.
        if was == found or (was is None and found is not None and found.startswith(_TENSOR)):
            continue
        has = f"is {found or ('a tensor of its own' if str(was).startswith(_SHARED) else 'missing')}"
        had = "without it" if was is None else f"with {was}"
        raise BadInput(f"`{name}` of the model {has}, and the engine was planned {had}: plan the model again")


def _attributes(module: nn.Module) -> Iterator[tuple[str, str]]:
    for name, value in vars(module).items():
        if name not in _USUAL and (text := _text(value)) is not None:
            yield name, text
    if hooks := torch_api.hooks(module):
        yield "hooks", str(hooks)


def _text(value: Any) -> str | None:
    """An attribute's value, if it is plain, a function or a tensor."""
    if isinstance(value, Tensor):
        if isinstance(value, nn.Parameter) or value.is_meta or value.layout is not torch.strided:
            return None
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return f"{_TENSOR} {tuple(value.shape)} {sha256(data.numpy().tobytes()).hexdigest()[:12]}"
    if isinstance(value, tuple | list):
        items = [_text(each) for each in value]
        return None if None in items else str(items)
    if isinstance(value, _PLAIN):
        return repr(value)
    name = getattr(value, "__qualname__", None)
    return None if name is None else f"{getattr(value, '__module__', '')}.{name}".removeprefix(".")


def _shared(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Names of parameters and buffers that are another one under a second name."""
    first = dict[Tensor, str]()
    for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            if first.setdefault(tensor, name) != name:
                yield name, f"{_SHARED} {first[tensor]}"
