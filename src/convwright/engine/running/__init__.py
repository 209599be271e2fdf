"""Prepare and run an assignment: packed weights, one arena, on a GPU one CUDA graph.

Input: an assignment and constants. Output: a program, which computes outputs from inputs.
Read first: ``program``, ``fixed_run``, ``weights``.
"""
