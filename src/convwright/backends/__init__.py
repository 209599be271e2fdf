"""The ways of computing: PyTorch, cuDNN, our Triton kernels, readable references.

Input: a problem, a device and a policy. Output: candidates, refusals with reasons, and plans that run.
Read first: ``registry``, ``torch_native/backend``, ``triton/backend``.
"""
