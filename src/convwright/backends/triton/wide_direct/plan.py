"""The plan of the kernel whose threads compute patches, with the operands of `direct`."""

from __future__ import annotations

from convwright.backends.triton.direct.plan import plan_class

__all__ = ["plan_class"]
