"""Whole networks: a model is captured, changed by passes, planned and run. Not public yet.

Input: a model and an example. Output: an engine that computes the same.
Read first: ``optimize``, ``planned``, ``engine``.
"""
