"""Users' own kernels, named ``user/`` and the name with which each was registered.

Input: a problem, and the functions of a ``UserKernel``. Output: candidates, refusals with reasons, and plans.
Read first: ``kernel``, ``backend``, ``plan``.
"""
