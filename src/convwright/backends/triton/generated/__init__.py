"""What kernels share whose source is made for each problem: ``elementwise`` and ``pool``.

Input: a text. Output: a kernel. Read ``kernel`` (text → kernel) and ``functions``, which such texts call, first.
"""
