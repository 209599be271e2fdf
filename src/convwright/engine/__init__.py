"""Optimised networks: capture a model, apply passes, plan it and run it.

Input: a model and an example. Output: an engine that computes the same.
Read first: ``optimize``, ``planning.planned``, ``engine``.
"""
