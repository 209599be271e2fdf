"""Kernels of the user's own, under ``user/`` and the name that each was registered with.

Input: a problem, and the functions of a ``UserKernel``. Output: candidates, refusals with reasons, and plans.
Read first: ``kernel``, ``backend``, ``plan``.
"""
