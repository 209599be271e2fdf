"""Pack constant weights once for a kernel."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from convwright import torch_api

Pack = Callable[[Tensor], Tensor]


class PackedOnce:
    """Packs a weight once per stream, and again after autograd has counted a write to it or an optimizer has made a
    step: fused optimizers write without autograd's count."""

    __slots__ = ("_by_stream", "_prepare")

    def __init__(self, prepare: Pack) -> None:
        self._prepare = prepare
        self._by_stream: dict[int, tuple[weakref.ref[Tensor], tuple[int, int, object], Tensor]] = {}
        _count_steps()

    def __call__(self, weight: Tensor) -> Tensor:
        if weight.is_inference():
            return self._prepare(weight)  # an inference tensor has no version that shows a change
        # Another stream could read a packed weight before this stream has written it.
        stream = torch_api.current_stream(weight.device.index) if weight.is_cuda else 0
        capturing = weight.is_cuda and torch.cuda.is_current_stream_capturing()
        version, kept = (torch_api.version_of(weight), weight.data_ptr(), _step), self._by_stream.get(stream)
        # A new weight can have the id, address and version of a deleted one, so compare the object itself.
        if kept is not None and kept[0]() is weight and kept[1] == version:
            if capturing:
                _seen_by_graphs[id(kept[2])] = kept[2]
            return kept[2]
        packed = self._prepare(weight.detach())
        if not capturing:  # during a capture nothing is packed until the graph is replayed
            self._by_stream[stream] = weakref.ref(weight, self._dropping(stream)), version, packed
        return packed

    def _dropping(self, stream: int) -> Callable[[weakref.ref[Tensor]], None]:
        """A callback that drops a packed weight when its weight is deleted, unless it was replaced meanwhile."""
        by_stream = self._by_stream

        def drop(gone: weakref.ref[Tensor]) -> None:
            kept = by_stream.get(stream)
            if kept is not None and kept[0] is gone:
                del by_stream[stream]

        return drop


_step = object()  # replaced after each step of any optimizer, once a first weight is kept


@cache
def _count_steps() -> None:
    register_optimizer_step_post_hook(_stepped)


def _stepped(*_: object) -> None:
    global _step
    _step = object()  # unlike a counter, this is safe when threads do it at the same time


# A captured graph needs these as long as it lives, and nothing reports its end.
_seen_by_graphs: dict[int, Tensor] = {}
