"""Every convolution of a model, for `tune` and `advise`.

Input: a model and an example. Output: its layers with the problems that they pose.
Read first: ``layers``, ``intercept``.
"""
