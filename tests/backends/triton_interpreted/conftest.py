"""Triton's interpreter with a check of every address, and without work that it repeats at each call and each operation
inside of a kernel: it takes less than half of the time."""

from __future__ import annotations

import inspect
import os
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
_constants: dict[tuple[str, str], Any] = {}


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


class _Lazy(TritonSemantic):
    """As numpy does, it leaves one of two operands as small as it is: results have the type that the left one would
    have as a whole, and the other operand's size."""

    def scalar_constant(self, value: Any, dtype: Any) -> Any:
        key = dtype.name, repr(value)
        if key not in _constants:
            _constants[key] = super().scalar_constant(value, dtype)
        return _constants[key]

    def broadcast_impl_value(self, lhs: Any, rhs: Any) -> Any:
        if rhs.type.scalar.is_ptr() or (lhs.shape.values and len(lhs.shape) != len(rhs.shape) != 0):
            return super().broadcast_impl_value(lhs, rhs)
        left, right = lhs.shape.values, rhs.shape.values
        if not left:
            return (self.tensor(lhs.handle, tl.block_type(lhs.dtype, right)) if right else lhs), rhs
        shape = [a if b == 1 else b for a, b in zip(left, right, strict=True)] if right else left
        if shape != left:
            whole = tl.block_type(lhs.dtype, shape)
            lhs = self.tensor(self.builder.create_broadcast(lhs.handle, shape), whole)
        return lhs, rhs


_lazy = _Lazy(interpreter.interpreter_builder)
_NUMBERS = {int: tl.int32, float: tl.float32}


def _checked_operands(self: Any, lhs: Any, rhs: Any, *rules: bool, **named_rules: bool) -> Any:
    """Skips the check where it changes nothing: two numbers of one type, unless a quotient of floats is
    asked for, and a pointer that is moved by an integer."""
    if isinstance(lhs, tl.tensor) and (len(rules) < 4 or lhs.dtype.is_int()):
        number = _NUMBERS.get(type(rhs))
        if number is lhs.dtype and abs(rhs) < 2**31:
            return lhs, _lazy.scalar_constant(rhs, number)
        if isinstance(rhs, tl.tensor):
            moved = lhs.dtype.is_ptr() and rhs.dtype.is_int() and rules[:1] == (True,)
            if moved or (rhs.dtype is lhs.dtype and not lhs.dtype.is_ptr()):
                return (lhs, rhs) if lhs.type is rhs.type else _lazy.broadcast_impl_value(lhs, rhs)
    return _operands(_lazy, lhs, rhs, *rules, **named_rules)


def _patch_attr(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
    """Without a copy of what is given by name at each call."""
    semantic, function = TritonSemantic(builder), getattr(member, "__wrapped__", member)

    def patched(*given: Any, **named: Any) -> Any:
        named["_semantic"] = semantic
        return function(*given, **named)

    scope.set_attr(owner, name, patched)


# Pytest reads this file also in processes that compile kernels.
if os.environ.get("TRITON_INTERPRET") == "1":
    interpreter._patch_lang = _patched_once
    interpreter._patch_attr = _patch_attr
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
