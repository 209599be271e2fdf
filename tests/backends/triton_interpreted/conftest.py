"""Triton's interpreter with a check of every address, and without work that it repeats at each call and each operation
inside of a kernel: it takes less than half of the time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from backends.triton_interpreted import bounds

_patch_lang: Callable[[Any], Any] = interpreter._patch_lang
_get_np_dtype: Callable[[Any], Any] = interpreter._get_np_dtype
_equal: Callable[[Any, Any], Any] = tl.dtype.__eq__
_unwrapped: Callable[[Any], Any] = tl.core._unwrap_if_constexpr
_made_block_type: Callable[..., None] = tl.block_type.__init__
_made_tensor: Callable[..., None] = tl.tensor.__init__
_operands: Callable[..., Any] = TritonSemantic.binary_op_type_checking_impl
_modules: dict[Any, list[Any]] = {}  # of the language, in what a kernel sees
_numpy_dtypes: dict[str, Any] = {}
# What there is in an object, by element type and shape, or by type: one that is kept here has its `id` to itself.
_block_types: dict[tuple[Any, ...], dict[str, Any]] = {}
_tensors: dict[tuple[Any, ...], dict[str, Any]] = {}


def _patched_once(kernel: Any) -> Any:
    """What has replaced the language's functions need not replace itself."""
    if kernel not in _modules:
        seen = (each for each in kernel.__globals__.values() if inspect.ismodule(each))
        _modules[kernel] = [each for each in seen if each in (tl, tl.core)]
    if _modules[kernel] and not any(tl.core.is_builtin(each.load) for each in _modules[kernel]):
        return interpreter._LangPatchScope()
    return _patch_lang(kernel)


def _numpy_dtype(dtype: Any) -> Any:
    """As the interpreter finds it, by a table that it makes anew each time."""
    element = dtype.scalar
    if element.name not in _numpy_dtypes:
        _numpy_dtypes[element.name] = _get_np_dtype(element)
    return _numpy_dtypes[element.name]


def _block_type(self: Any, element: Any, shape: Any) -> None:
    key = id(element), *[each.value if type(each) is tl.constexpr else each for each in shape]
    if key not in _block_types:
        _made_block_type(self, element, shape)
        _block_types[key] = dict(self.__dict__)
    self.__dict__.update(_block_types[key])


def _tensor(self: Any, handle: Any, whole: Any) -> None:
    """Those of one element type and shape share both, which nothing changes."""
    key = (id(whole.element_ty), *whole.shape.values) if whole.is_block() else (id(whole),)
    if key not in _tensors:
        _made_tensor(self, handle, whole)
        _tensors[key] = {name: value for name, value in self.__dict__.items() if name != "handle"}
    self.__dict__.update(_tensors[key])
    self.handle = handle


def _checked_operands(
    self: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False,
    arithmetic_check: bool = True, div_or_mod: bool = False,
) -> Any:  # fmt: skip
    """Two tensors of one type of numbers are what they are."""
    alike = isinstance(lhs, tl.tensor) and isinstance(rhs, tl.tensor) and lhs.type is rhs.type
    if alike and not div_or_mod and (lhs.dtype.is_int() or lhs.dtype.is_floating()):
        return lhs, rhs
    return _operands(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)


interpreter._patch_lang = _patched_once
interpreter._get_np_dtype = _numpy_dtype
tl.dtype.__eq__ = lambda self, other: self is other or _equal(self, other)
tl.core._unwrap_if_constexpr = lambda each: each if type(each) is int else _unwrapped(each)
tl.block_type.__init__ = _block_type
tl.tensor.__init__ = _tensor
TritonSemantic.binary_op_type_checking_impl = _checked_operands
# Whether integers overflow it would compute with each sum and product of them, and then, without `debug`, not look.
options = interpreter.interpreter_builder.options
interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
bounds.check()
