"""Measure and rank every way to compute a problem.

Input: a problem, a device and a policy. Output: ``Findings``, or the choice that a call runs.
Read first: ``find``, ``choose``, ``session``.
"""
