"""Every ``F.conv*`` and ``nn.Conv*`` of any library, unmodified: the functions are put in PyTorch's place, and back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from convwright.core.policy import Policy
from convwright.errors import BadInput
from convwright.ops.beyond import beyond
from convwright.ops.composite import foreign
from convwright.ops.form import FORMS, Form, Request
from convwright.ops.functional import convolution, transposed_convolution

_jit: Any = torch.jit._builtins
_lock = threading.Lock()
# What was put in place of what: module, name, PyTorch's own function.
_replaced: list[tuple[ModuleType, str, Any]] = []


def enable(*, policy: Policy | None = None) -> None:
    """From now on every convolution of this process, of any library, is computed by the best that ``policy`` allows.

    It reaches ``torch.nn.functional``'s functions, the modules that call them, and every module that has imported
    one of them by name. Calls that only PyTorch can serve, and bad ones, go to PyTorch's own functions, so errors
    are its own; what ``torch.compile`` compiles is left to it. ``disable`` takes everything back.
    """
    with _lock:
        _put_back()
        ours = {id(form.own): _stand_in(form, policy) for form in FORMS}
        for module, name in _holders(ours):
            own = getattr(module, name)
            _replaced.append((module, name, own))
            setattr(module, name, ours[id(own)])


def disable() -> None:
    """Put PyTorch's own functions back wherever ``enable`` has replaced them."""
    with _lock:
        _put_back()


@contextmanager
def enabled(*, policy: Policy | None = None) -> Iterator[None]:
    """``enable`` for a block; what held before holds again behind it. It holds for all threads.

    >>> import torch
    >>> layer = torch.nn.Conv2d(3, 4, 3)
    >>> with enabled():
    ...     layer(torch.ones(1, 3, 8, 8)).shape
    torch.Size([1, 4, 6, 6])
    """
    before = [(module, name, getattr(module, name)) for module, name, _ in _replaced]
    enable(policy=policy)
    try:
        yield
    finally:
        disable()
        with _lock:
            for module, name, function in before:
                _replaced.append((module, name, getattr(module, name)))
                setattr(module, name, function)


def is_enabled() -> bool:
    """Whether PyTorch's functions are replaced at the moment."""
    return bool(_replaced)


def _put_back() -> None:
    while _replaced:
        module, name, own = _replaced.pop()
        setattr(module, name, own)


def _holders(ours: dict[int, Any]) -> list[tuple[ModuleType, str]]:
    """Where PyTorch's functions are found by name: its functional module, and whoever imported them from there."""
    found = []
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType) or _is_left_alone(module.__name__):
            continue
        found += [(module, name) for name, value in list(vars(module).items()) if id(value) in ours]
    return found


def _is_left_alone(name: str) -> bool:
    """PyTorch's inside, where functions stand for operators, and this package, which needs the originals."""
    return name != "torch.nn.functional" and name.partition(".")[0] in ("torch", "convwright")


@lru_cache
def _stand_in(form: Form, policy: Policy | None) -> Any:
    """What takes the place of ``form.own``: made once, since compilers remember functions."""
    make = transposed_convolution if form.transposed else convolution
    function = make(form, _or_torchs_own, default_policy=policy)
    _jit._register_builtin(function, f"aten::{form.name}")  # torch.jit.script finds PyTorch's operator
    return function


def _or_torchs_own(
    form: Form,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    request: Request,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``beyond``; PyTorch's own function for whatever that does not serve."""
    own = (x, w, bias, *form.window(request))
    if torch.compiler.is_compiling() or not (isinstance(x, Tensor) and isinstance(w, Tensor)):
        return form.own(*own)
    if foreign(x, w, bias) or x.dim() != w.dim() or x.is_complex():
        return form.own(*own)
    try:
        return beyond(form, x, w, bias, request, residual, out)
    except BadInput:
        return form.own(*own)
