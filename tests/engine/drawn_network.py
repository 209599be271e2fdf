"""Networks that Hypothesis draws: an operation after the other on whatever is there, and any of it as outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from convwright.tensors import core_dtype

_Draw = Callable[[st.SearchStrategy[Any]], Any]
# What an operation computes of its operands, and the layer that it has.
_Made = tuple[Callable[..., Tensor | tuple[Tensor, ...]], Sequence[Tensor], nn.Module | None]

_ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    F.relu, F.silu, F.gelu, F.hardswish, F.relu6, F.leaky_relu, F.elu, F.softplus, F.hardsigmoid, torch.sigmoid,
    torch.tanh, torch.neg, lambda x: x.clamp(-1, 1), lambda x: x * 0.5 - 1, lambda x: 2 / (x.abs() + 1),
    lambda x: x.abs(), lambda x: F.gelu(x, approximate="tanh"), lambda x: F.dropout(x, 0.5, training=False),
    lambda x: x.clone(), lambda x: x + 0, lambda x: x * 1,
)  # fmt: skip
_NARROW = torch.bfloat16


class DrawnNetwork(nn.Module):
    """``draw`` makes it; what each operation gives is known while the next is drawn. In float64 it casts to nothing
    else, so that it is the exact one of any."""

    def __init__(self, draw: _Draw, *, most: int = 8) -> None:
        super().__init__()
        self._draw, self.exact = draw, False
        shapes = st.tuples(st.integers(1, 2), st.sampled_from((1, 3, 4, 8)), st.integers(1, 7), st.integers(1, 7))
        self.examples = [torch.randn(draw(shapes)) for _ in range(draw(st.integers(1, 2)))]
        if draw(st.booleans()):
            self.examples = [each.to(memory_format=torch.channels_last) for each in self.examples]
        self.layers, self.steps = nn.ModuleList(), list[tuple[Any, int | None, list[int]]]()
        self._there, self._names = list(self.examples), list[str]()
        makers = {name.removeprefix("_make_"): name for name in dir(self) if name.startswith("_make_")}
        with torch.no_grad():
            for _ in range(draw(st.integers(1, most))):
                name = draw(st.sampled_from(sorted(makers)))
                self._add(name, getattr(self, makers[name])())
        places = st.integers(0, len(self._there) - 1)
        self.returned = draw(st.lists(places, min_size=1, max_size=3))
        if draw(st.booleans()):
            self.returned.append(len(self._there) - 1)
        del self._draw, self._there
        self.eval()

    def _add(self, name: str, made: _Made | None) -> None:
        if made is None:
            return
        function, operands, layer = made
        number = None
        if layer is not None:
            number = len(self.layers)
            self.layers.append(layer.eval())
        places = [next(at for at, each in enumerate(self._there) if each is operand) for operand in operands]
        result = function(layer, *operands) if layer is not None else function(*operands)
        several = result if isinstance(result, tuple) else (result,)
        if not all(1 <= each.dim() <= 5 and 0 < each.numel() <= 20_000 for each in several):
            return
        self.steps.append((function, number, places))
        self._names.append(f"{name}{tuple(places)}→{[tuple(each.shape) for each in several]}")
        self._there += several

    def __deepcopy__(self, memo: dict[int, Any]) -> DrawnNetwork:
        made = DrawnNetwork.__new__(DrawnNetwork)
        nn.Module.__init__(made)
        made.layers, made.steps, made._names = deepcopy(self.layers, memo), self.steps, self._names
        made.examples, made.returned, made.exact = self.examples, self.returned, self.exact
        return made.eval()

    def in_float64(self) -> DrawnNetwork:
        made = deepcopy(self).double()
        made.exact = True
        return made

    def forward(self, *inputs: Tensor) -> dict[str, Any]:
        values = list(inputs)
        for function, number, places in self.steps:
            operands = [values[place] for place in places]
            result = function(*operands) if number is None else function(self.layers[number], *operands)
            several = result if isinstance(result, tuple) else (result,)
            values += [each.double() for each in several] if self.exact else several
        ends = [values[place] for place in self.returned]
        return {"ends": ends, "first": (ends[0],)}

    @property
    def is_narrow(self) -> bool:
        """Whether it may compute in less than float32 somewhere."""
        return any(name.startswith("cast") for name in self._names)

    def __repr__(self) -> str:
        inputs = [(tuple(each.shape), each.stride()) for each in self.examples]
        return f"DrawnNetwork {inputs} {self._names} returned {self.returned}"

    # Each makes an operation of what is there, or nothing where nothing fits.

    def _any(self, fits: Callable[[Tensor], bool] = lambda each: True) -> Tensor | None:
        there = [each for each in self._there if fits(each)]
        if not there:
            return None
        # The latest are the likeliest.
        return there[-1 - min(self._draw(st.integers(0, 5)), len(there) - 1)]

    def _image(self) -> Tensor | None:
        return self._any(lambda each: each.dim() == 4 and each.dtype is torch.float32)

    def _number(self, *among: Any) -> Any:
        return self._draw(st.sampled_from(among))

    def _make_conv(self) -> _Made | None:
        x = self._image()
        if x is None:
            return None
        channels, out, taps = x.shape[1], self._number(4, 1, 3, 8), self._number(3, 1, 2)
        stride, padding, dilation = self._number(1, 2), self._number(0, 1, 2), self._number(1, 2)
        if min(x.shape[2:]) + 2 * padding < dilation * (taps - 1) + 1:
            return None
        groups = channels if out % channels == 0 and self._draw(st.booleans()) else 1
        mode = self._number("zeros", "zeros", "reflect", "circular") if padding < min(x.shape[2:]) else "zeros"
        layers: list[nn.Module] = [
            nn.Conv2d(channels, out, taps, stride, padding, dilation, groups, self._draw(st.booleans()), mode)
        ]
        if self._draw(st.booleans()):
            layers.append(_shaken(nn.BatchNorm2d(out)))
        if self._draw(st.booleans()):
            layers.append(self._number(nn.ReLU(), nn.SiLU(), nn.Hardswish(), nn.Sigmoid()))
        return _called, [x], nn.Sequential(*layers)

    _make_another_conv = _make_conv

    def _make_transposed(self) -> _Made | None:
        x = self._image()
        if x is None:
            return None
        taps, stride = self._number(2, 3), self._number(1, 2)
        layer = nn.ConvTranspose2d(x.shape[1], self._number(3, 4), taps, stride, bias=self._draw(st.booleans()))
        return _called, [x], layer

    def _make_linear(self) -> _Made | None:
        x = self._any(lambda each: each.dtype is torch.float32)
        if x is None:
            return None
        return _called, [x], nn.Linear(x.shape[-1], self._number(3, 4, 8), bias=self._draw(st.booleans()))

    def _make_norm(self) -> _Made | None:
        x = self._image()
        if x is None:
            return None
        channels = x.shape[1]
        kinds: list[Callable[[], nn.Module]] = [
            lambda: nn.BatchNorm2d(channels), lambda: nn.GroupNorm(1, channels), lambda: nn.LayerNorm(x.shape[-1]),
            lambda: nn.GroupNorm(channels if x.shape[2] * x.shape[3] > 1 else 1, channels),
            lambda: nn.LayerNorm(x.shape[1:]),
        ]  # fmt: skip
        # The variance of a few numbers that are nearly equal has no digit that is right.
        if x.shape[-1] < 3:
            return None
        return _called, [x], _shaken(self._draw(st.sampled_from(kinds))())

    def _make_channel_norm(self) -> _Made | None:
        x = self._image()
        if x is None or x.shape[1] < 3:
            return None
        return _normed_by_channel, [x], _shaken(nn.LayerNorm(x.shape[1]))

    def _make_activation(self) -> _Made | None:
        x, function = self._any(), self._draw(st.sampled_from(_ACTIVATIONS))
        return None if x is None else (function, [x], None)

    def _make_pair(self) -> _Made | None:
        x = self._any()
        if x is None:
            return None
        other = self._any(lambda each: each.dtype == x.dtype and _broadcasts(each, x))
        function = self._number(torch.add, torch.mul, torch.sub, torch.maximum, lambda a, b: F.relu(a + b),
                                lambda a, b: torch.add(a, b, alpha=0.5), lambda a, b: a.lerp(b, 0.25))  # fmt: skip
        return None if other is None else (function, [x, other], None)

    _make_residual = _make_pair

    def _make_mixed_pair(self) -> _Made | None:
        x = self._any()
        if x is None:
            return None
        other = self._any(lambda each: each.shape == x.shape)
        return None if other is None else (torch.add, [x, other], None)

    def _make_cat(self) -> _Made | None:
        x = self._any()
        if x is None:
            return None
        dim = self._draw(st.integers(0, x.dim() - 1)) if self._draw(st.booleans()) else min(1, x.dim() - 1)
        parts = [x]
        for _ in range(self._draw(st.integers(1, 2))):
            other = self._any(lambda each: _differs_in(each, x, dim))
            parts += [] if other is None else [other]
        unlike = list(dict.fromkeys(map(id, parts)))
        order = [unlike.index(id(part)) for part in parts]
        operands = [next(part for part in parts if id(part) == key) for key in unlike]
        return (lambda *given: torch.cat([given[at] for at in order], dim)), operands, None

    _make_dense = _make_cat

    def _make_stack(self) -> _Made | None:
        x = self._any(lambda each: each.dim() < 5)
        if x is None:
            return None
        other = self._any(lambda each: each.shape == x.shape and each.dtype == x.dtype)
        dim = self._draw(st.integers(0, x.dim()))
        assert other is not None
        return lambda a, b: torch.stack([a, b], dim), [x, other], None

    def _make_pool(self) -> _Made | None:
        x = self._image()
        if x is None:
            return None
        taps, stride = self._number(2, 3, 1), self._number(1, 2)
        padding, ceil = self._number(0, taps // 2), self._draw(st.booleans())
        if min(x.shape[2:]) + 2 * padding < taps:
            return None
        pools: list[Callable[[Tensor], Tensor]] = [
            lambda x: F.max_pool2d(x, taps, stride, padding, ceil_mode=ceil),
            lambda x: F.avg_pool2d(x, taps, stride, padding, ceil_mode=ceil),
            lambda x: F.avg_pool2d(x, taps, stride, padding, count_include_pad=False),
            lambda x: F.adaptive_avg_pool2d(x, 1), lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
            lambda x: F.max_pool2d(x, taps, stride, padding, return_indices=True)[0],
            lambda x: F.adaptive_max_pool2d(x, (2, 3)),
            lambda x: x.amax((2, 3), keepdim=True), lambda x: x.mean((2, 3), keepdim=True), lambda x: x.mean((2, 3)),
        ]  # fmt: skip
        return self._draw(st.sampled_from(pools)), [x], None

    def _make_resize(self) -> _Made | None:
        x = self._image()
        if x is None:
            return None
        mode, corners = self._number(("nearest", None), ("bilinear", False), ("bilinear", True), ("bicubic", False))
        to = self._number({"scale_factor": 2}, {"size": (5, 3)}, {"scale_factor": (1.5, 2.0)})
        return lambda x: F.interpolate(x, mode=mode, align_corners=corners, **to), [x], None

    def _make_part(self) -> _Made | None:
        x = self._any()
        if x is None:
            return None
        dim = self._draw(st.integers(0, x.dim() - 1))
        size = x.shape[dim]
        start = self._draw(st.integers(0, size - 1))
        length, step = self._draw(st.integers(1, size - start)), self._number(1, 1, 2)
        parts: list[Callable[[Tensor], Any]] = [
            lambda x: x.narrow(dim, start, length), lambda x: x.narrow(dim, 0, length),
            lambda x: x[(slice(None),) * dim + (slice(start, None, step),)],
            lambda x: x.flip(dim),
            lambda x: tuple(x.chunk(2, dim)), lambda x: tuple(x.split([start, size - start], dim)) if start else x,
        ]  # fmt: skip
        if x.dim() > 1:
            parts += [lambda x: x.select(dim, start), lambda x: x.unbind(dim)[:2]]
        return self._draw(st.sampled_from(parts)), [x], None

    def _make_shape(self) -> _Made | None:
        x = self._any()
        if x is None:
            return None
        order = self._draw(st.permutations(range(x.dim())))
        at = self._draw(st.integers(0, x.dim() - 1))
        shapes: list[Callable[[Tensor], Tensor]] = [
            lambda x: x.permute(order), lambda x: x.permute(order).contiguous(), lambda x: x.flatten(at),
            lambda x: x.unsqueeze(at), lambda x: x.transpose(at, -1), lambda x: x.reshape(-1),
            lambda x: x.reshape(*x.shape[:at], -1, 1), lambda x: x.permute(order).reshape(x.shape),
            lambda x: x.repeat(*(1,) * at, 2, *(1,) * (x.dim() - at - 1)), lambda x: x.expand(2, *x.shape),
        ]  # fmt: skip
        if x.dim() > 1:
            shapes.append(lambda x: x.squeeze())
        return self._draw(st.sampled_from(shapes)), [x], None

    def _make_row(self) -> _Made | None:
        x = self._any(lambda each: each.dtype is torch.float32)
        if x is None:
            return None
        dim, keep = self._draw(st.integers(0, x.dim() - 1)), self._draw(st.booleans()) or x.dim() == 1
        rows: list[Callable[[Tensor], Tensor]] = [
            lambda x: x.softmax(dim), lambda x: x.log_softmax(dim), lambda x: x.mean(dim, keepdim=keep),
            lambda x: x.amax(dim, keepdim=keep), lambda x: x.sum(dim, keepdim=keep), lambda x: x.cumsum(dim),
            lambda x: x.max(dim, keepdim=keep)[0],
        ]  # fmt: skip
        return self._draw(st.sampled_from(rows)), [x], None

    def _make_pad(self) -> _Made | None:
        x = self._image()
        if x is None:
            return None
        sides = self._draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
        mode, value = self._number(("constant", 0.0), ("constant", 1.0), ("replicate", None))
        return lambda x: F.pad(x, sides, mode, value), [x], None

    def _make_cast(self) -> _Made | None:
        x = self._any()
        if x is None:
            return None
        to = self._number(_NARROW, torch.float32, torch.float32)
        return lambda x: x if x.dtype is torch.float64 else x.to(to), [x], None

    def _make_gate(self) -> _Made | None:
        x = self._image()
        if x is None:
            return None
        return _gated, [x], nn.Conv2d(x.shape[1], x.shape[1], 1)

    def _make_product(self) -> _Made | None:
        x = self._any(lambda each: each.dim() > 1 and each.dtype is torch.float32)
        return None if x is None else (lambda x: x @ x.transpose(-1, -2), [x], None)


def _called(layer: nn.Module, x: Tensor) -> Tensor:
    made: Tensor = layer(x)
    return made


def _gated(layer: nn.Module, x: Tensor) -> Tensor:
    return x * torch.sigmoid(layer(x.mean((2, 3), keepdim=True)))


def _normed_by_channel(layer: nn.Module, x: Tensor) -> Tensor:
    made: Tensor = layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return made


def _shaken(layer: nn.Module) -> nn.Module:
    """With weights and statistics that are no ones and zeros."""
    for tensor in (*layer.parameters(), *layer.buffers()):
        if tensor.is_floating_point():
            tensor.data = torch.rand_like(tensor) + 0.5
    return layer


def _broadcasts(a: Tensor, b: Tensor) -> bool:
    return all(m in (1, n) or n == 1 for m, n in zip(a.shape[::-1], b.shape[::-1], strict=False))


def _differs_in(a: Tensor, b: Tensor, dim: int) -> bool:
    """Whether sizes are the same but for those of one dimension."""
    rest = [(m, n) for at, (m, n) in enumerate(zip(a.shape, b.shape, strict=False)) if at != dim]
    return a.dtype == b.dtype and a.dim() == b.dim() and all(m == n for m, n in rest)


@st.composite
def networks(draw: _Draw, most: int = 8) -> DrawnNetwork:
    torch.manual_seed(draw(st.integers(0, 3)))
    return DrawnNetwork(draw, most=most)


def errors(got: Sequence[Tensor], own: Sequence[Tensor], exact: Sequence[Tensor], *, narrow: bool) -> list[str]:
    """What errs more than a few times as much as the model itself, and more than a few roundings."""
    found = []
    for place, (mine, theirs, right) in enumerate(zip(got, own, exact, strict=True)):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            found.append(f"output {place} is {mine.dtype} {mine.shape}, not {theirs.dtype} {theirs.shape}")
            continue
        norm = torch.linalg.vector_norm(right).item() or 1.0
        error, allowed = (torch.linalg.vector_norm(each.double() - right).item() / norm for each in (mine, theirs))
        roundoff = 2.0**-8 if narrow else core_dtype(theirs.dtype).roundoff
        if not error <= 4 * allowed + 16 * roundoff and allowed == allowed and allowed != float("inf"):
            found.append(f"output {place} errs by {error:.2g}, the model itself by {allowed:.2g}")
    return found
