"""What an engine says if it is used like an nn.Module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from torch import nn

from convwright.errors import BadArgument


class NotAModule:
    """Base of engines. A method of nn.Module that they lack, and pickling, raise an error with what to do instead."""

    if not TYPE_CHECKING:  # a checker would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            if not hasattr(nn.Module, name):
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            raise AttributeError(
                f"this {kind} is no nn.Module and has no {name!r}: it keeps the device, types and mode of the model "
                "that it was planned from; change the model and plan it again"
            )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise BadArgument(
            f"this {type(self).__name__} cannot be pickled or copied: write it with engine.save(folder), and read it "
            "with convwright.load(folder)"
        )
