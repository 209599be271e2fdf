"""What kernels share whose source is generated for each problem.

Input: a problem of another kind than convolutions. Output: candidates, kernels, plans. Read ``backend`` (what a family
of such kernels offers), ``kernel`` (a text → a kernel) and ``plan`` first. The families are ``elementwise`` and ``pool``.
"""
