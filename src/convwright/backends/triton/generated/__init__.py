"""What kernels share whose source is generated for each problem.

Input: a problem of another kind than convolutions. Output: candidates, kernels, plans. Read ``backend`` (a family of
such kernels, as ``elementwise`` and ``pool`` are), ``kernel`` (a text → a kernel) and ``plan`` first.
"""
