"""Whole networks: a model is captured, changed by passes, planned and run.

Input: a model and an example. Output: an engine that computes the same.
Read first: ``optimize``, ``planning.planned``, ``engine``.
"""
