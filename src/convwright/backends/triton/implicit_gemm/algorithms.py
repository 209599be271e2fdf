"""The implicit GEMM's name, which those of its algorithms begin with."""

from __future__ import annotations

KERNEL = "implicit-gemm"
