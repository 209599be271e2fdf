"""Ways to compute: PyTorch, cuDNN, our Triton kernels, readable references, users' kernels.

Input: a problem, a device and a policy. Output: candidates, refusals with reasons, and plans that run.
Read first: ``registry``, ``torch_native/backend``, ``triton/backend``.
"""
