"""What each layer of a model takes, and how to have less.

Input: a model and an example. Output: advice, or the findings for all of its problems.
Read first: ``advise``, ``whole_model``, ``tuned``.
"""
