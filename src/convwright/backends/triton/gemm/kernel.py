"""What the kernels of matrix products that read a weight have in common."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def outer(rows, columns, TURNED: tl.constexpr):
    """Sums of all pairs, a row for each of ``rows``; TURNED has a column for each, along which threads lie."""
    return rows[None, :] + columns[:, None] if TURNED else rows[:, None] + columns[None, :]
