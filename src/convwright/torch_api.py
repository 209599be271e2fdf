"""PyTorch's private functions under plain names. No other module names a private attribute of PyTorch.

Most names are PyTorch's own objects, bound once: to call one adds no frame of Python. Hot paths bind them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn, overrides
from torch._prims_common import suggest_memory_format as suggest_memory_format
from torch.autograd import forward_ad
from torch.nn.modules.batchnorm import _BatchNorm as AnyBatchNorm
from torch.nn.modules.conv import _ConvNd as AnyConvolution
from torch.nn.modules.conv import _ConvTransposeNd as AnyTransposedConvolution
from torch.utils import _pytree as trees
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

__all__ = ["AnyBatchNorm", "AnyConvolution", "AnyTransposedConvolution", "TorchDispatchMode", "suggest_memory_format"]

_C: Any = torch._C
_torch: Any = torch


def _without_cuda(*_: object) -> Any:
    raise RuntimeError("this PyTorch was built without CUDA")


# A PyTorch without CUDA lacks these, or has classes of these names that cannot be called.
_has_cuda = hasattr(_C, "_cuda_getDevice")
# The current GPU, its current stream as an address, by the GPU's index, and whether that stream is being captured.
current_gpu: Callable[[], int] = _C._cuda_getDevice if _has_cuda else _without_cuda
current_stream: Callable[[int], int] = _C._cuda_getCurrentRawStream if _has_cuda else _without_cuda
is_capturing: Callable[[], bool] = _C._cuda_isCurrentStreamCapturing if _has_cuda else lambda: False
# By a GPU's index and a pool's handle: from then on the memory of this thread's tensors comes from the pool, which is
# held as well; no longer, as a capture does it too; and what was held is let go.
allocate_to_pool: Callable[[int, Any], None] = getattr(_C, "_cuda_beginAllocateCurrentThreadToPool", _without_cuda)
end_allocating_to_pool: Callable[[int, Any], None] = getattr(_C, "_cuda_endAllocateToPool", _without_cuda)
release_pool: Callable[[int, Any], None] = getattr(_C, "_cuda_releasePool", _without_cuda)
# Has the current GPU spin for so many cycles.
spin: Callable[[int], None] = _torch.cuda._sleep
# True in a child that was forked off a process which used CUDA.
cuda_lost: Callable[[], bool] = _torch.cuda._is_in_bad_fork

# PyTorch's switches, read without the checks of their public properties.
cudnn_enabled: Callable[[], bool] = _C._get_cudnn_enabled
cudnn_benchmark: Callable[[], bool] = _C._get_cudnn_benchmark
cudnn_deterministic: Callable[[], bool] = _C._get_cudnn_deterministic
deterministic_algorithms: Callable[[], bool] = _C._get_deterministic_algorithms
onednn_enabled: Callable[[], bool] = _C._get_mkldnn_enabled
set_onednn_enabled: Callable[[bool], None] = _C._set_mkldnn_enabled
# Of convolutions and of matrix products. Both raise where newer flags say what these cannot.
cudnn_tf32_allowed: Callable[[], bool] = _C._get_cudnn_allow_tf32
cublas_tf32_allowed: Callable[[], bool] = _C._get_cublas_allow_tf32
# By library ("cuda", "mkldnn") and operation ("conv", "matmul"): "ieee", "tf32", "bf16" or "none".
fp32_precision: Callable[[str, str], str] = _C._get_fp32_precision_getter
set_fp32_precision: Callable[[str, str, str], None] = _C._set_fp32_precision_setter
fp16_sums_allowed: Callable[[], Any] = _C._get_cublas_allow_fp16_accumulation
set_fp16_sums_allowed: Callable[..., None] = _C._set_cublas_allow_fp16_accumulation


# Nested tuples, lists and dicts as a list of what is in them, and back, with what says how they are nested.
flatten: Callable[[Any], tuple[list[Any], Any]] = trees.tree_flatten
unflatten: Callable[[list[Any], Any], Any] = trees.tree_unflatten
# An operator of PyTorch's with one list of arguments, and what says which.
Operator: Any = _torch._ops.OpOverload


def schema_of(operator: Any) -> Any:
    """The arguments and results of an operator of PyTorch's; None for what is none."""
    return getattr(operator, "_schema", None)


def deterministic() -> bool:
    """True where PyTorch's flags ask for the same result from run to run."""
    return deterministic_algorithms() or cudnn_deterministic()


# What watches a call or takes part in it: torch.jit, forward-mode gradients (a level below 0 is none), torch.func.
is_tracing: Callable[[], bool] = _C._is_tracing
tracing_state: Callable[[], object | None] = _C._get_tracing_state
forward_gradient_level: Callable[[], int] = partial(getattr, forward_ad, "_current_level")
transform_depth: Callable[[], int] = _C._functorch.get_dynamic_layer_stack_depth  # a constant to torch.compile
dispatch_modes: Callable[[], int] = _C._len_torch_dispatch_stack
function_modes: Callable[[], int] = _C._len_torch_function_stack
# Inside, subclasses of tensors are not told of the functions that they are given to.
subclasses_not_told = _C.DisableTorchFunctionSubclass
# The innermost hooks for tensors that are saved for a backward pass.
saved_tensors_hooks: Callable[[bool], object | None] = _C._autograd._top_saved_tensors_default_hooks


def is_watched() -> bool:
    """True inside a ``TorchFunctionMode``, which may want to see every function; ``torch.set_default_device``'s does
    not."""
    modes: Callable[[], list[Any]] = overrides._get_current_function_mode_stack
    return function_modes() > 0 and any(type(mode) is not DeviceContext for mode in modes())


# Of a tensor: how often its memory was written to, the tensor that it is a view of, and whether it is one.
version_of: Callable[[Tensor], int] = _torch.Tensor._version.__get__
base_of: Callable[[Tensor], Tensor | None] = _torch.Tensor._base.__get__
is_view: Callable[[Tensor], bool] = _torch.Tensor._is_view
_data_address: Callable[[Tensor], int] = _C._data_address
_OVERLAPS = 1  # what PyTorch says of a tensor whose elements share memory for sure
# Guards that compare tensors with those that were seen before, in C++.
TensorGuards = _C._dynamo.guards.TensorGuards
# Memory on the current GPU by shape, strides and dtype, as compiled programs take it; None in some builds.
empty_strided_cuda: Callable[..., Tensor] | None = getattr(_C._dynamo.guards, "_empty_strided_cuda", None)
mkldnn_layout: Any = _torch._mkldnn


def address_of(tensor: Tensor) -> int:
    """The address of the first element, for reading; 0 if there is none. ``data_ptr``, which is for writing too, would
    copy a tensor that shares its memory copy-on-write."""
    begins = _data_address(tensor)
    return begins and begins + int(tensor.storage_offset()) * tensor.element_size()


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether PyTorch knows for sure that elements of a tensor share memory."""
    return bool(_torch._debug_has_internal_overlap(tensor) == _OVERLAPS)


def share_storage(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors lie in one storage."""
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


# Which backend PyTorch takes for a convolution, and in which memory format that gives its output.
select_conv_backend: Callable[..., Any] = _C._select_conv_backend
conv_memory_format: Callable[..., torch.memory_format] = _C._conv_determine_backend_memory_format
# Functions of neural networks in the forms that torch.nn.functional leaves out: in place, and with ``out``.
nn_functions: Any = _C._nn


def aten_operator(name: str) -> Any:
    """The operator ``aten::_name``."""
    return getattr(torch.ops.aten, f"_{name}")


def onednn_operator(name: str) -> Any:
    """The operator ``mkldnn::_name``, which builds without oneDNN lack."""
    return getattr(torch.ops.mkldnn, f"_{name}")


def children_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """A module's children by name, each as often as it stands there; what is put in takes its place."""
    return module._modules


def with_children(module: nn.Module, children: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a module with others in the places of some of its children; everything else is the module's own."""
    made: nn.Module = copy(module)
    made._modules = {**module._modules, **children}
    return made


def without_hooks(module: nn.Module) -> nn.Module:
    """A copy of a module with the same members and none of its hooks."""
    made: nn.Module = copy(module)
    made._forward_hooks, made._forward_pre_hooks = OrderedDict(), OrderedDict()
    return made


def hooks(module: nn.Module) -> int:
    """How many hooks are told of a module's calls, or change them."""
    return len(module._forward_hooks) + len(module._forward_pre_hooks)


def padded_sides(module: Any) -> list[int]:
    """A convolution module's padding as ``F.pad`` takes it: the last dimension's two sides first."""
    return list(module._reversed_padding_repeated_twice)


def output_padding_of(module: Any, *given: Any) -> list[int]:
    """The output padding with which a transposed convolution module gives the size that it is asked for."""
    padding: list[int] = module._output_padding(*given)
    return padding


def name_for_scripts(function: Callable[..., Any], operator: str) -> None:
    """Have ``torch.jit.script`` take ``function`` for an operator of PyTorch's."""
    builtins: Any = torch.jit._builtins
    builtins._register_builtin(function, operator)


def end_graphs_at(function: Any, reason: str) -> None:
    """Have ``torch.compile`` end a graph before ``function``, of which nothing is compiled. ``reason`` is a part of the
    error where a graph may not end."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = reason
    frames = _C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    strategy = frames._FrameExecStrategy(skip, skip)  # for its own frame, and for all that it calls
    frames.set_code_exec_strategy(unwrap(function).__code__, strategy)
