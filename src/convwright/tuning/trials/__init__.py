"""Run candidates on real operands: quick timings, checks, precise timings.

Input: candidates and a search's input. Output: findings, with times and errors.
Read first: ``measure``, ``first_looks``, ``effort``.
"""
