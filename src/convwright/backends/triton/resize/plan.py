"""The kernel made ready for one problem."""

from __future__ import annotations

from convwright.backends.triton.elementwise.plan import ElementwisePlan


class ResizePlan(ElementwisePlan):
    """Runs the kernel on an image, as that of an expression is run on its operands."""
