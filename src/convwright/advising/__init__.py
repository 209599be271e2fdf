"""How long each layer of a model takes, and how to make it faster.

Input: a model and an example. Output: advice, or the findings for all of its problems.
Read first: ``advise``, ``whole_model``, ``tuned``.
"""
