"""An assignment made ready: weights packed, an arena, on a GPU one CUDA graph.

Input: an assignment and constants. Output: a program, which computes outputs from inputs.
Read first: ``program``, ``fixed_run``, ``weights``.
"""
