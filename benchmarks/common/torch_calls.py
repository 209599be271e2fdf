"""The calls of PyTorch's that a choice is held against.

`default` is what a user writes, with PyTorch's flags as they are. `benchmark` is the same with
``torch.backends.cudnn.benchmark`` on. `channels-last` is the default call on operands that lie so already, and leaves
its result so. `compile` is the default call compiled by ``torch.compile(mode="max-autotune-no-cudagraphs")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.backends.torch_native.own import FORWARD, TorchPlan, torch_candidate
from convwright.core.direction import Direction, Role
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

NAMES = ("default", "benchmark", "channels-last", "compile")
COMPILE_MODE = "max-autotune-no-cudagraphs"
_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: F.relu, Activation.SILU: F.silu, Activation.GELU: F.gelu, Activation.HARDSWISH: F.hardswish,
}  # fmt: skip
Call = Callable[[], Tensor]
# A call of PyTorch's on operands in their order: the two that are multiplied, then the bias.
Written = Callable[..., Tensor]


def calls(names: Iterable[str], problem: ConvProblem, given: Mapping[Role, Tensor]) -> dict[str, Call]:
    """PyTorch's calls of these names on the operands ``given``, each warm."""
    makers: dict[str, Callable[..., Call]] = {
        "default": partial, "benchmark": trying, "channels-last": _channels_last, "compile": _compiled,
    }  # fmt: skip
    roles = (*problem.direction.operands, *([Role.BIAS] if Role.BIAS in given else []))
    made = {name: makers[name](written(problem), *(given[role] for role in roles)) for name in names}
    for call in made.values():
        call()  # searches, compiles, and loads what it needs
    return made


def written(problem: ConvProblem) -> Written:
    """What a user of PyTorch writes for ``problem``; of a backward direction the one operator that autograd calls."""
    padding, epilogue = problem.symmetric_padding, problem.epilogue
    if epilogue.residual or problem.flip:
        raise BadInput(f"PyTorch's calls are written for a bias and an activation at most, got {problem.key}")
    if problem.direction is not Direction.FORWARD:
        return TorchPlan(torch_candidate(problem))
    if padding is None:
        raise BadInput(f"PyTorch's call takes the same padding on both sides, got {problem.padding}")
    convolve, window = FORWARD[problem.rank], (problem.stride, padding, problem.dilation, problem.groups)

    def convolved(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        return convolve(x, w, bias, *window)

    if epilogue.activation is Activation.NONE:
        return convolved
    activation = _ACTIVATIONS[epilogue.activation]

    def activated(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        return activation(convolve(x, w, bias, *window))

    return activated


def _channels_last(call: Written, *operands: Tensor) -> Call:
    format_of = {4: torch.channels_last, 5: torch.channels_last_3d}
    laid = [each.contiguous(memory_format=format_of.get(each.dim(), torch.contiguous_format)) for each in operands]
    return partial(call, *laid)


def trying(call: Callable[..., Any], *operands: Tensor) -> Callable[[], Any]:
    """With PyTorch's flag on, around this call alone.

    PyTorch keeps one plan for a convolution in each thread, whether it was proposed or tried: in the thread of a call
    with the flag off this one would be served that call's plan, and the other way round. So it has a thread of its own.
    """
    if not operands[0].is_cuda:
        return partial(call, *operands)  # the flag is cuDNN's

    def there(stream: torch.cuda.Stream) -> Any:
        with _flag_on(), torch.no_grad(), torch.cuda.stream(stream):
            return call(*operands)

    def tried() -> Any:
        return _thread().submit(there, torch.cuda.current_stream(operands[0].device)).result()

    return tried


@contextmanager
def _flag_on() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "cudnn-benchmark")


def _compiled(call: Written, *operands: Tensor) -> Call:
    torch.compiler.reset()  # each row is a function of its own, of which a process keeps only so many
    return partial(torch.compile(call, mode=COMPILE_MODE, dynamic=False, fullgraph=True), *operands)
