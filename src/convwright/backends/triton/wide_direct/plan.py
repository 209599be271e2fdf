"""The kernel whose threads compute patches made ready for one problem, on operands as the other takes them."""

from __future__ import annotations

from convwright.backends.triton.direct.plan import plan_class

__all__ = ["plan_class"]
