"""Which functions directly follow a convolution: its output is traced from function to function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

BATCH_NORM, RELU, ADD = "batch_norm", "relu", "add"
# A convolution kernel can fuse only what follows these.
_GOES_ON = {BATCH_NORM, RELU, ADD}
_PLAIN_NAMES = {"iadd": ADD, "radd": ADD, "native_batch_norm": BATCH_NORM, "cudnn_batch_norm": BATCH_NORM}


@dataclass(frozen=True, slots=True)
class Follower:
    """A function that takes a convolution's output, by PyTorch's name for it, and the module that called it."""

    op: str
    module: str


@dataclass(slots=True, eq=False)
class Trail:
    """The functions after one convolution, each the only reader of the result before it."""

    number: int
    followers: list[Follower] = field(default_factory=list)
    ended: bool = False


class Trails:
    """Traces outputs without keeping them alive."""

    def __init__(self) -> None:
        self._at: Any = WeakIdKeyDictionary()  # tensor → (trail, followers before it)
        self._begun = 0

    def begin(self, output: Tensor, *, ended: bool = False) -> Trail:
        """Start tracing a convolution's output. One that has ``ended`` has no followers."""
        trail = Trail(self._begun, ended=ended)
        self._begun += 1
        self._at[output] = (trail, 0)
        return trail

    def pass_by(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, module: str
    ) -> None:
        """Note that ``function``, called in ``module``, made ``result``."""
        if next(tensors_in((result,)), None) is None:
            return  # an attribute such as x.shape is no reader
        given = list(tensors_in((args, kwargs)))
        taken = [tensor for tensor in given if tensor in self._at]
        if not taken:
            return
        follower = Follower(_name(function, given, kwargs), module)
        met = {self._at[tensor][0].number: self._at[tensor] for tensor in taken}
        # When two outputs are added, only the later convolution can fuse the sum.
        *others, (trail, depth) = [met[number] for number in sorted(met)]
        for other, other_depth in others:
            _extend(other, other_depth, Follower(f"{follower.op} with a later one", module))
            other.ended = True
        if _extend(trail, depth, follower) and isinstance(result, Tensor) and follower.op in _GOES_ON:
            self._at[result] = (trail, depth + 1)

    def keep(self, results: Any) -> None:
        """Note that ``results`` are visible outside: a kernel cannot fuse them away."""
        for tensor in tensors_in((results,)):
            if tensor in self._at:
                trail, depth = self._at[tensor]
                del trail.followers[depth:]
                trail.ended = True


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, Mapping):
            yield from tensors_in(value.values())


def _extend(trail: Trail, depth: int, follower: Follower) -> bool:
    """True if the trail continues with ``follower``; a second reader of one result ends it there."""
    if trail.ended or len(trail.followers) > depth:
        del trail.followers[depth:]
        trail.ended = True
        return False
    trail.followers.append(follower)
    return True


def _name(function: Callable[..., Any], given: list[Tensor], options: Mapping[str, Any]) -> str:
    """PyTorch's name without marks of in-place and operator forms: ``relu_`` and ``__iadd__`` become relu and add."""
    name = str(getattr(function, "__name__", function)).partition(".")[0].strip("_")
    name = _PLAIN_NAMES.get(name, name)
    if name == "gelu" and options.get("approximate", "none") != "none":
        return "gelu by tanh"
    if name == ADD and not (len(given) == 2 and given[0].shape == given[1].shape and given[0] is not given[1]):
        return "add of another shape"
    return name
