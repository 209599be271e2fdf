"""Find every convolution that a model runs, for `tune` and `advise`.

Input: a model and an example. Output: its layers, each with its problem.
Read first: ``layers``, ``intercept``, ``distinct``.
"""
