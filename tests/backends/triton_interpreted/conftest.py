"""Triton's interpreter with a check of every address, and without work that it repeats at each call inside of a kernel:
it takes a third less time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from backends.triton_interpreted import bounds

_patch_lang: Callable[[Any], Any] = interpreter._patch_lang
_get_np_dtype: Callable[[Any], Any] = interpreter._get_np_dtype
_numpy_dtypes: dict[str, Any] = {}


def _patched_once(kernel: Any) -> Any:
    """What has replaced the language's functions need not replace itself."""
    seen = [each for each in kernel.__globals__.values() if inspect.ismodule(each) and each in (tl, tl.core)]
    if seen and not any(tl.core.is_builtin(each.load) for each in seen):
        return interpreter._LangPatchScope()
    return _patch_lang(kernel)


def _numpy_dtype(dtype: Any) -> Any:
    """As the interpreter finds it, by a table that it makes anew each time."""
    element = dtype.scalar
    if element.name not in _numpy_dtypes:
        _numpy_dtypes[element.name] = _get_np_dtype(element)
    return _numpy_dtypes[element.name]


interpreter._patch_lang = _patched_once
interpreter._get_np_dtype = _numpy_dtype
bounds.check()
