"""Turn a model into a graph.

Input: a model and an example. Output: a graph of operations, and its constants.
Read first: ``exported``, ``builder``, ``operators``.
"""
