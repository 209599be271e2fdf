"""An engine in a folder, and whether what a folder holds can run. ``engine.loaded`` reads it.

Input: a blueprint. Output: ``plan.json``, ``weights.safetensors`` and, where that is asked for, ``kernels.json``.
Read first: ``saved``, ``plan_text``, ``plan_checks``.
"""
