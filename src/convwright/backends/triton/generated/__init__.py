"""Shared by kernels with generated source: ``elementwise`` and ``pool``.

Input: a text. Output: a kernel. Read ``kernel`` (text → kernel) and ``functions``, which such texts call, first.
"""
