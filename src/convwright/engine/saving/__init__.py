"""Write an engine to a folder, and check that the contents of a folder can run. ``engine.loaded`` reads it.

Input: a blueprint. Output: ``plan.json``, ``weights.safetensors`` and, on request, ``kernels.json``.
Read first: ``saved``, ``plan_text``, ``plan_checks``.
"""
