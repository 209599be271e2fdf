"""A model as a graph.

Input: a model and an example. Output: a graph of operations, and the constants that it reads.
Read first: ``exported``, ``builder``, ``operators``.
"""
